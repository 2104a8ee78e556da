//! The command line.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use node_pressure_monitor::commands::{
    check_config, detached, doctor, fleet, incidents, open, output, rank, restore, run, simulate, sweep, tolerations,
    top,
};

/// Monitors this node for pressure, and evicts the right workload before the kernel's OOM killer kills the wrong one.
///
/// Also explains from files what the kubelet of any other node would decide.
#[derive(Debug, Parser)]
#[command(name = "node-pressure-monitor", version, arg_required_else_help = true)]
#[command(after_help = "The --help of each command describes its input, its output and its exit status.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Monitor this node; evict only with mode enforce
    Run(run::Options),
    /// Replay a trace of summaries and pods, and print the decision for each line
    Simulate(simulate::Options),
    /// Rank the workloads in the order of eviction, with every key
    Rank(rank::Options),
    /// Explain a configuration file, or list all its errors
    CheckConfig(check_config::Options),
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

fn main() -> ExitCode {
    let result = match Arguments::parse_from(arguments()).command {
        Command::Run(options) => run::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Rank(options) => rank::run(&options),
        Command::CheckConfig(options) => check_config::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Incidents(options) => incidents::run(&options),
        Command::Open(options) => open::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Tolerations(options) => tolerations::run(&options),
        Command::Sweep(options) => sweep::run(&options),
        Command::Fleet(options) => fleet::run(&options),
        Command::Restore(options) => restore::run(&options),
        Command::Detached(options) => detached::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// The name under which kubectl finds this program as its plugin `kubectl node-pressure`.
const PLUGIN: &str = "kubectl-node_pressure";

/// Returns the arguments of this process. As a plugin of kubectl it is the command `fleet`.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let is_plugin = arguments.first().and_then(|path| Path::new(path).file_name()).is_some_and(|name| name == PLUGIN);
    if is_plugin {
        arguments.insert(1, "fleet".into());
    }
    arguments
}
