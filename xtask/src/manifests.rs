//! `cargo xtask manifests`: compares the files under `config/` with the published schemas and the code.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::cmd;
use crate::paths::Workspace;
use crate::setup;

/// Checks every manifest under config/ against the published schemas and against the code (roles against what the agent asks for, flags,
/// configuration, ports, paths, mounts, metrics), or prints what would be applied. Needs no kubectl.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Check them all.
    #[arg(long)]
    check: bool,
    /// Write the generated files of the Helm chart: after a change below config/kubernetes, or of the version.
    #[arg(long, conflicts_with = "check")]
    chart: bool,
    /// Print what `kubectl apply -k DIRECTORY` would apply.
    #[arg(value_name = "DIRECTORY", conflicts_with_all = ["check", "chart"], required_unless_present_any = ["check", "chart"])]
    directory: Option<PathBuf>,
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    setup::ensure(workspace, setup::BUILD)?;
    let mut command = cmd::cargo();
    command.args(["run", "--quiet", "--package", "node-pressure-manifests", "--bin", "manifests", "--"]);
    match &options.directory {
        Some(directory) => command.arg(directory),
        None if options.chart => command.arg("--chart"),
        None => command.arg("--check"),
    };
    let status = command.status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
