//! `cargo xtask build-ebpf` and `cargo xtask build`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::arch::Arch;
use crate::bpf;
use crate::cmd;
use crate::paths::Workspace;
use crate::setup::{self, cross};

/// The agent, the init process of the test VM, and the simulated node.
pub const BINARIES: [&str; 3] = ["node-pressure-monitor", "vm-guest", "worlds"];

/// The largest agent that is packed, in bytes: every node of a cluster downloads it.
const LARGEST_PACKED: u64 = 15_000_000;

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
    cmd::run(cargo_for(workspace, arch)?.args(release_arguments(binaries, &[])))
}

/// Returns cargo for static programs of this architecture.
fn cargo_for(workspace: &Workspace, arch: Arch) -> Result<Command> {
    let mut cargo = cmd::cargo_for_release(arch);
    if !arch.is_host() {
        cross::configure(&mut cargo, &workspace.cache(), arch)?;
    }
    Ok(cargo)
}

/// Builds the agent as packages and images have it, in the profile `packed`, and returns its path. Installs what that needs.
pub fn packed(workspace: &Workspace, arch: Arch) -> Result<PathBuf> {
    let name = BINARIES[0];
    setup::ensure(workspace, &setup::to_build(arch))?;
    println!("building the agent for {arch}, for size: some minutes");
    cmd::run(cargo_for(workspace, arch)?.args(["build", "--profile", "packed", "--bin", name]))?;
    let path = workspace.target.join(arch.target()).join("packed").join(name);
    if let Err(error) = check_size(&path) {
        println!(
            "{error}; on amd64 it is smallest with Rust's own linker (the default of a toolchain of rustup, without RUSTFLAGS that name a \
             linker) and glibc 2.36 or later"
        );
    }
    Ok(path)
}

/// Fails if the packed agent is larger than promised.
pub fn check_size(packed: &Path) -> Result<()> {
    let bytes = fs::metadata(packed).with_context(|| format!("reading {}", packed.display()))?.len();
    ensure!(bytes <= LARGEST_PACKED, "{} has {bytes} bytes, and {LARGEST_PACKED} are promised", packed.display());
    Ok(())
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
    cmd::run(cmd::cargo_for_release(Arch::host()).args(release_arguments(binaries, benches)))?;
    built.extend(binaries.iter().chain(benches).map(|&done| done.to_owned()));
    Ok(())
}

/// Returns the arguments of cargo that select these binaries and benches. `--examples` selects no target, because the workspace has no examples.
/// It makes cargo unite the features of dev-dependencies, as a bench does: otherwise cargo compiles the agent again after each change between
/// builds with a bench and without one.
fn release_arguments(binaries: &[&str], benches: &[&str]) -> Vec<String> {
    let named =
        |option: &str, names: &[&str]| names.iter().flat_map(|&name| [option, name].map(str::to_owned)).collect();
    let fixed = ["build", "--workspace", "--release", "--examples"].map(str::to_owned).to_vec();
    [fixed, named("--bin", binaries), named("--bench", benches)].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::bench;

    /// Returns the crates that cargo would compile, each with its features and its profile.
    fn units(binaries: &[&str], benches: &[&str]) -> BTreeSet<String> {
        let mut graph = cmd::cargo_for_release(Arch::host());
        graph.args(release_arguments(binaries, benches)).args(["--unit-graph", "-Z", "unstable-options"]);
        let graph = cmd::output(graph.env("RUSTC_BOOTSTRAP", "1")).unwrap();
        let units = graph.split("{\"pkg_id\":").skip(1);
        units.map(|unit| unit.split("\"dependencies\":").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_suite_uses_what_a_build_has_compiled() {
        let build = units(&BINARIES, &[]);
        let suite = units(&BINARIES, &bench::RELEASED_OF_TEST);
        assert!(build.iter().any(|unit| unit.contains("node_pressure_monitor")), "{build:?}");
        assert_eq!(build.difference(&suite).collect::<Vec<_>>(), Vec::<&String>::new());
        let without_vm = units(&BINARIES[..1], &bench::RELEASED_OF_TEST);
        assert_eq!(without_vm.difference(&suite).collect::<Vec<_>>(), Vec::<&String>::new());
    }
}
