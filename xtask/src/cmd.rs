//! Runs other programs, so that an error names the command that failed.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::console::Console;

/// Returns the command as a user would type it.
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

/// Runs the command with this terminal. Fails if the command exits with an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs the command and returns its standard output. If the command exits with an error, the error contains its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !output.status.success() {
        let story = String::from_utf8_lossy(&output.stderr);
        let story = if story.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { story };
        bail!("`{}` failed: {}\n{}", shown(command), output.status, story.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns cargo for a release build. Its programs are static, so that one file runs on every distribution. Cargo builds procedural macros
/// apart when the target is named; they cannot be static.
pub fn cargo_for_release(arch: Arch) -> Command {
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = cargo();
    command
        .env("CARGO_BUILD_TARGET", arch.target())
        .env("RUSTFLAGS", format!("{flags} -C target-feature=+crt-static").trim_start());
    if let Some(commit) = commit() {
        command.env("MONITOR_COMMIT", commit);
    }
    command
}

/// Returns the last commit that changed the agent's sources. A later one does not change the program, so the build is not repeated.
pub fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args([
        "log",
        "-1",
        "--format=%h",
        "--abbrev=12",
        "--",
        ":/monitor",
        ":/monitor-ebpf",
        ":/Cargo.toml",
        ":/Cargo.lock",
    ]);
    let commit = git.output().ok().filter(|git| git.status.success())?.stdout;
    Some(String::from_utf8(commit).ok()?.trim().to_owned()).filter(|commit| !commit.is_empty())
}

/// Returns the cargo that started this program, without the variables that describe the package of xtask. Build scripts of other
/// packages (ring's) read those variables, and cargo would compile half of the dependencies again after each `cargo build` by
/// hand.
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

/// Makes `cargo_for_tests` lint while it compiles, from now on.
pub fn lint_tests() {
    IS_LINTING.store(true, Ordering::Relaxed);
}

/// Returns cargo for tests, and for benches in the profile of tests. While linting, clippy's driver replaces rustc for the crates
/// of this workspace. Each crate is then compiled once; `cargo clippy` and `cargo test` would compile it twice, and check every
/// dependency besides.
pub fn cargo_for_tests() -> Command {
    let mut command = cargo();
    if IS_LINTING.load(Ordering::Relaxed) {
        command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    }
    command
}

/// Numbered steps. Each prints one line: `[3/9] kernel 6.12 … downloaded (3.1 s)`.
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

    /// Runs one step, which returns its result as text.
    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Result<String>) -> Result<()> {
        self.done += 1;
        let head = format!("[{}/{}] {name} … ", self.done, self.total);
        // Beside other work the line is printed only when it is complete.
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
