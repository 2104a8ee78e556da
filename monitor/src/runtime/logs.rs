//! The logs of containers. The runtime writes them, and its client must remove them.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::units::Bytes;

/// The kubelet's directory of logs.
const ROOT: &str = "/var/log/pods";
/// The root directory of the machine, as runtimes see it.
const MACHINE: &str = "/proc/1/root";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Root {
    /// The path of the directory in answers of the runtime.
    name: PathBuf,
    /// The root directory that the path is relative to.
    tree: PathBuf,
}

impl Root {
    /// Returns the machine's directory, or the agent's own if the machine's is not visible. A container has other mounts than the
    /// machine.
    pub(super) fn of_machine() -> Self {
        let is_seen = Path::new(MACHINE).join(".").exists();
        Self { name: PathBuf::from(ROOT), tree: PathBuf::from(if is_seen { MACHINE } else { "/" }) }
    }

    #[cfg(test)]
    pub(super) fn at(name: &Path) -> Self {
        Self { name: name.to_owned(), tree: PathBuf::from("/") }
    }

    /// Opens the directory; symbolic links in its path are relative to the machine's root.
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        let tree = rustix::fs::openat(CWD, &self.tree, DIRECTORY, Mode::empty())?;
        let below = self.name.strip_prefix("/").unwrap_or(&self.name);
        // openat2(2) exists since Linux 5.6.
        rustix::fs::openat2(tree, below, DIRECTORY, Mode::empty(), ResolveFlags::IN_ROOT)
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Estimates the bytes of a log and its rotated files; 0 if the log is not below `root`.
pub(super) fn size(root: &Root, log: &Path) -> Bytes {
    let mut bytes = 0;
    let _unreadable = each_file(root, log, |directory, name| {
        if let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        {
            // The blocks have 512 bytes on any filesystem (`man 3 stat`).
            bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
        Ok(())
    });
    Bytes(bytes)
}

/// Removes the log of a removed container and its rotated files. The runtime supplies the path, so a path that is not below `root`, or
/// leads through a symbolic link, is refused.
///
/// # Errors
/// When the path is refused, or a system call fails.
pub(super) fn remove(root: &Root, log: &Path) -> std::io::Result<()> {
    if below(&root.name, log).is_none() {
        return Err(std::io::Error::other(format!("it is not below {}", root.name.display())));
    }
    each_file(root, log, |directory, name| match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
        Err(errno) => Err(errno),
    })?;
    remove_empty(root, log);
    Ok(())
}

/// Removes the log of a removed container, as [`remove`]. A log that stays is only noted: the container is gone.
pub(super) fn remove_or_note(root: &Root, log: &Path) {
    if let Err(error) = remove(root, log) {
        tracing::debug!(%error, log = %log.display(), "the log of a removed container cannot be removed");
    }
}

/// Calls `each` for the files of `…/0.log`: `0.log`, `0.log.20260101-000000`, `0.log.20260101-000000.gz`.
fn each_file(
    root: &Root,
    log: &Path,
    mut each: impl FnMut(&OwnedFd, &OsStr) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let Some((parent, name)) = below(&root.name, log) else { return Ok(()) };
    let directory = open_below(root, parent)?;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let found = entry.file_name().to_bytes();
        let rest = found.strip_prefix(name.as_bytes());
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b".")) {
            each(&directory, OsStr::from_bytes(found))?;
        }
    }
    Ok(())
}

/// Returns the directory of a log, relative to `root`, and its name.
fn below<'p>(root: &Path, log: &'p Path) -> Option<(&'p Path, &'p OsStr)> {
    let inside = log.strip_prefix(root).ok()?;
    let is_plain = inside.components().all(|component| matches!(component, Component::Normal(_)));
    // A file directly in the root is not the log of a container.
    let parent = inside.parent().filter(|parent| is_plain && !parent.as_os_str().is_empty())?;
    Some((parent, inside.file_name()?))
}

fn open_below(root: &Root, directory: &Path) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root.open()?, directory, DIRECTORY, Mode::empty(), resolve)
}

/// Removes the directories of the container and of the pod, if they are empty: rmdir(2) removes no others.
fn remove_empty(root: &Root, log: &Path) {
    let Some((mut directory, _)) = below(&root.name, log) else { return };
    while let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) {
        let opened =
            if parent.as_os_str().is_empty() { open_below(root, Path::new(".")) } else { open_below(root, parent) };
        let removed = opened.and_then(|opened| rustix::fs::unlinkat(&opened, name, AtFlags::REMOVEDIR));
        if removed.is_err() {
            break;
        }
        directory = parent;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_log_is_removed_with_rotated_files_and_empty_directories() {
        let root = tempfile::tempdir().unwrap();
        let logs = Root::at(root.path());
        let pod = root.path().join("ns_pod_uid");
        fs::create_dir_all(pod.join("app")).unwrap();
        for name in ["0.log", "0.log.20260101-000000", "0.log.20260101-000000.gz", "10.log", "0.logs"] {
            fs::write(pod.join("app").join(name), [b'x'; 5000]).unwrap();
        }
        let log = pod.join("app/0.log");
        assert!(size(&logs, &log) >= Bytes(3 * 5000));
        remove(&logs, &log).unwrap();
        let mut left: Vec<_> = fs::read_dir(pod.join("app")).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0.logs", "10.log"]);
        fs::remove_file(pod.join("app/0.logs")).unwrap();
        remove(&logs, &pod.join("app/10.log")).unwrap();
        assert!(!pod.exists() && root.path().exists(), "empty directories are removed, the root stays");
        assert!(remove(&logs, &log).is_err(), "a missing log is an error");
    }

    #[test]
    fn links_are_relative_to_the_machines_root() {
        let tree = tempfile::tempdir().unwrap();
        let pod = tree.path().join("data/pods/ns_pod_uid/app");
        fs::create_dir_all(&pod).unwrap();
        fs::create_dir_all(tree.path().join("var/log")).unwrap();
        fs::write(pod.join("0.log"), "x").unwrap();
        std::os::unix::fs::symlink("/data/pods", tree.path().join("var/log/pods")).unwrap();
        let logs = Root { name: PathBuf::from(ROOT), tree: tree.path().to_owned() };
        remove(&logs, Path::new("/var/log/pods/ns_pod_uid/app/0.log")).unwrap();
        assert!(!tree.path().join("data/pods/ns_pod_uid").exists() && tree.path().join("data/pods").exists());
    }

    #[test]
    fn paths_outside_the_root_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let logs = Root::at(root.path());
        let outside = tempfile::tempdir().unwrap();
        let target = outside.path().join("0.log");
        fs::write(&target, "mine").unwrap();
        fs::write(root.path().join("0.log"), "not of a container").unwrap();
        fs::create_dir(root.path().join("pod")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("pod/link")).unwrap();
        for log in [
            target.clone(),
            root.path().join("0.log"),
            root.path().join("pod/../0.log"),
            root.path().join("pod").join("../..").join(outside.path().file_name().unwrap()).join("0.log"),
        ] {
            let refused = remove(&logs, &log).unwrap_err();
            assert!(refused.to_string().contains("is not below"), "{refused}");
            assert_eq!(size(&logs, &log), Bytes::ZERO, "{}", log.display());
        }
        assert!(remove(&logs, &root.path().join("pod/link/0.log")).is_err(), "no symbolic link is followed");
        assert!(target.exists() && root.path().join("0.log").exists());
    }
}
