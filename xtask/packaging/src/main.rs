//! The program behind `cargo xtask dist`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{CommandFactory as _, Parser, Subcommand};

use node_pressure_monitor::commands::arguments::Arguments;

/// Makes parts of the packages.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Write the manual pages of the agent's commands
    Manual {
        /// Directory to write to
        directory: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(&Options::parse().part) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(part: &Part) -> Result<()> {
    match part {
        Part::Manual { directory } => {
            fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
            clap_mangen::generate_to(Arguments::command(), directory).context("writing the manual pages")
        }
    }
}
