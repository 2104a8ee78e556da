//! `cargo xtask run`: runs the agent on this machine.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::time::Instant;

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
    let start = Instant::now();
    let step = |number: u32, what: &str| {
        eprintln!("[{number}/3] {what} ({:.0} s since the start)", start.elapsed().as_secs_f64());
    };
    step(1, "looking for the tools; what is missing is installed");
    setup::ensure(workspace, setup::BUILD)?;
    let agent = workspace.target.join("quick/node-pressure-monitor");
    let first = if agent.exists() { "" } else { "; the first time about 250 crates, and the eBPF programs" };
    step(2, &format!("compiling the agent{first}"));
    build::quick()?;
    step(3, "starting the agent; Ctrl-C ends it");
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
