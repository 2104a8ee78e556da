//! `cargo xtask build-ebpf` and `cargo xtask build`.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow};

use crate::arch::Arch;
use crate::bpf;
use crate::cmd;
use crate::paths::Workspace;
use crate::setup::{self, cross};

/// The agent, and the init process of the test VM.
pub const BINARIES: [&str; 2] = ["node-pressure-monitor", "vm-guest"];

/// Compiles the eBPF programs and says where the object file is.
#[derive(Debug, clap::Args)]
pub struct EbpfOptions {}

/// Builds the agent and the program that runs inside the test VM.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Architecture; default: this machine's.
    #[arg(long, value_enum, default_value_t = Arch::host())]
    arch: Arch,
}

pub fn run_ebpf(_: &EbpfOptions, workspace: &Workspace) -> Result<ExitCode> {
    setup::ensure(workspace, setup::BUILD)?;
    let toolchain = bpf::find().map_err(|missing| anyhow!("{missing}"))?;
    println!("compiling with {toolchain}");
    let object =
        bpf::build(&toolchain, &workspace.root, &workspace.target.join("bpf")).map_err(|error| anyhow!(error))?;
    println!("built {}", object.display());
    Ok(ExitCode::SUCCESS)
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    setup::ensure(workspace, &setup::to_build(options.arch))?;
    release_for(workspace, options.arch, &BINARIES)?;
    println!("built {}", workspace.release_for(options.arch, "node-pressure-monitor").display());
    Ok(ExitCode::SUCCESS)
}

/// The binaries and benches that this process has built.
static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Builds binaries in release mode, once. The agent's build script compiles the eBPF programs into it.
pub fn release(binaries: &[&str]) -> Result<()> {
    release_with_benches(binaries, &[])
}

/// Builds binaries in release mode for this architecture.
pub fn release_for(workspace: &Workspace, arch: Arch, binaries: &[&str]) -> Result<()> {
    if arch.is_host() {
        return release(binaries);
    }
    let mut build = cmd::cargo_for_release(arch);
    cross::configure(&mut build, &workspace.cache(), arch)?;
    build.args(["build", "--release"]).args(binaries.iter().flat_map(|binary| ["--bin", binary]));
    cmd::run(&mut build)
}

/// Builds the agent in the profile `quick`, which compiles in less than half of the time of `release`.
pub fn quick() -> Result<()> {
    let mut build = cmd::cargo();
    if let Some(commit) = cmd::commit() {
        build.env("MONITOR_COMMIT", commit);
    }
    build.args(["build", "--profile", "quick", "--bin", "node-pressure-monitor"]);
    cmd::run(&mut build)
}

/// Builds binaries and benches in one call, which compiles their common dependencies once.
pub fn release_with_benches(binaries: &[&str], benches: &[&str]) -> Result<()> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if binaries.iter().chain(benches).all(|wanted| built.iter().any(|done| done == wanted)) {
        return Ok(());
    }
    let mut build = cmd::cargo_for_release(Arch::host());
    build.args(["build", "--release"]);
    build.args(binaries.iter().flat_map(|binary| ["--bin", binary]));
    build.args(benches.iter().flat_map(|bench| ["--bench", bench]));
    cmd::run(&mut build)?;
    built.extend(binaries.iter().chain(benches).map(|&done| done.to_owned()));
    Ok(())
}
