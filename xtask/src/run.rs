//! `cargo xtask run`: runs the agent on this machine.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow};

use crate::build;
use crate::cmd;
use crate::paths::{Workspace, find_program, is_root};
use crate::setup;

/// Builds the agent and runs it on this machine with config/monitor.yaml: in observe mode, which touches nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo xtask run -- --log-format json --listen 127.0.0.1:9999")]
pub struct Options {
    /// Further arguments of `node-pressure-monitor run`; a later --config replaces config/monitor.yaml.
    #[arg(last = true)]
    args: Vec<String>,
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    setup::ensure(workspace, setup::BUILD)?;
    build::release(&["node-pressure-monitor"])?;
    let agent = workspace.release("node-pressure-monitor");
    let mut command = match find_program("sudo") {
        _ if is_root() => Command::new(&agent),
        Some(sudo) => {
            let mut command = Command::new(sudo);
            command.arg("-E").arg(&agent);
            command
        }
        None => {
            eprintln!("Not root, and no sudo here: the agent will say what it cannot see without privileges.");
            Command::new(&agent)
        }
    };
    command.arg("run");
    if !options.args.iter().any(|arg| arg == "--config" || arg.starts_with("--config=")) {
        command.arg("--config").arg(workspace.root.join("config/monitor.yaml"));
    }
    command.args(&options.args);
    // The agent must not inherit the variables that cargo set for xtask.
    for (key, _) in env::vars_os() {
        if key.to_string_lossy().starts_with("CARGO_") {
            command.env_remove(key);
        }
    }
    // The agent replaces this process, so signals reach the agent, and the shell gets its exit code.
    let error = command.exec();
    Err(anyhow!(error).context(format!("cannot run `{}`", cmd::shown(&command))))
}
