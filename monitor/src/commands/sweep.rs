//! `node-pressure-monitor sweep`: takes away what agents that are gone have left on their nodes.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::cluster::Access;
use crate::cluster::sweeper::{Round, Rules, Sweeper, Swept};
use crate::config::KubernetesOptions;
use crate::report::logging::{self, LogFormat, LoggingError};

use super::output;

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// How to find the API server; default: KUBECONFIG of the environment, then the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// How often the agents confirm their conditions, as their kubernetes.heartbeat says, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    heartbeat: u64,
    /// Only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// One round, then end
    #[arg(long)]
    once: bool,
    /// Take everything of ours off all nodes, of living agents too, then end: the last step of uninstalling
    #[arg(long)]
    remove: bool,
    /// Say what would be done, and end
    #[arg(long)]
    dry_run: bool,
}

const HELP: &str = "An agent that is stopped takes its conditions and taints off its node. One that was killed, or whose node has died, \
cannot: three heartbeats after the last its conditions become Unknown with the reason MonitorAgentStopped, and its taints are removed. Conditions and \
taints of others are never touched.

Without --once, --remove or --dry-run it stays, looks at every node once a heartbeat, and goes by whether heartbeats change: clocks of nodes \
may differ. In a single round it has to go by their times. Several may run at once.

It needs list on nodes, and patch on nodes and nodes/status.

Exit status: 0 done, or stopped on request; 1 the API server cannot be asked, or something could not be done; 2 wrong usage.";

/// Why it ended other than by request.
#[derive(Debug, thiserror::Error)]
pub enum SweepFailure {
    /// The filter in the environment.
    #[error(transparent)]
    Logging(#[from] LoggingError),
    /// There is no API server.
    #[error("{0}")]
    Unreachable(String),
    /// Something was left.
    #[error("something could not be done on {0} of the nodes; what was refused is above")]
    Left(usize),
}

impl SweepFailure {
    /// Exit status, as `--help` documents it.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Logging(_) => 2,
            Self::Unreachable(_) | Self::Left(_) => 1,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// When the API server cannot be asked, or something could not be done.
pub fn run(options: &Options) -> Result<(), SweepFailure> {
    let single = options.once || options.remove || options.dry_run;
    let kubernetes = KubernetesOptions { kubeconfig: options.kubeconfig.clone(), ..KubernetesOptions::default() };
    let access = Access::find(&kubernetes).ok_or_else(|| {
        let fix = "give --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account";
        SweepFailure::Unreachable(format!("there is no API server to ask: {fix}"))
    })?;
    let rules = Rules {
        heartbeat: Duration::from_secs(options.heartbeat),
        remove: options.remove,
        dry_run: options.dry_run,
        by_clock: single,
    };
    let unusable = |error: std::io::Error| SweepFailure::Unreachable(format!("cannot start: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unusable)?;
    let swept = runtime.block_on(async {
        let sweeper =
            Sweeper::connect(&access, rules, options.node.clone()).await.map_err(SweepFailure::Unreachable)?;
        if single { once(sweeper).await } else { stay(sweeper, rules.heartbeat).await }
    });
    runtime.shutdown_background();
    swept
}

async fn once(mut sweeper: Sweeper) -> Result<(), SweepFailure> {
    let mut print = |swept: &Swept| {
        let mut out = std::io::stdout().lock();
        for done in &swept.done {
            // Nobody reading along is no reason to stop.
            let _unread = writeln!(out, "{}: {done}", swept.node);
        }
        if let Some(failure) = &swept.failure {
            output::note(format_args!("{}: {failure}", swept.node));
        }
    };
    let round = sweeper.round(&mut print).await.map_err(|error| SweepFailure::Unreachable(error.to_string()))?;
    let Round { nodes, watched, swept, failed } = round;
    output::note(format_args!("{nodes} nodes, {watched} with something of ours, {swept} swept"));
    if failed > 0 { Err(SweepFailure::Left(failed)) } else { Ok(()) }
}

async fn stay(mut sweeper: Sweeper, every: Duration) -> Result<(), SweepFailure> {
    let _log = logging::init(LogFormat::for_stderr())?;
    let unusable = |error: std::io::Error| SweepFailure::Unreachable(format!("cannot hear signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(unusable)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unusable)?;
    tracing::info!(event = "sweeping", every_seconds = every.as_secs(), "watching the agents' heartbeats");
    let mut is_failing = false;
    let mut tell = tell;
    loop {
        let round = tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            round = sweeper.round(&mut tell) => round,
        };
        match round {
            Ok(Round { nodes, watched, .. }) => {
                if std::mem::take(&mut is_failing) {
                    tracing::info!(event = "restored", capability = "sweep", "the nodes can be listed again");
                }
                tracing::debug!(event = "sweep_round", nodes, watched, "looked at every node");
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(event = "degraded", capability = "sweep", reason = %error, "nothing is swept until this is mended");
                }
            }
        }
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = tokio::time::sleep(every) => {}
        }
    }
    tracing::info!(event = "shutdown", "stopped");
    Ok(())
}

fn tell(swept: &Swept) {
    let Swept { node, done, failure } = swept;
    for done in done {
        tracing::warn!(event = "swept", node, "{done}");
    }
    if let Some(reason) = failure {
        tracing::error!(event = "not_swept", node, reason, "something of a dead agent is left");
    }
}
