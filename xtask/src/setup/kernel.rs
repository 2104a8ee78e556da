//! Debian's cloud kernels for the VM. They are downloaded and unpacked into the cache, and never installed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::apt::Apt;
use crate::arch::Arch;

/// A kernel series that the VM is tested with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// The newest series. It has cgroup v2 only, because Debian leaves `CONFIG_MEMCG_V1` unset.
    V6_12,
    /// The series of Debian 12, with cgroup v1 and v2.
    V6_1,
    /// The oldest series of Debian with BTF, that of Debian 11.
    V5_10,
    /// The newest kernel in Debian unstable.
    Unstable,
}

impl Series {
    /// The series that the suite boots.
    pub const IN_SUITE: [Self; 2] = [Self::V6_12, Self::V6_1];
    pub const ALL: [Self; 4] = [Self::V6_12, Self::V6_1, Self::V5_10, Self::Unstable];

    fn metapackage(self, arch: Arch) -> String {
        match self {
            Self::V6_12 => format!("linux-image-6.12-cloud-{arch}"),
            Self::V6_1 | Self::V5_10 | Self::Unstable => format!("linux-image-cloud-{arch}"),
        }
    }

    /// Returns how the names of the series' kernels begin.
    fn prefix(self) -> String {
        match self {
            Self::Unstable => "linux-image-".to_owned(),
            _ => format!("linux-image-{self}."),
        }
    }

    /// Returns the package source, if it is not this machine's.
    const fn source(self) -> Option<&'static str> {
        match self {
            Self::V6_12 | Self::V6_1 => None,
            Self::V5_10 => Some("deb http://deb.debian.org/debian bullseye main"),
            Self::Unstable => Some("deb http://deb.debian.org/debian sid main"),
        }
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V6_12 => "6.12",
            Self::V6_1 => "6.1",
            Self::V5_10 => "5.10",
            Self::Unstable => "unstable",
        })
    }
}

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    pub image: PathBuf,
    /// The release, as `uname -r` prints it.
    pub release: String,
    /// `lib/modules/RELEASE`, if the kernel came with modules.
    pub modules: Option<PathBuf>,
}

impl Kernel {
    /// Returns the kernel of an image at any path. Its modules are expected where distributions put them: `boot/vmlinuz-R` and
    /// `lib/modules/R`.
    pub fn from_image(image: &Path) -> Result<Self> {
        image.metadata().with_context(|| format!("kernel image {}", image.display()))?;
        let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let release = name.split_once('-').map_or(name.as_str(), |(_, release)| release).to_owned();
        let absolute = fs::canonicalize(image).with_context(|| format!("kernel image {}", image.display()))?;
        let modules = absolute
            .parent()
            .and_then(Path::parent)
            .map(|root| root.join("lib/modules").join(&release))
            .filter(|modules| modules.is_dir());
        Ok(Self { image: absolute, release, modules })
    }
}

/// Returns the downloaded kernel of a series.
pub fn find(cache: &Path, series: Series, arch: Arch) -> Option<Kernel> {
    let directory = directory(cache, series, arch);
    let entries = |path: &str| fs::read_dir(directory.join(path)).into_iter().flatten().filter_map(Result::ok);
    let is_image = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"));
    if let Some(image) = entries("boot").map(|entry| entry.path()).find(is_image) {
        return Kernel::from_image(&image).ok();
    }
    entries("usr/lib/modules").find_map(|entry| {
        let (modules, release) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let image = modules.join("vmlinuz");
        image.is_file().then_some(Kernel { image, release, modules: Some(modules) })
    })
}

pub fn download(apt: &mut Apt, cache: &Path, series: Series, arch: Arch) -> Result<Kernel> {
    let mut other = (series.source().is_some() || !arch.is_host())
        .then(|| apt.elsewhere(cache, arch, series.source()))
        .transpose()?;
    let apt = other.as_mut().unwrap_or(apt);
    let package = apt.resolve(&series.metapackage(arch), &series.prefix())?;
    let dir = directory(cache, series, arch);
    // From 7.0 on Debian divides the package.
    let divided = ["linux-binary-", "linux-modules-"].map(|prefix| apt.resolve(&package, prefix).ok());
    let parts: Vec<&str> = divided.iter().flatten().map(String::as_str).collect();
    let whole = [package.as_str()];
    apt.unpack(if parts.is_empty() { &whole } else { &parts }, &dir)?;
    find(cache, series, arch).with_context(|| format!("{package} has no vmlinuz (unpacked to {})", dir.display()))
}

/// Returns the directory into which the packages are unpacked, which may not exist.
pub fn directory(cache: &Path, series: Series, arch: Arch) -> PathBuf {
    if arch.is_host() { cache.join(format!("kernel-{series}")) } else { cache.join(format!("kernel-{series}-{arch}")) }
}
