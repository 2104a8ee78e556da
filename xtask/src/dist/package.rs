//! One package: an archive, a package for Debian or RPM, the chart; and the program that makes their parts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};

use super::content::{self, Content, RED_HAT};
use super::{NAME, debian};
use crate::arch::Arch;
use crate::bpf;
use crate::cmd;
use crate::files::Files;
use crate::image::layout::filter;
use crate::image::tar::Archive;
use crate::paths::Workspace;

/// The package in which `packaging` is.
const PACKAGE: &str = "node-pressure-packaging";

/// Version, time and commit of all files.
#[derive(Debug)]
pub struct Release {
    pub version: String,
    /// Seconds since 1970.
    pub epoch: u64,
    pub commit: String,
}

/// The program for what needs the agent's command line or a library, already compiled.
#[derive(Debug)]
pub struct Packaging {
    program: PathBuf,
    /// Directory for intermediate files.
    pub scratch: PathBuf,
}

/// Whether this process has compiled all tests, and the programs that integration tests run with them.
static HAS_COMPILED_TESTS: AtomicBool = AtomicBool::new(false);

/// Notes that all tests are compiled. To build the program alone would compile its dependencies again, with other features.
pub fn note_compiled_tests() {
    HAS_COMPILED_TESTS.store(true, Ordering::Relaxed);
}

impl Packaging {
    pub fn build(workspace: &Workspace) -> Result<Self> {
        if !HAS_COMPILED_TESTS.load(Ordering::Relaxed) {
            cmd::run(cmd::cargo().args(["build", "--package", PACKAGE, "--bin", "packaging"]))?;
        }
        let scratch = workspace.target.join("packaging");
        fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
        Ok(Self { program: workspace.target.join("debug/packaging"), scratch })
    }

    /// Writes the manual pages and completions.
    pub fn pages(&self, directory: &Path) -> Result<()> {
        if directory.exists() {
            fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
        }
        cmd::output(Command::new(&self.program).arg("pages").arg(directory)).map(drop)
    }

    /// Writes the bill of materials.
    pub fn materials(&self, workspace: &Workspace, release: &Release, arch: Arch, output: &Path) -> Result<PathBuf> {
        let path = output.join(format!("{NAME}-{}-{arch}.cdx.json", release.version));
        let mut command = Command::new(&self.program);
        command.args(["materials", "--target", &arch.target(), "--epoch", &release.epoch.to_string()]);
        command.arg("--workspace").arg(&workspace.root).arg("--output").arg(&path);
        if let Some(version) = libc_version(arch) {
            command.arg("--libc").arg(version);
        }
        for tool in tools() {
            command.arg("--tool").arg(tool);
        }
        cmd::output(&mut command)?;
        Ok(path)
    }
}

/// Returns the compilers and linkers of the agent and of its eBPF programs, each as it prints its version.
fn tools() -> Vec<String> {
    let rustc = cmd::output(Command::new("rustc").arg("--version")).ok();
    let bpf = bpf::find().ok();
    let linker = bpf.as_ref().and_then(|bpf| cmd::output(Command::new(&bpf.linker).arg("--version")).ok());
    let all = rustc.into_iter().chain(bpf.map(|bpf| bpf.version)).chain(linker);
    all.map(|text| text.trim().to_owned()).collect()
}

/// Returns the version of the C library that is linked statically, by Debian's packages.
fn libc_version(arch: Arch) -> Option<String> {
    let package = if arch.is_host() { "libc6-dev".to_owned() } else { format!("libc6-dev-{arch}-cross") };
    let version = cmd::output(Command::new("dpkg-query").args(["-W", "-f=${Version}", &package])).ok()?;
    Some(version.trim().to_owned()).filter(|version| !version.is_empty())
}

/// A package of one version for one architecture.
#[derive(Debug)]
pub struct Package<'a> {
    pub release: &'a Release,
    pub packaging: &'a Packaging,
    pub content: &'a Content,
    pub arch: Arch,
    /// Whether it is only for a test: its size does not matter.
    pub is_quick: bool,
}

impl Package<'_> {
    /// Writes the archive of the static binary with its documents.
    pub fn archive(&self, output: &Path) -> Result<PathBuf> {
        let name = format!("{NAME}-{}-linux-{}", self.release.version, self.arch);
        let path = output.join(format!("{name}.tar.gz"));
        write_archive(&self.content.archive(&name), &path)?;
        Ok(path)
    }

    /// Writes the package for Debian.
    pub fn debian(&self, workspace: &Workspace, output: &Path) -> Result<PathBuf> {
        debian::write(self, workspace, output)
    }

    /// Writes the package for RPM.
    pub fn rpm(&self, workspace: &Workspace, output: &Path) -> Result<PathBuf> {
        let Self { release, packaging, content, arch, .. } = self;
        let root = packaging.scratch.join("rpm");
        content::stage(&content.files(RED_HAT)?, &root)?;
        let path = output.join(format!("{NAME}-{}-1.{}.rpm", release.version, arch.machine()));
        let mut command = Command::new(&packaging.program);
        command.args(["rpm", "--version", &release.version, "--arch", arch.machine()]);
        command.args(["--epoch", &release.epoch.to_string()]).arg("--root").arg(&root);
        command.arg("--scripts").arg(workspace.root.join("config/packages/rpm")).arg("--output").arg(&path);
        cmd::output(&mut command)?;
        Ok(path)
    }
}

/// Writes the chart of a directory.
pub fn chart(directory: &Path, output: &Path) -> Result<()> {
    let mut files = Files::default();
    files.tree(&format!("/{NAME}"), directory)?;
    write_archive(&files, output)
}

/// Writes an archive, compressed by gzip. Equal files give equal bytes.
fn write_archive(files: &Files, output: &Path) -> Result<()> {
    let write = || {
        let mut archive = Archive::new(Vec::new());
        for directory in files.directories(&[]) {
            archive.directory(&directory, 0o755)?;
        }
        for (path, permissions, content) in files.iter() {
            archive.file(path, permissions, content)?;
        }
        archive.finish()
    };
    let bytes = write().with_context(|| format!("packing {}", output.display()))?;
    let packed = filter("gzip", &["-n", "-9", "-c"], &bytes)?;
    fs::write(output, packed).with_context(|| format!("writing {}", output.display()))
}
