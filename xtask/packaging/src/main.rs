//! The program behind `cargo xtask dist`: makes what needs the agent's command line or a library.

mod materials;
mod pages;
mod redhat;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Makes parts of the packages.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Write the manual pages of the agent's commands, and the completions for bash, zsh and fish
    Pages {
        /// Directory to write to
        directory: PathBuf,
    },
    /// Write a bill of materials (CycloneDX 1.5) of the crates that are linked into the agent
    Materials(materials::Options),
    /// Write a package for RPM from a directory with its files
    Rpm(redhat::Options),
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
        Part::Pages { directory } => pages::write(directory),
        Part::Materials(options) => materials::write(options),
        Part::Rpm(options) => redhat::write(options),
    }
}
