//! `node-pressure-monitor top`: the state of a node, live in a terminal. It shows what an agent serves. Where no agent runs, it starts one that
//! only observes, and ends it with the view.

mod feed;
mod own_agent;

use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use node_pressure_top::{Measured, Model, terminal};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use self::feed::{Feed, Origin, Signals};
use self::own_agent::OwnAgent;
use super::agent_client::{Agent, address_on_this_machine, token_of};
use super::input::{self, CommandError};
use super::instance::InstanceLock;
use super::output;
use crate::config::MonitorConfig;

/// Options of `top`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// URL of the agent; default: http at the address of --config, or http://127.0.0.1:9946. Without an agent there, top measures itself
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    /// Configuration file of the agent, which names its address and certificate (metrics)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with the token that metrics.bearerToken asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Measure this node without asking an agent; --config gives the thresholds
    #[arg(long, conflicts_with_all = ["url", "token_file"])]
    no_agent: bool,
    #[command(flatten)]
    screen: ScreenOptions,
}

/// How the view is shown.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ScreenOptions {
    /// Print one screen as text and end
    #[arg(long)]
    once: bool,
    /// Columns of the screen with --once
    #[arg(long, value_name = "N", default_value_t = 80, requires = "once", value_parser = clap::value_parser!(u16).range(1..=1000))]
    width: u16,
    /// Lines of the screen with --once
    #[arg(long, value_name = "N", default_value_t = 24, requires = "once", value_parser = clap::value_parser!(u16).range(1..=1000))]
    height: u16,
}

const HELP: &str = "The view follows the agent's stream (/api/v1/watch): a document every five seconds while no threshold is near, and one a second otherwise. Keys: ? shows them all, q ends. With the variable NO_COLOR set it \
has no colour. While it runs, the agent measures the ranking for each document; without it the agent does not.

Where no agent runs, and no --url names one, top measures this node itself: it starts an agent that only observes, and ends it with the view. \
That agent evicts nothing, asks no API server, serves only this view, and keeps its files in a temporary directory that is removed. It needs root \
to measure everything.

On a cluster, kubectl node-pressure top NODE shows the agent of a node through kubectl port-forward.

Exit status: 0 ended by the user, or printed; 1 the agent cannot be asked with --once, or the terminal cannot be used; 2 wrong usage, or a \
file that cannot be read.";

/// How long an agent on this machine may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// The changes of figures are known from the second sample on.
const SECOND_SAMPLE: Duration = Duration::from_secs(2);

pub fn run(options: &Options) -> Result<(), CommandError> {
    let token = token_of(options.token_file.as_ref())?;
    if let Some(url) = &options.url {
        return show(&options.screen, Agent::of_url(url, token)?, input::event_loop()?);
    }
    let config = options.config.as_ref().map(|file| Ok::<_, CommandError>(input::load(file)?.1.config)).transpose()?;
    let config = config.unwrap_or_default();
    let address = address_on_this_machine(&config);
    let origin = if options.no_agent { None } else { running(&config, address) };
    let Some(origin) = origin else {
        check(&options.screen)?;
        let own = OwnAgent::start(options.config.as_deref())?;
        let source = Source { agent: own.agent.clone(), origin: Origin::Own(own.log()), measured: measured_by_top() };
        return view(&options.screen, source, input::event_loop()?);
    };
    let agent = match &config.serving.tls {
        Some(files) => Agent::pinned(&address.to_string(), token, &files.certificate)?,
        None => Agent::new(&address.to_string(), token),
    };
    check(&options.screen)?;
    view(&options.screen, Source { agent, origin, measured: Measured::ByAgent }, input::event_loop()?)
}

/// Returns `None` if no agent runs on this machine: it neither accepts connections nor holds its lock file.
fn running(config: &MonitorConfig, address: SocketAddr) -> Option<Origin> {
    let is_refused = TcpStream::connect_timeout(&address, CONNECT_TIME)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    match (is_refused, InstanceLock::is_held(&config.lock_file)) {
        (false, _) => Some(Origin::Running),
        (true, true) => Some(Origin::Silent),
        (true, false) => None,
    }
}

fn measured_by_top() -> Measured {
    let missing = (!rustix::process::geteuid().is_root()).then(|| {
        "not root: eBPF programs, the kernel's log and other users' workloads cannot be read; run top as root to measure everything"
            .to_owned()
    });
    Measured::ByTop { missing }
}

/// The source of the data that the view shows.
struct Source {
    agent: Agent,
    origin: Origin,
    measured: Measured,
}

/// Shows an agent until the user ends the view. `runtime` may drive what connects to the agent.
pub(super) fn show(options: &ScreenOptions, agent: Agent, runtime: Runtime) -> Result<(), CommandError> {
    check(options)?;
    view(options, Source { agent, origin: Origin::Running, measured: Measured::ByAgent }, runtime)
}

/// Refuses a live view without a terminal.
fn check(options: &ScreenOptions) -> Result<(), CommandError> {
    if options.once || std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(CommandError::Usage("top: this is no terminal; print one screen with --once".to_owned()))
}

fn view(options: &ScreenOptions, source: Source, runtime: Runtime) -> Result<(), CommandError> {
    if options.once {
        return runtime.block_on(print(options, source));
    }
    let Source { agent, origin, measured } = source;
    let (events, of_agent) = std::sync::mpsc::channel();
    let (requests, asked) = tokio::sync::mpsc::unbounded_channel();
    let unusable = |error: std::io::Error| CommandError::Wrong(format!("top: {error}"));
    let signals = {
        let _context = runtime.enter();
        Signals::handle().map_err(unusable)?
    };
    let feed = Feed { agent, origin, events, asked, signals };
    let thread = std::thread::Builder::new().name("agent".to_owned());
    thread.spawn(move || runtime.block_on(feed.run())).map_err(unusable)?;
    let model = Model { has_colour: has_colour(), measured, ..Model::default() };
    // Without a receiver the feed has ended, and then the view ends, too.
    terminal::run(model, &of_agent, |request| drop(requests.send(request))).map_err(unusable)
}

/// By <https://no-color.org>: any value that is not empty.
fn has_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

async fn print(options: &ScreenOptions, source: Source) -> Result<(), CommandError> {
    let Source { agent, origin, measured } = source;
    let wrong = |reason: String| CommandError::Wrong(format!("top: {reason}"));
    let get = async || {
        let read = agent.get("/api/v1/state").await;
        read.map_err(|refusal| wrong(origin.explain(refusal.to_string())))
    };
    let mut json = get().await?;
    if measured != Measured::ByAgent {
        sleep(SECOND_SAMPLE).await;
        json = get().await?;
    }
    let state = node_pressure_top::state(&json)
        .map_err(|error| wrong(format!("the agent's document cannot be read: {error}")))?;
    let screen = node_pressure_top::once(state, measured, options.width, options.height);
    output::answer(|out| out.write_all(screen.as_bytes())).map_err(CommandError::Output)
}
