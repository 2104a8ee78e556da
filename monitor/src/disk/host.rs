//! The machine's own files, seen from wherever the agent is.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2};
use rustix::io::Errno;

use crate::config::MonitorConfig;

/// What the filesystem knows is enough: no server is asked, nothing is mounted for it.
pub const STATX_FLAGS: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT).union(AtFlags::STATX_DONT_SYNC);
/// What is looked at.
pub const STATX_MASK: StatxFlags =
    StatxFlags::TYPE.union(StatxFlags::INO).union(StatxFlags::NLINK).union(StatxFlags::BLOCKS);

/// Where things are on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Where procfs is mounted.
    pub proc: PathBuf,
    /// The kubelet's directory, in the eyes of the machine's init.
    pub kubelet: PathBuf,
    /// What is configured for nodefs, likewise: where the kubelet's pods are there, it is the kubelet's directory.
    pub node: Option<PathBuf>,
    /// The pods' logs, likewise.
    pub pod_logs: PathBuf,
}

impl Roots {
    /// The kubelet's defaults.
    #[must_use]
    pub fn new(proc: PathBuf) -> Self {
        let (kubelet, pod_logs) = (PathBuf::from("/var/lib/kubelet"), PathBuf::from("/var/log/pods"));
        Self { proc, kubelet, node: None, pod_logs }
    }

    /// As configured.
    #[must_use]
    pub fn of(config: &MonitorConfig) -> Self {
        Self::new(config.proc_root.clone()).with_node(config.filesystems.node.clone())
    }

    /// The operator has named a path for nodefs, which may be the kubelet's directory.
    #[must_use]
    pub fn with_node(self, node: Option<PathBuf>) -> Self {
        Self { node, ..self }
    }
}

/// Opens what a path means to the machine's init, for an agent in a container has other mounts.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
    /// The same, open, for symbolic links that begin at the root.
    directory: Option<OwnedFd>,
}

impl Host {
    /// The file tree of the machine's init, or the agent's own where that cannot be seen.
    pub fn of_init(proc: &Path) -> Self {
        let init = proc.join("1/root");
        if init.join(".").exists() { Self::at(init) } else { Self::at(PathBuf::from("/")) }
    }

    /// The file tree below a directory.
    pub fn at(root: PathBuf) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &root, flags, Mode::empty()).ok();
        Self { root, directory }
    }

    /// Opens a file or directory only to look at it (`O_PATH`): no pipe or device is woken. A link at its end is not followed.
    ///
    /// # Errors
    /// Where there is none, or it cannot be reached.
    pub fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Some(directory) = &self.directory {
            match openat2(directory, below, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // Linux before 5.6, or a seccomp filter that does not know it.
                Err(Errno::NOSYS | Errno::PERM) => {}
                opened => return opened,
            }
        }
        openat(CWD, self.root.join(below), flags, Mode::empty())
    }

    /// The names in a directory, at most `most` of them, in no order.
    ///
    /// # Errors
    /// Where there is none, or it cannot be read.
    pub fn names(&self, path: &Path, most: usize) -> Result<Vec<String>, Errno> {
        let directory = readable(self.open(path)?)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
            if names.len() >= most {
                break;
            }
        }
        Ok(names)
    }
}

/// Opens a directory that was opened to be looked at, so that it can be read. Reading does not change when it was read last, which
/// would be a write to a disk that may be full.
///
/// # Errors
/// When it is no directory, or may not be read.
pub fn readable(directory: impl AsFd) -> Result<OwnedFd, Errno> {
    open_directory(directory, c".")
}

/// Opens a directory in a directory, for reading; a link is not followed.
///
/// # Errors
/// When there is none, or it may not be read.
pub fn open_directory(above: impl AsFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(&above, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may ask for that, and CAP_FOWNER.
        Err(Errno::PERM) => openat(above, name, flags, Mode::empty()),
        opened => opened,
    }
}

/// Opens a directory as `open_directory` does, unless something is mounted there (`EXDEV`): that may be a filesystem that does not
/// answer, and it is not touched.
///
/// # Errors
/// When there is none, or it may not be read; `ENOSYS` where the kernel cannot tell (before Linux 5.6, or forbidden).
pub fn open_unmounted(above: impl AsFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(&above, name, flags | OFlags::NOATIME, Mode::empty(), ResolveFlags::NO_XDEV) {
        Err(Errno::PERM) => match openat2(above, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            // A seccomp filter that does not know the call.
            Err(Errno::PERM) => Err(Errno::NOSYS),
            opened => opened,
        },
        opened => opened,
    }
}

/// Whether something is mounted over a name in a directory, without touching it; nothing where the kernel cannot tell.
pub fn is_mounted(directory: impl AsFd, name: &str) -> Option<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(directory, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
        Err(Errno::XDEV) => Some(true),
        Err(Errno::NOSYS | Errno::PERM) => None,
        Ok(_) | Err(_) => Some(false),
    }
}

/// What is known of an open file itself.
///
/// # Errors
/// When the kernel refuses.
pub fn status(file: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | STATX_FLAGS, STATX_MASK)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn links_from_the_root_stay_in_the_hosts_tree() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("data/kubelet/pods")).unwrap();
        std::fs::create_dir_all(root.path().join("var/lib")).unwrap();
        std::os::unix::fs::symlink("/data/kubelet", root.path().join("var/lib/kubelet")).unwrap();
        let host = Host::at(root.path().to_owned());
        if host.names(Path::new("/var/lib/kubelet/pods"), 10) == Err(Errno::NOENT) {
            writeln!(std::io::stderr(), "SKIPPED: needs openat2 (Linux 5.6)").unwrap();
            return;
        }
        assert_eq!(host.names(Path::new("/data"), 10).unwrap(), ["kubelet"]);
        // At the end of a path it is no directory.
        assert!(host.names(Path::new("/var/lib/kubelet"), 10).is_err());
        assert!(matches!(host.open(Path::new("/nothing")), Err(Errno::NOENT)));
    }

    #[test]
    fn names_are_limited() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        let host = Host::at(root.path().to_owned());
        assert_eq!(host.names(Path::new("/"), 2).unwrap().len(), 2);
        assert_eq!(host.names(Path::new("/"), 10).unwrap().len(), 3);
    }

    #[test]
    fn inits_tree_or_the_own_one_is_there() {
        assert!(Host::of_init(Path::new("/proc")).open(Path::new("/proc")).is_ok());
        assert!(Host::of_init(Path::new("/nonexistent")).open(Path::new("/proc")).is_ok());
    }
}
