//! `cargo xtask worlds`: the simulated node drives the decider that ships, and one checker per invariant judges every kill.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::cmd;

/// The worlds of `cargo xtask check`, and of `cargo xtask test --long`.
pub const FEW: u64 = 20_000;
pub const MANY: u64 = 1_000_000;

/// Builds the simulated node, and runs it on all CPUs. A world that breaks an invariant is told in a few lines, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask worlds --count 1000000\n  cargo xtask worlds --only promise\n  cargo xtask worlds --first 131 --count 1\n  cargo xtask worlds --mutants"
)]
pub struct Options {
    /// The number of worlds. With --mutants, the most for each mutant, 5,000 if it is not given.
    #[arg(long)]
    count: Option<u64>,
    /// The seed of the series of worlds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first world of the series.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this invariant, by its number or name.
    #[arg(long)]
    only: Option<String>,
    /// Print each failing world as the file that makes it a test too.
    #[arg(long)]
    save: bool,
    /// Put wrong rules in the place of right ones, one by one, and print after how many worlds each is found.
    #[arg(long)]
    mutants: bool,
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let Options { count, seed, first, only, save, mutants } = options;
    let count = count.unwrap_or(if *mutants { MUTANT_WORLDS } else { FEW });
    let mut command = program(*mutants);
    command.args(["--count", &count.to_string(), "--seed", &seed.to_string(), "--first", &first.to_string()]);
    command.args(only.iter().flat_map(|only| ["--only", only]));
    command.args(save.then_some("--save"));
    command.args(mutants.then_some("--mutants"));
    let status = command.status().with_context(|| format!("running `{}`", cmd::shown(&command)))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const MUTANT_WORLDS: u64 = 5_000;

/// Runs so many worlds.
pub fn check(count: u64) -> Result<()> {
    let options = Options { count: Some(count), seed: 1, first: 0, only: None, save: false, mutants: false };
    ensure!(run(&options)? == ExitCode::SUCCESS, "a world breaks an invariant, or too few put one to the test");
    Ok(())
}

/// Shows that the worlds find every wrong rule.
pub fn check_mutants() -> Result<()> {
    let options = Options { count: None, seed: 1, first: 0, only: None, save: false, mutants: true };
    ensure!(run(&options)? == ExitCode::SUCCESS, "a mutant is not found");
    Ok(())
}

/// Returns cargo that builds and runs the program. The mutants are compiled apart: no other build has them.
fn program(mutants: bool) -> Command {
    let mut command = cmd::cargo();
    command.args(["run", "--quiet", "--profile", "worlds", "--package", "node-pressure-worlds"]);
    if mutants {
        command.args(["--features", "mutants"]);
    }
    command.arg("--");
    command
}
