//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use node_pressure_monitor::commands::run;

/// Watches this node for memory pressure, and evicts the right workload before the kernel's OOM killer shoots the wrong one.
#[derive(Debug, Parser)]
#[command(name = "node-pressure-monitor", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit status: 0 stopped on request; 1 failed while starting or running; 2 wrong usage or configuration; \
                        3 another instance is running on this machine."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch this node; act only when told to enforce.
    Run(run::Options),
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let Command::Run(options) = command;
    match run::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("node-pressure-monitor: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
