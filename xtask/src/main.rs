//! The developer's commands of the project: `cargo xtask --help`.

mod advisories;
mod api_server;
mod arch;
mod background;
mod bench;
mod bpf;
mod build;
mod cmd;
mod console;
mod contract;
mod dist;
mod files;
mod fuzz;
mod image;
mod libraries;
mod lines;
mod manifests;
mod outcome;
mod paths;
mod results;
mod run;
mod setup;
mod test;
mod vm;
mod worlds;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::paths::Workspace;

/// Every chore of the node pressure monitor. Each command first sets up what it needs and is missing.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find, and as root on Debian install, the tools that the other commands need.
    Setup(setup::Options),
    /// Compile the eBPF programs and say where the object file is.
    BuildEbpf(build::EbpfOptions),
    /// Build the agent and the program that runs inside the test VM (release).
    Build(build::Options),
    /// Build the agent and run it on this machine with config/monitor.yaml.
    Run(run::Options),
    /// Pack the agent into an OCI image, without network or container engine.
    Image(image::Options),
    /// Make everything that a release consists of: archives, packages, image, chart, bill of materials, checksums.
    Dist(dist::Options),
    /// Check what is under config/ against the published schemas and the code.
    Manifests(manifests::Options),
    /// Boot a virtual machine with the agent inside and run scenarios in it.
    Vm(vm::Options),
    /// Run the contract tests against a real API server of each version of Kubernetes at hand.
    Contract(contract::Options),
    /// Look for crates with a known vulnerability.
    Advisories(advisories::Options),
    /// Measure the decision and other promised figures, and compare with the promises.
    Bench(bench::Options),
    /// Search for a text or a document that breaks a claim of a parser or of the decision.
    Fuzz(fuzz::Options),
    /// Run simulated nodes, and judge every kill in them by the invariants.
    Worlds(worlds::Options),
    /// Count the lines of Rust, and show what is long, large or circular.
    Lines(lines::Options),
    /// The quick part of `test`: format, lints, unit and property tests.
    Check(test::QuickOptions),
    /// Everything that must be green: format, lints, unit and integration tests, VM scenarios.
    Test(test::Options),
}

fn main() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    let workspace = Workspace::locate()?;
    match command {
        Command::Setup(options) => setup::run(&options, &workspace),
        Command::BuildEbpf(options) => build::run_ebpf(&options, &workspace),
        Command::Build(options) => build::run(&options, &workspace),
        Command::Run(options) => run::run(&options, &workspace),
        Command::Image(options) => image::run(&options, &workspace),
        Command::Dist(options) => dist::run(&options, &workspace),
        Command::Manifests(options) => manifests::run(&options, &workspace),
        Command::Vm(options) => vm::run(&options, &workspace),
        Command::Contract(options) => contract::run(&options, &workspace),
        Command::Advisories(options) => advisories::run(&options, &workspace),
        Command::Bench(options) => bench::run(&options, &workspace),
        Command::Fuzz(options) => fuzz::run(&options, &workspace),
        Command::Worlds(options) => worlds::run(&options),
        Command::Lines(options) => lines::run(&options, &workspace),
        Command::Check(options) => test::run_quick(&options, &workspace),
        Command::Test(options) => test::run(&options, &workspace),
    }
}
