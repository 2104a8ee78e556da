//! Running other programs so that a failure names the command that failed.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Runs the command and returns its standard output; an unsuccessful exit is an error with its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !output.status.success() {
        let story = String::from_utf8_lossy(&output.stderr);
        let story = if story.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { story };
        bail!("`{}` failed: {}\n{}", shown(command), output.status, story.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The cargo that started this program, without the variables that describe this program's own package. Build scripts of other packages
/// read those (ring's does), and half of the dependencies would be compiled again after each `cargo build` by hand.
pub fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
        command.env_remove(name);
    }
    command
}

/// Whether `cargo_for_tests` lints.
static IS_LINTING: AtomicBool = AtomicBool::new(false);

/// From now on `cargo_for_tests` lints while it compiles.
pub fn lint_tests() {
    IS_LINTING.store(true, Ordering::Relaxed);
}

/// Cargo for tests and for benches in the profile of tests. Clippy's driver may stand in for rustc in this workspace's crates: each crate
/// is then read once, where `cargo clippy` and `cargo test` read it twice and check every dependency besides.
pub fn cargo_for_tests() -> Command {
    let mut command = cargo();
    if IS_LINTING.load(Ordering::Relaxed) {
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
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
