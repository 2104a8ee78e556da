//! The program: runs the command that the command line names.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use node_pressure_monitor::commands::arguments::{Arguments, Command};
use node_pressure_monitor::commands::{
    check_config, detached, doctor, fleet, incidents, migrate, open, output, rank, restore, run, simulate, sweep,
    tolerations, top,
};

fn main() -> ExitCode {
    let result = match Arguments::parse_from(arguments()).command {
        Command::Run(options) => run::run(&options),
        Command::Simulate(options) => simulate::run(&options),
        Command::Rank(options) => rank::run(&options),
        Command::CheckConfig(options) => check_config::run(&options),
        Command::Migrate(options) => migrate::run(&options),
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
