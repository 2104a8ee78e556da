//! Opens files of the machine, also for an agent that runs in a container.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2};
use rustix::io::Errno;

use crate::config::MonitorConfig;

/// The flags accept cached attributes, so that no server is asked, and nothing is automounted.
pub const STATX_FLAGS: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT).union(AtFlags::STATX_DONT_SYNC);
pub const STATX_MASK: StatxFlags =
    StatxFlags::TYPE.union(StatxFlags::INO).union(StatxFlags::NLINK).union(StatxFlags::BLOCKS);

/// The flags for opening directories for reading. Links are not followed.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The measured directories on this machine. Paths other than `proc` are resolved in the mounts of the machine's init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    pub proc: PathBuf,
    pub kubelet: PathBuf,
    /// The configured nodefs path. It is the kubelet's directory if it contains a directory of pods.
    pub node: Option<PathBuf>,
    pub pod_logs: PathBuf,
}

impl Roots {
    pub fn new(proc: PathBuf) -> Self {
        let (kubelet, pod_logs) = (PathBuf::from("/var/lib/kubelet"), PathBuf::from("/var/log/pods"));
        Self { proc, kubelet, node: None, pod_logs }
    }

    pub fn of(config: &MonitorConfig) -> Self {
        Self { node: config.filesystems.node.clone(), ..Self::new(config.proc_root.clone()) }
    }
}

/// Opens paths in the mounts of the machine's init, because an agent in a container has other mounts.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
    /// The open directory, so that absolute symbolic links stay inside it.
    directory: Option<OwnedFd>,
}

impl Host {
    /// Returns the file tree of the machine's init, or the agent's own tree if that is inaccessible.
    pub fn of_init(proc: &Path) -> Self {
        let init = proc.join("1/root");
        if init.join(".").exists() { Self::at(init) } else { Self::at(PathBuf::from("/")) }
    }

    pub fn at(root: PathBuf) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, &root, flags, Mode::empty()).ok();
        Self { root, directory }
    }

    /// Opens a file or directory with `O_PATH`, which has no effect on pipes and devices. Does not follow a link at the end of
    /// the path.
    pub fn open(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let below = path.strip_prefix("/").unwrap_or(path);
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Some(directory) = &self.directory {
            match openat2(directory, below, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // The kernel is older than 5.6, or a seccomp filter does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => {}
                opened => return opened,
            }
        }
        openat(CWD, self.root.join(below), flags, Mode::empty())
    }

    /// Returns at most `most` names of a directory, unordered.
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

/// Opens an `O_PATH` directory for reading. Reading does not update its access time, because that would write to a disk that may
/// be full.
pub fn readable(directory: impl AsFd) -> Result<OwnedFd, Errno> {
    open_directory(directory, c".")
}

/// Opens a subdirectory for reading, without following a link.
pub fn open_directory(above: impl AsFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    match openat(&above, name, DIRECTORY | OFlags::NOATIME, Mode::empty()) {
        // Only the owner and CAP_FOWNER may use `O_NOATIME`.
        Err(Errno::PERM) => openat(above, name, DIRECTORY, Mode::empty()),
        opened => opened,
    }
}

/// As [`open_directory`], but fails with `EXDEV` if a filesystem is mounted there. That filesystem may hang, so it is not
/// accessed. Fails with `ENOSYS` if the kernel cannot check this (Linux before 5.6, or forbidden).
pub fn open_unmounted(above: impl AsFd, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    match openat2(&above, name, DIRECTORY | OFlags::NOATIME, Mode::empty(), ResolveFlags::NO_XDEV) {
        Err(Errno::PERM) => match openat2(above, name, DIRECTORY, Mode::empty(), ResolveFlags::NO_XDEV) {
            // A seccomp filter does not know the call.
            Err(Errno::PERM) => Err(Errno::NOSYS),
            opened => opened,
        },
        opened => opened,
    }
}

/// Returns whether a filesystem is mounted over a name in a directory, without accessing it; `None` if the kernel cannot check
/// this.
pub fn is_mounted(directory: impl AsFd, name: &str) -> Option<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(directory, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
        Err(Errno::XDEV) => Some(true),
        Err(Errno::NOSYS | Errno::PERM) => None,
        Ok(_) | Err(_) => Some(false),
    }
}

pub fn status(file: impl AsFd) -> Result<Statx, Errno> {
    rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH | STATX_FLAGS, STATX_MASK)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn absolute_links_stay_in_the_hosts_tree() {
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
        // A link at the end of a path is not followed.
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
    fn paths_resolve_in_inits_tree_or_the_own_one() {
        assert!(Host::of_init(Path::new("/proc")).open(Path::new("/proc")).is_ok());
        assert!(Host::of_init(Path::new("/nonexistent")).open(Path::new("/proc")).is_ok());
    }
}
