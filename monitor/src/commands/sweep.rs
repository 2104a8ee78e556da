//! `node-pressure-monitor sweep`: removes the conditions and taints that dead agents left on their nodes.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::cluster::Access;
use crate::cluster::sweeper::{Round, Rules, Sweeper, Swept};
use crate::config::KubernetesOptions;
use crate::report::logging::{self, LogFormat};

use super::input::{self, CommandError};
use super::output;

/// Interval of the rounds.
const EVERY: Duration = Duration::from_secs(60);
/// Interval of looking whether the agents are gone.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Options of `sweep`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// Kubeconfig file; default: KUBECONFIG of the environment, then the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the agents' Leases; default: in a pod its own, otherwise node-pressure-monitor
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Sweep only this node
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Sweep all nodes once, then exit
    #[arg(long)]
    once: bool,
    /// Remove the conditions and taints of all agents, also of live ones, then exit: the last step of uninstalling
    #[arg(long)]
    remove: bool,
    /// With --remove: first wait until the agents are gone, and leave their Leases
    #[arg(long, requires = "remove", conflicts_with = "dry_run")]
    after_agents: bool,
    /// Print what would be done, then exit
    #[arg(long)]
    dry_run: bool,
}

const HELP: &str = "An agent that stops removes its conditions and taints from its node. An agent that was killed, or whose node died, cannot. When its \
Lease was not renewed for three heartbeats, sweep sets its conditions to Unknown with the reason MonitorAgentStopped and removes its taints. \
Conditions and taints of other programs are never changed.

Without --once, --remove or --dry-run the command keeps running. It lists the Leases once a minute and detects dead agents by Leases that \
stay the same, because clocks of nodes may differ. Once an hour it looks for nodes with conditions or taints of agents and without a Lease. \
A single round compares the Leases' times with this machine's clock. Several instances may run at once.

With --remove, --after-agents waits until the agents' namespace is deleted, or until no agent in it has renewed its Lease for three heartbeats: \
agents that live would set their conditions and taints again. If a node that cannot be reached keeps the namespace, it waits for five minutes. \
Only Leases in the agents' namespace count. A Lease counts for as long as it promises from when it was first seen, whatever time it names.

The command needs list, get and patch on nodes, patch on nodes/status, and list and get on leases in the agents' namespace. --remove \
alone also needs delete on leases. With --after-agents it needs get on namespaces, and of the leases only list.

Exit status: 0 done, or stopped on request; 1 the API server cannot be reached, a node could not be swept, or there is no node of this name \
(with --once, --remove or --dry-run); 2 wrong usage.";

pub fn run(options: &Options) -> Result<(), CommandError> {
    let single = options.once || options.remove || options.dry_run;
    let access = Access::find_with(options.kubeconfig.as_deref(), &KubernetesOptions::default());
    let access = access.map(|access| access.in_namespace(options.namespace.clone())).ok_or_else(|| {
        let fix = "give --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account";
        CommandError::Wrong(format!("no API server is configured: {fix}"))
    })?;
    let Options { remove, dry_run, after_agents, .. } = *options;
    let rules = Rules { remove, keep_leases: after_agents, dry_run, by_clock: single };
    let runtime = input::event_loop()?;
    let swept = runtime.block_on(async {
        let mut sweeper = Sweeper::connect(&access, rules, options.node.clone()).await.map_err(CommandError::Wrong)?;
        if after_agents {
            wait_for_agents(&mut sweeper).await;
        }
        if single { once(sweeper, dry_run).await } else { stay(sweeper).await }
    });
    runtime.shutdown_background();
    swept
}

/// Waits until the agents are gone. Reports each new reason once. Retries after failures: a new role takes effect with a delay.
async fn wait_for_agents(sweeper: &mut Sweeper) {
    let mut reported = String::new();
    loop {
        let reason = match sweeper.agents_left().await {
            Ok(None) => return,
            Ok(Some(left)) => format!("waiting: {left}"),
            Err(error) => format!("waiting: {error}"),
        };
        if reason != reported {
            output::note(format_args!("{reason}"));
            reported = reason;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn once(mut sweeper: Sweeper, is_dry_run: bool) -> Result<(), CommandError> {
    let mut print = |swept: &Swept| {
        let mut out = std::io::stdout().lock();
        for done in &swept.done {
            // A closed stdout is no reason to stop.
            let _sent = writeln!(out, "{}: {done}", swept.node);
        }
        if let Some(failure) = &swept.failure {
            output::note(format_args!("{}: {failure}", swept.node));
        }
    };
    let round = sweeper.round(&mut print).await.map_err(|error| CommandError::Wrong(error.to_string()))?;
    output::note(format_args!("{}", summary(&round, is_dry_run)));
    if round.failed == 0 {
        return Ok(());
    }
    Err(CommandError::Wrong(format!("{} nodes could not be swept; the reasons are above", round.failed)))
}

/// Returns the last line of a single round.
fn summary(round: &Round, is_dry_run: bool) -> String {
    let Round { agents, watched, swept, .. } = round;
    let done = if is_dry_run { "would be swept: nothing was changed" } else { "swept" };
    format!("{agents} agents, {watched} nodes with conditions or taints of agents, {swept} {done}")
}

async fn stay(mut sweeper: Sweeper) -> Result<(), CommandError> {
    let _log = logging::init(LogFormat::for_stderr())?;
    let unusable = |error: std::io::Error| CommandError::Wrong(format!("cannot receive signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(unusable)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unusable)?;
    tracing::info!(event = "sweeping", every_seconds = EVERY.as_secs(), "watching the heartbeats of agents");
    let mut is_failing = false;
    let mut log = log;
    loop {
        let round = tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            round = sweeper.round(&mut log) => round,
        };
        match round {
            Ok(Round { agents, watched, .. }) => {
                if std::mem::take(&mut is_failing) {
                    tracing::info!(
                        event = "restored",
                        capability = "sweep",
                        "sweep: nodes and Leases can be listed again"
                    );
                }
                tracing::debug!(event = "sweep_round", agents, watched, "all agents were checked");
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(event = "degraded", capability = "sweep", reason = %error, "sweep: nodes or Leases cannot be listed; no node is swept until they can");
                }
            }
        }
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
    tracing::info!(event = "shutdown", "stopped");
    Ok(())
}

fn log(swept: &Swept) {
    let Swept { node, done, failure } = swept;
    for done in done {
        tracing::warn!(event = "swept", node, "{done}");
    }
    if let Some(reason) = failure {
        tracing::error!(event = "not_swept", node, reason, "the node keeps conditions or taints of a dead agent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_does_not_say_that_nodes_were_swept() {
        let round = Round { agents: 3, watched: 2, swept: 1, failed: 0 };
        let line = "3 agents, 2 nodes with conditions or taints of agents, 1";
        assert_eq!(summary(&round, false), format!("{line} swept"));
        assert_eq!(summary(&round, true), format!("{line} would be swept: nothing was changed"));
    }
}
