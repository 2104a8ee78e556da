//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use node_pressure_monitor::commands::input::CommandError;
use node_pressure_monitor::commands::{
    check_config, doctor, incidents, output, rank, run, simulate, sweep, tolerations,
};

/// Watches this node for memory pressure, and evicts the right workload before the kernel's OOM killer shoots the wrong one.
///
/// Answers for any other node from files what its kubelet would decide, and why.
#[derive(Debug, Parser)]
#[command(name = "node-pressure-monitor", version, arg_required_else_help = true)]
#[command(after_help = "Each command's --help says what it reads, what it answers and its exit status.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch this node; act only when told to enforce
    Run(run::Options),
    /// Replay a trace of summaries and pods, and say for each line what would be decided
    Simulate(simulate::Options),
    /// Say which pod would be evicted first, and every key that decides it
    Rank(rank::Options),
    /// Say what a configuration file means, or everything that is wrong with it
    CheckConfig(check_config::Options),
    /// Say what this machine has for the agent, what will not work on it, and how to mend that
    Doctor(doctor::Options),
    /// Tell what happened on this node: OOM kills and evictions, each with its evidence
    Incidents(incidents::Options),
    /// Say which running pods taints would evict, before they are set
    Tolerations(tolerations::Options),
    /// Take off the cluster's nodes what agents that are gone have left there
    Sweep(sweep::Options),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    match command {
        Command::Run(options) => finish(run::run(&options), run::RunError::exit_code),
        Command::Simulate(options) => finish(simulate::run(&options), CommandError::exit_code),
        Command::Rank(options) => finish(rank::run(&options), CommandError::exit_code),
        Command::CheckConfig(options) => finish(check_config::run(&options), check_config::CheckError::exit_code),
        Command::Doctor(options) => finish(doctor::run(&options), doctor::DoctorError::exit_code),
        Command::Incidents(options) => finish(incidents::run(&options), CommandError::exit_code),
        Command::Tolerations(options) => finish(tolerations::run(&options), CommandError::exit_code),
        Command::Sweep(options) => finish(sweep::run(&options), sweep::SweepFailure::exit_code),
    }
}

fn finish<E: std::fmt::Display>(result: Result<(), E>, exit_code: impl FnOnce(&E) -> u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::from(exit_code(&error))
        }
    }
}
