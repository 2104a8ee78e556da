//! `node-pressure-monitor detached`, which the agent itself calls.

use std::ffi::OsString;

use crate::report::notifications::detached;

use super::input::CommandError;

/// Becomes another program, apart from the agent.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: that of the program; 1 it cannot be started.")]
pub struct Options {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

/// Returns only if the program cannot be started.
pub fn run(options: &Options) -> Result<(), CommandError> {
    Err(CommandError::Failed(anyhow::anyhow!("the program cannot be started: {}", detached::exec(&options.words))))
}
