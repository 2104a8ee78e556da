//! `cargo xtask dist`: everything that a release consists of, in one directory. The same commit gives the same bytes.

mod content;
mod debian;
pub mod package;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::arch::Arch;
use crate::build;
use crate::cmd::{self, Steps};
use crate::console::Console;
use crate::image;
use crate::paths::Workspace;
use crate::setup::DPKG_DEB;
use content::Content;
use package::{Packaging, Release};

/// Name of the package, of its files, and of the program.
pub const NAME: &str = "node-pressure-monitor";
const CHART: &str = "config/helm/node-pressure-monitor";
const SUMS: &str = "SHA256SUMS";

/// Makes everything that a release consists of: archives of the static binary, packages for Debian and RPM, the OCI image, the Helm chart,
/// a bill of materials for each architecture, and SHA256SUMS. The same commit gives the same bytes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask dist --arch amd64,arm64\n  cargo xtask dist --only deb\n\nThe version is that of Cargo.toml. The time in the files is that of the commit, or SOURCE_DATE_EPOCH."
)]
pub struct Options {
    /// Architectures, by default this machine's.
    #[arg(long, value_enum, value_name = "ARCH", value_delimiter = ',', default_values_t = [Arch::host()])]
    arch: Vec<Arch>,
    /// Make only these; the other files of the directory stay.
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',')]
    only: Vec<Kind>,
    /// Directory to write to [default: dist, below the target directory].
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Pack this agent instead of building one.
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Version of the packages in place of that of Cargo.toml, for tests of upgrades.
    #[arg(long, value_name = "VERSION", hide = true)]
    version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// Archive of the static binary with its documents.
    Tar,
    Deb,
    Rpm,
    Image,
    Chart,
    /// Bill of materials (CycloneDX).
    Sbom,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Tar, Self::Deb, Self::Rpm, Self::Image, Self::Chart, Self::Sbom];

    /// Whether there is one file for each architecture.
    fn is_of_arch(self) -> bool {
        matches!(self, Self::Tar | Self::Deb | Self::Rpm | Self::Sbom)
    }

    /// Whether the file contains the agent.
    fn has_agent(self) -> bool {
        matches!(self, Self::Tar | Self::Deb | Self::Rpm | Self::Image)
    }
}

pub fn run(options: &Options, workspace: &Workspace) -> Result<ExitCode> {
    let kinds: BTreeSet<Kind> =
        if options.only.is_empty() { Kind::ALL.into() } else { options.only.iter().copied().collect() };
    let output = options.output.clone().unwrap_or_else(|| workspace.target.join("dist"));
    let release = Release::of_commit(workspace, options.version.as_deref())?;
    if options.only.is_empty() && options.output.is_none() && output.exists() {
        // Files of another version must not get into SHA256SUMS.
        fs::remove_dir_all(&output).with_context(|| format!("removing {}", output.display()))?;
    }
    fs::create_dir_all(&output).with_context(|| format!("creating {}", output.display()))?;
    let mut agents = Vec::new();
    for arch in &options.arch {
        let agent = match &options.agent {
            _ if !kinds.iter().any(|kind| kind.has_agent()) => continue,
            Some(_) if options.arch.len() > 1 => {
                bail!("--agent is one file, for one architecture: leave --agent out, or name one --arch")
            }
            Some(agent) => agent.clone(),
            None => build::packed(workspace, *arch)?,
        };
        agents.push((*arch, agent));
    }
    let needs_packaging = kinds.iter().any(|kind| kind.is_of_arch());
    let packaging = needs_packaging.then(|| Packaging::build(workspace)).transpose()?;
    let archs = if agents.is_empty() { options.arch.as_slice() } else { &[] };
    let work = Work { workspace, release: &release, output: &output, packaging };
    let made = work.make(&kinds, &agents, archs)?;
    checksums(&output)?;
    println!();
    for path in &made {
        let bytes = fs::metadata(path).with_context(|| format!("reading {}", path.display()))?.len();
        println!("{:>9.1} KiB  {}", kib(bytes), path.file_name().unwrap_or_default().to_string_lossy());
    }
    for (arch, agent) in &agents {
        let stripped = output.join("stripped.tmp");
        let bytes =
            cmd::output(Command::new(arch.tool("strip")).arg("--strip-debug").arg("-o").arg(&stripped).arg(agent))
                .and_then(|_| Ok(fs::metadata(&stripped)?.len()));
        // The files are complete: a figure that cannot be shown is no error.
        let _ = fs::remove_file(&stripped);
        if let Ok(bytes) = bytes {
            println!("{:>9.1} KiB  the program itself, {arch}", kib(bytes));
        }
    }
    println!("commit {}, version {}; {}", release.commit, release.version, output.join(SUMS).display());
    Ok(ExitCode::SUCCESS)
}

/// The packages that one call makes, and their directory.
struct Work<'a> {
    workspace: &'a Workspace,
    release: &'a Release,
    output: &'a Path,
    packaging: Option<Packaging>,
}

impl Work<'_> {
    /// Makes the files, and returns their paths.
    fn make(&self, kinds: &BTreeSet<Kind>, agents: &[(Arch, PathBuf)], others: &[Arch]) -> Result<Vec<PathBuf>> {
        let console = Console::alone();
        let archs: Vec<Arch> = agents.iter().map(|(arch, _)| *arch).chain(others.iter().copied()).collect();
        let of_arch = kinds.iter().filter(|kind| kind.is_of_arch()).count();
        let mut steps = Steps::new(&console, of_arch * archs.len() + kinds.len() - of_arch);
        let mut made = Vec::new();
        let mut step = |name: &str, work: &dyn Fn() -> Result<PathBuf>| {
            steps.step(name, || {
                let path = work()?;
                let bytes = fs::metadata(&path).with_context(|| format!("reading {}", path.display()))?.len();
                made.push(path);
                Ok(format!("{:.1} KiB", kib(bytes)))
            })
        };
        if let Some(packaging) = &self.packaging {
            for (arch, agent) in agents {
                if kinds.iter().any(|kind| kind.is_of_arch() && kind.has_agent()) {
                    let content = Content::collect(self.workspace, packaging, *arch, agent)?;
                    let package = package::Package {
                        release: self.release,
                        packaging,
                        content: &content,
                        arch: *arch,
                        is_quick: false,
                    };
                    for kind in kinds {
                        match kind {
                            Kind::Tar => step(&format!("archive {arch}"), &|| package.archive(self.output))?,
                            Kind::Deb => step(&format!("deb {arch}"), &|| package.debian(self.workspace, self.output))?,
                            Kind::Rpm => step(&format!("rpm {arch}"), &|| package.rpm(self.workspace, self.output))?,
                            Kind::Sbom | Kind::Image | Kind::Chart => {}
                        }
                    }
                }
            }
            if kinds.contains(&Kind::Sbom) {
                for arch in &archs {
                    let write = || packaging.materials(self.workspace, self.release, *arch, self.output);
                    step(&format!("bill of materials {arch}"), &write)?;
                }
            }
        }
        if kinds.contains(&Kind::Image) {
            step("image", &|| {
                let path = self.output.join(format!("{NAME}-{}-image.tar", self.release.version));
                image::write(self.workspace, agents, image::DEFAULT_REFERENCE, &path)?;
                Ok(path)
            })?;
        }
        if kinds.contains(&Kind::Chart) {
            step("chart", &|| {
                let path = self.output.join(format!("{NAME}-chart-{}.tgz", self.release.version));
                package::chart(&self.workspace.root.join(CHART), &path)?;
                Ok(path)
            })?;
        }
        Ok(made)
    }
}

/// Writes the check sums of all files of the directory.
fn checksums(directory: &Path) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let files = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names: BTreeSet<String> =
        files.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name != SUMS).collect();
    let sums = cmd::output(Command::new("sha256sum").args(&names).current_dir(directory))?;
    let path = directory.join(SUMS);
    fs::write(&path, sums).with_context(|| format!("writing {}", path.display()))
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit behind the point")]
fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

impl Release {
    /// Returns the release of the present commit.
    fn of_commit(workspace: &Workspace, version: Option<&str>) -> Result<Self> {
        let git = |args: &[&str]| cmd::output(Command::new("git").current_dir(&workspace.root).args(args));
        let commit = git(&["rev-parse", "HEAD"]).unwrap_or_else(|_| "unknown".to_owned()).trim().to_owned();
        let epoch = match env::var("SOURCE_DATE_EPOCH") {
            Ok(given) => given,
            Err(_) => git(&["log", "-1", "--format=%ct"])
                .context("no commit has the time of the release: set SOURCE_DATE_EPOCH, in seconds since 1970")?,
        };
        let epoch =
            epoch.trim().parse().with_context(|| format!("SOURCE_DATE_EPOCH={epoch}: not a number of seconds"))?;
        if git(&["status", "--porcelain", "--untracked-files=no"]).is_ok_and(|changes| !changes.trim().is_empty()) {
            eprintln!(
                "warning: the working tree differs from commit {commit}: the packages cannot be reproduced from that commit"
            );
        }
        let version = version.unwrap_or(env!("CARGO_PKG_VERSION")).to_owned();
        Ok(Self { version, epoch, commit })
    }
}

/// Returns packages of two versions of this agent, the second one higher, for the guest of the VM: two for Debian, then two for RPM.
pub fn for_guest(workspace: &Workspace, arch: Arch, agent: &Path, scratch: &Path) -> Result<Vec<PathBuf>> {
    let packaging = Packaging::build(workspace)?;
    let content = Content::collect(workspace, &packaging, arch, agent)?;
    let versions = [env!("CARGO_PKG_VERSION").to_owned(), format!("{}+next", env!("CARGO_PKG_VERSION"))];
    let mut made = Vec::new();
    for version in versions {
        let release = Release::of_commit(workspace, Some(&version))?;
        let package =
            package::Package { release: &release, packaging: &packaging, content: &content, arch, is_quick: true };
        made.push(package.debian(workspace, scratch)?);
        made.push(package.rpm(workspace, scratch)?);
    }
    Ok(made)
}

/// Fails with the command to type if Debian's program for packages is missing or too old.
fn dpkg_deb() -> Result<PathBuf> {
    DPKG_DEB.find().context("dpkg-deb, which Debian's packages are made with, is not usable: on another system, add `--only tar,rpm,image,chart,sbom`, or install dpkg")
}
