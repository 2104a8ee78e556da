//! Running other programs so that a failure names the command that failed.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::console::Console;

/// The command as one would type it.
pub fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(text, "{}={} ", key.to_string_lossy(), value.to_string_lossy());
        }
    }
    text.push_str(&command.get_program().to_string_lossy());
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// Runs the command with this terminal; an unsuccessful exit is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs the command and returns its standard output; an unsuccessful exit is an error that carries what it said.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = if said.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { said };
        bail!("`{}` failed: {}\n{}", shown(command), output.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The cargo that started this program. What it has told this program of its own package is kept from it: build scripts of others look at
/// those variables (ring's does), and half of the dependencies would be compiled anew after each `cargo build` by hand.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
        command.env_remove(name);
    }
    command
}

/// Numbered steps, each one line: `[3/9] kernel 6.12 … downloaded (3.1 s)`.
#[derive(Debug)]
pub struct Steps<'a> {
    console: &'a Console,
    total: usize,
    done: usize,
}

impl<'a> Steps<'a> {
    pub fn new(console: &'a Console, total: usize) -> Self {
        Self { console, total, done: 0 }
    }

    /// Runs one step; it returns what became of it.
    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Result<String>) -> Result<()> {
        self.done += 1;
        let head = format!("[{}/{}] {name} … ", self.done, self.total);
        // Beside other work the line waits until it is whole.
        let rest = if self.console.is_alone() {
            print!("{head}");
            io::stdout().flush()?;
            ""
        } else {
            head.as_str()
        };
        let start = Instant::now();
        let done = work();
        let result = done.as_deref().unwrap_or("failed");
        self.console.say(format_args!("{rest}{result} ({:.1} s)", start.elapsed().as_secs_f64()));
        done.map(drop)
    }
}

/// Whether standard output is a person's terminal, where a line may be drawn over.
pub fn on_terminal() -> bool {
    io::stdout().is_terminal()
}
