//! Paths of the workspace, of its target directory, and of the files that are kept there between runs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::arch::Arch;

/// The workspace that this xtask belongs to.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
}

impl Workspace {
    pub fn locate() -> Result<Self> {
        // Cargo sets the variable at run time too. The value of the compilation is used when a user starts the binary by hand.
        let manifest_dir =
            env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir
            .parent()
            .with_context(|| format!("{} has no parent directory", manifest_dir.display()))?
            .to_owned();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => env::current_dir().context("current directory")?.join(dir),
            None => root.join("target"),
        };
        Ok(Self { root, target })
    }

    /// Returns the directory of downloads for the VM: kernels, modules, earlyoom. The files survive until `cargo clean`.
    pub fn cache(&self) -> PathBuf {
        self.target.join("xtask")
    }

    /// Returns the directory of the VM's disks, initramfs and serial logs.
    pub fn vm(&self) -> PathBuf {
        self.target.join("vm")
    }

    /// Returns the path of a binary that `cargo xtask build` builds.
    pub fn release(&self, name: &str) -> PathBuf {
        self.release_for(Arch::host(), name)
    }

    /// Returns the path of a binary for this architecture.
    pub fn release_for(&self, arch: Arch, name: &str) -> PathBuf {
        self.target.join(arch.target()).join("release").join(name)
    }
}

/// Looks for a program in `PATH`, then in Debian's directories of administration programs, which an ordinary user's `PATH` lacks.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::split_paths(&path).collect();
    dirs.extend(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    dirs.into_iter().map(|dir| dir.join(name)).find(|file| is_executable(file))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Returns whether this process runs as root. The owner of `/proc/self` is the effective user.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    Path::new("/proc/self").metadata().is_ok_and(|meta| meta.uid() == 0)
}
