//! `cargo xtask image`: the agent, one static file, as an OCI image made from nothing, without a network or a container engine.

pub mod layout;
pub mod tar;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use self::layout::Description;
use self::tar::Archive;
use crate::arch::Arch;
use crate::build;
use crate::files::Files;
use crate::paths::Workspace;

/// Path of the agent in the image.
pub const PROGRAM: &str = "/usr/bin/node-pressure-monitor";
const VERSION: &str = env!("CARGO_PKG_VERSION");
const LABELS: &str = concat!(
    r#"{"org.opencontainers.image.licenses":"(MIT OR Apache-2.0) AND LGPL-2.1-or-later","org.opencontainers.image.title":"node-pressure-monitor","#,
    r#""org.opencontainers.image.version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);
/// Mount points. They must exist in the image, because the root directory may be read-only.
const DIRECTORIES: [&str; 9] = [
    "/dev",
    "/etc/node-pressure-monitor",
    "/proc",
    "/run/containerd",
    "/run/crio",
    "/run/node-pressure-monitor",
    "/sys",
    "/tmp",
    "/var/lib/node-pressure-monitor",
];

/// Builds the agent (profile `packed`) and packs it into an OCI image: one file, no network, equal bytes for equal input.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ctr -n k8s.io images import FILE\n  skopeo copy oci-archive:FILE docker://registry.example/node-pressure-monitor:0.1.0\n  podman load -i FILE"
)]
pub struct Options {
    /// Name and tag by which the image is imported.
    #[arg(long, value_name = "NAME:TAG", default_value = DEFAULT_REFERENCE)]
    reference: String,
    /// Path of the archive [default: below the target directory].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Architectures, by default this machine's; with two the archive has both under one name.
    #[arg(long, value_enum, value_name = "ARCH", value_delimiter = ',', default_values_t = [Arch::host()])]
    arch: Vec<Arch>,
    /// Pack this agent instead of building one.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
}

/// The name that config/kubernetes uses.
pub const DEFAULT_REFERENCE: &str = concat!("localhost/node-pressure-monitor:", env!("CARGO_PKG_VERSION"));

#[derive(Debug)]
pub struct Written {
    /// Size of the archive.
    pub packed_bytes: usize,
    /// Size of the layers.
    pub layer_bytes: usize,
    /// Digest of the image's manifest.
    pub digest: String,
    /// The files in the layer, with their sizes.
    pub files: Vec<(String, usize)>,
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let agents =
        options.arch.iter().map(|arch| Ok((*arch, agent(options, workspace, *arch)?))).collect::<Result<Vec<_>>>()?;
    let output = options.output.clone().unwrap_or_else(|| default_output(workspace, &options.arch));
    let written = write(workspace, &agents, &options.reference, &output)?;
    for (path, size) in &written.files {
        println!("{:>9.1} KiB  {path}", kib(*size));
    }
    println!("{:>9.1} KiB  in all, {:.1} KiB packed", kib(written.layer_bytes), kib(written.packed_bytes));
    println!("image  {} {}", options.reference, written.digest);
    println!("built  {}", output.display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the agent to pack, and builds it if none was given.
fn agent(options: &Options, workspace: &Workspace, arch: Arch) -> Result<PathBuf> {
    if let Some(agent) = &options.agent {
        if options.arch.len() > 1 {
            bail!("--agent is one file, for one architecture: leave --agent out, or name one --arch");
        }
        return Ok(agent.clone());
    }
    build::packed(workspace, arch)
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit behind the point")]
fn kib(bytes: usize) -> f64 {
    bytes as f64 / 1024.0
}

pub fn default_output(workspace: &Workspace, archs: &[Arch]) -> PathBuf {
    let archs: Vec<String> = archs.iter().map(ToString::to_string).collect();
    workspace.target.join("image").join(format!("node-pressure-monitor-{VERSION}-{}.tar", archs.join("-")))
}

/// Packs agents that are already built, one for each architecture.
pub fn write(workspace: &Workspace, agents: &[(Arch, PathBuf)], reference: &str, output: &Path) -> Result<Written> {
    let parent = output.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    let (mut packed, mut layers) = (Vec::new(), Vec::new());
    for (arch, agent) in agents {
        let files = files(workspace, (agent, *arch), parent)?;
        layers.push((*arch, layer(&files).context("writing the layer")?));
        packed.extend(files.iter().map(|(path, _, content)| (format!("{path} ({arch})"), content.len())));
    }
    let (entrypoint, command) = (&[PROGRAM][..], &["run"][..]);
    let description = Description { reference, path: "/usr/bin", entrypoint, command, labels: LABELS };
    let (archive, digest) = layout::archive(&description, &layers)?;
    fs::write(output, &archive).with_context(|| format!("writing {}", output.display()))?;
    let layer_bytes = layers.iter().map(|(_, layer)| layer.len()).sum();
    Ok(Written { packed_bytes: archive.len(), layer_bytes, digest, files: packed })
}

fn files(workspace: &Workspace, agent: (&Path, Arch), scratch: &Path) -> Result<Files> {
    let mut files = Files::default();
    files.own_program(PROGRAM, agent, scratch)?;
    for (from, to) in [
        ("config/monitor.yaml", "/etc/node-pressure-monitor/monitor.yaml"),
        ("LICENSE-MIT", "/usr/share/doc/node-pressure-monitor/LICENSE-MIT"),
        ("LICENSE-APACHE", "/usr/share/doc/node-pressure-monitor/LICENSE-APACHE"),
    ] {
        files.file(to, &workspace.root.join(from))?;
    }
    Ok(files)
}

fn layer(files: &Files) -> std::io::Result<Vec<u8>> {
    let mut archive = Archive::new(Vec::new());
    for directory in files.directories(&DIRECTORIES) {
        archive.directory(&directory, if directory == "/tmp" { 0o1777 } else { 0o755 })?;
    }
    for (path, permissions, content) in files.iter() {
        archive.file(path, permissions, content)?;
    }
    archive.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_comes_before_its_content_in_the_layer() {
        let mut files = Files::default();
        files.put(PROGRAM, 0o755, vec![1]);
        files.put("/lib64/ld.so", 0o755, vec![2]);
        let directories: Vec<String> = files.directories(&DIRECTORIES).into_iter().collect();
        let position = |name: &str| directories.iter().position(|directory| directory == name);
        assert!(position("/usr").unwrap() < position("/usr/bin").unwrap());
        assert!(position("/var/lib").unwrap() < position("/var/lib/node-pressure-monitor").unwrap());
        assert!(position("/lib64").is_some() && position("").is_none());
        assert_eq!(layer(&files).unwrap(), layer(&files).unwrap());
    }
}
