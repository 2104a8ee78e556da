//! `node-pressure-monitor top`: the state of a node, live in a terminal. It shows what an agent serves, and measures nothing.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use node_pressure_top::{Event, Link, Model, Request, terminal};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use super::agent_client::{Agent, Refusal, address_of, token_of};
use super::input::{self, CommandError};
use super::output;

/// Options of `top`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// URL of the agent; default: http at the address of --config, or http://127.0.0.1:9946
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    /// Configuration file of the agent, which names its address and certificate (metrics)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with the token that metrics.bearerToken asks for
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
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

const HELP: &str = "The view is renewed once a second from the agent's stream (/api/v1/watch). Keys: ? shows them all, q ends. With the variable NO_COLOR set it \
has no colour. While it runs, the agent measures the ranking once a second; without it the agent does not.

On a cluster, kubectl node-pressure top NODE shows the agent of a node through kubectl port-forward.

Exit status: 0 ended by the user, or printed; 1 the agent cannot be asked with --once, or the terminal cannot be used; 2 wrong usage, or a \
file that cannot be read.";

pub fn run(options: &Options) -> Result<(), CommandError> {
    let token = token_of(options.token_file.as_ref())?;
    let agent = match (&options.url, &options.config) {
        (Some(url), _) => Agent::of_url(url, token)?,
        (None, config) => {
            let address = address_of(config.as_ref())?;
            let loaded = config.as_ref().map(|file| input::load(file)).transpose()?;
            match loaded.and_then(|(_, loaded)| loaded.config.serving.tls) {
                Some(files) => Agent::pinned(&address.to_string(), token, &files.certificate)?,
                None => Agent::new(&address.to_string(), token),
            }
        }
    };
    show(&options.screen, agent, input::event_loop()?)
}

/// Shows an agent until the user ends the view. `runtime` may drive what connects to the agent.
pub(super) fn show(options: &ScreenOptions, agent: Agent, runtime: Runtime) -> Result<(), CommandError> {
    if options.once {
        return runtime.block_on(print(options, &agent));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(CommandError::Usage("top: this is no terminal; print one screen with --once".to_owned()));
    }
    let (events, of_agent) = std::sync::mpsc::channel();
    let (requests, asked) = tokio::sync::mpsc::unbounded_channel();
    let ends = {
        let _context = runtime.enter();
        [SignalKind::terminate(), SignalKind::hangup()].map(signal)
    };
    let [terminate, hangup] = ends;
    let unusable = |error: std::io::Error| CommandError::Wrong(format!("top: {error}"));
    let feed =
        Feed { agent, events, asked, terminate: terminate.map_err(unusable)?, hangup: hangup.map_err(unusable)? };
    let thread = std::thread::Builder::new().name("agent".to_owned());
    thread.spawn(move || runtime.block_on(feed.run())).map_err(unusable)?;
    let model = Model { has_colour: has_colour(), ..Model::default() };
    // The feed has ended if nobody receives the request, and then the view ends, too.
    terminal::run(model, &of_agent, |request| drop(requests.send(request))).map_err(unusable)
}

/// By <https://no-color.org>: any value that is not empty.
fn has_colour() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

async fn print(options: &ScreenOptions, agent: &Agent) -> Result<(), CommandError> {
    let json = agent.get("/api/v1/state").await.map_err(|refusal| CommandError::Wrong(format!("top: {refusal}")))?;
    let state = node_pressure_top::state(&json)
        .map_err(|error| CommandError::Wrong(format!("top: the agent's document cannot be read: {error}")))?;
    let screen = node_pressure_top::once(state, options.width, options.height);
    output::answer(|out| out.write_all(screen.as_bytes())).map_err(CommandError::Output)
}

const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// While all streams are taken the document is read once a second, and the stream is tried again after this many.
const POLLS: usize = 30;

/// Brings what the agent tells to the view.
struct Feed {
    agent: Agent,
    events: Sender<Event>,
    asked: UnboundedReceiver<Request>,
    terminate: Signal,
    hangup: Signal,
}

/// The view has ended.
struct Ended;

impl Feed {
    async fn run(self) {
        let Self { agent, events, mut asked, mut terminate, mut hangup } = self;
        tokio::select! {
            Ended = follow(&agent, &events) => {}
            Ended = answer(&agent, &events, &mut asked) => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        let _ended_already = events.send(Event::End);
    }
}

/// Follows the agent's stream, again and again.
async fn follow(agent: &Agent, events: &Sender<Event>) -> Ended {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let refusal = match stream(agent, events).await {
            Ok(ended) => return ended,
            Err((refusal, has_told)) => {
                if has_told {
                    pause = SHORTEST_PAUSE;
                }
                refusal
            }
        };
        let is_over = match refusal {
            Refusal::Busy => poll(agent, events).await.is_err(),
            Refusal::Other(reason) => {
                let is_over = events.send(Event::Link(Link::Lost(reason))).is_err();
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                is_over
            }
        };
        if is_over {
            return Ended;
        }
    }
}

/// Shows the documents of one stream. Returns why it ended, and whether it had told anything.
async fn stream(agent: &Agent, events: &Sender<Event>) -> Result<Ended, (Refusal, bool)> {
    let mut documents = agent.watch().await.map_err(|refusal| (refusal, false))?;
    let mut has_told = false;
    loop {
        let json = match documents.next().await {
            Ok(Some(json)) => json,
            // The agent ends each stream after ten minutes.
            Ok(None) if has_told => return Err((Refusal::Busy, true)),
            Ok(None) => return Err((Refusal::Other("the agent has ended the stream".to_owned()), false)),
            Err(refusal) => return Err((refusal, has_told)),
        };
        if !has_told && events.send(Event::Link(Link::Streaming)).is_err() || tell(&json, events).is_err() {
            return Ok(Ended);
        }
        has_told = true;
    }
}

/// Reads the document once a second for a while.
async fn poll(agent: &Agent, events: &Sender<Event>) -> Result<(), Ended> {
    for _ in 0..POLLS {
        match agent.get("/api/v1/state").await {
            Ok(json) => {
                events.send(Event::Link(Link::Polling)).map_err(|_| Ended)?;
                tell(&json, events)?;
            }
            Err(Refusal::Busy) => {}
            Err(Refusal::Other(reason)) => {
                return events.send(Event::Link(Link::Lost(reason))).map_err(|_| Ended);
            }
        }
        sleep(SHORTEST_PAUSE).await;
    }
    Ok(())
}

fn tell(json: &[u8], events: &Sender<Event>) -> Result<(), Ended> {
    let event = match node_pressure_top::state(json) {
        Ok(state) => Event::Document(Box::new(state)),
        Err(error) => Event::Link(Link::Lost(format!("the agent's document cannot be read: {error}"))),
    };
    events.send(event).map_err(|_| Ended)
}

/// Reads the incidents that the user opens.
async fn answer(agent: &Agent, events: &Sender<Event>, asked: &mut UnboundedReceiver<Request>) -> Ended {
    while let Some(Request::Incident(id)) = asked.recv().await {
        let read = agent.get(&format!("/incidents/{id}")).await.map_err(|refusal| refusal.to_string());
        let record = read.and_then(|json| node_pressure_top::incident(&json).map_err(|error| error.to_string()));
        if events.send(Event::Incident { id, record: record.map(Box::new) }).is_err() {
            return Ended;
        }
    }
    Ended
}
