//! The command line of the program. Its manual pages and completions are made from it too.

use clap::{Parser, Subcommand};

use super::{
    check_config, detached, doctor, fleet, incidents, migrate, open, rank, restore, run, simulate, sweep, tolerations,
    top,
};

/// Monitors this node for pressure, and evicts the right workload before the kernel's OOM killer kills the wrong one.
///
/// Also explains from files what the kubelet of any other node would decide.
#[derive(Debug, Parser)]
#[command(name = "node-pressure-monitor", version, arg_required_else_help = true)]
#[command(after_help = "The --help of each command describes its input, its output and its exit status.")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Monitor this node; evict only with mode enforce
    Run(run::Options),
    /// Replay a trace of summaries and pods, and print the decision for each line
    Simulate(simulate::Options),
    /// Rank the workloads in the order of eviction, with every key
    Rank(rank::Options),
    /// Explain a configuration file, or list all its errors
    CheckConfig(check_config::Options),
    /// Turn a kubelet's configuration into one of the agent, each line with its reason
    Migrate(migrate::Options),
    /// Check what the agent can do on this machine, and how to fix the rest
    Doctor(doctor::Options),
    /// Show the OOM kills and evictions of this node, each with its evidence
    Incidents(incidents::Options),
    /// Show the state of this node live: signals, the order of eviction, incidents
    Top(top::Options),
    /// Print a link to the status page of this node
    Open(open::Options),
    /// Predict which running pods a taint would evict
    Tolerations(tolerations::Options),
    /// Remove conditions and taints that dead agents left on nodes
    Sweep(sweep::Options),
    /// Show the nodes of a cluster as their agents tell about them; kubectl node-pressure
    Fleet(fleet::Options),
    /// Give processes the oom_score_adj from before the agent, after the agent was stopped
    Restore(restore::Options),
    /// Become the program of a notification; the agent itself calls this
    #[command(hide = true)]
    Detached(detached::Options),
}
