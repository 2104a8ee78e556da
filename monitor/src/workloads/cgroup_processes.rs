//! The processes of a cgroup and of all cgroups below it.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, RawDir};

use crate::units::Pid;

/// Cgroups nested deeper than this are skipped. No runtime nests so deep, but an attacker could, to exhaust the agent's stack.
pub(super) const DEPTH_LIMIT: usize = 64;

/// The size of the buffer for a file. Most files of a cgroup are shorter.
const FILE_BYTES: usize = 1024;
/// The size of the buffer for a directory. Most directories of a cgroup are shorter.
const LISTING_BYTES: usize = 8192;

/// Appends the processes of the open cgroup `directory` and of the cgroups below it to `pids`. Fails when `directory` itself cannot be
/// read; a cgroup below that is removed meanwhile is skipped.
pub fn collect(directory: impl AsFd, pids: &mut Vec<Pid>) -> std::io::Result<()> {
    append(directory.as_fd(), pids)?;
    // The error of a cgroup below is ignored, because a cgroup is removed only after its processes have exited.
    for_each_below(directory.as_fd(), |child| drop(append(child, pids)))?;
    Ok(())
}

fn append(directory: BorrowedFd<'_>, pids: &mut Vec<Pid>) -> std::io::Result<()> {
    // The kernel prints 0 for a process of another pid namespace. The agent cannot address that process.
    let text = read(directory, "cgroup.procs")?;
    pids.extend(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).map(Pid));
    Ok(())
}

/// Returns at most `at_most` processes of a cgroup, each with its `oom_score_adj`.
pub fn oom_scores(directory: impl AsFd, proc_root: &Path, at_most: usize) -> Vec<(Pid, i16)> {
    let mut pids = Vec::new();
    if collect(directory, &mut pids).is_err() {
        return Vec::new();
    }
    pids.into_iter().take(at_most).filter_map(|pid| Some((pid, oom_score(proc_root, pid)?))).collect()
}

/// Returns the `oom_score_adj` of a process; nothing if the process has exited.
#[must_use]
pub fn oom_score(proc_root: &Path, pid: Pid) -> Option<i16> {
    let text = read(rustix::fs::CWD, proc_root.join(format!("{}/oom_score_adj", pid.0))).ok()?;
    text.trim().parse().ok()
}

pub(super) fn has_processes(directory: BorrowedFd<'_>) -> bool {
    let file = rustix::fs::openat(directory, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    file.and_then(|file| rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut [0_u8; 1])))
        .is_ok_and(|read| read > 0)
}

/// Returns whether a process is in this cgroup or below it. `children` are the names of the cgroups in it.
pub(super) fn is_inhabited(directory: BorrowedFd<'_>, children: &[CString]) -> bool {
    has_processes(directory) || any_of(directory, children, DEPTH_LIMIT, &mut has_processes)
}

/// Calls `visit` for each cgroup below `directory`, a parent before its children. Fails if `directory` cannot be listed. Skips a
/// cgroup that is removed meanwhile.
pub fn for_each_below(directory: BorrowedFd<'_>, mut visit: impl FnMut(BorrowedFd<'_>)) -> rustix::io::Result<()> {
    let mut visit = |child: BorrowedFd<'_>| {
        visit(child);
        false
    };
    any_of(directory, &names(directory)?, DEPTH_LIMIT, &mut visit);
    Ok(())
}

/// Returns whether `holds` is true for one of the cgroups `children` of `directory` or for a cgroup below them. Stops at the
/// first.
fn any_of(
    directory: BorrowedFd<'_>,
    children: &[CString],
    depth: usize,
    holds: &mut impl FnMut(BorrowedFd<'_>) -> bool,
) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    children
        .iter()
        .filter_map(|name| open(directory, name).ok())
        .any(|child| holds(child.as_fd()) || any_of(child.as_fd(), &names(&child).unwrap_or_default(), depth, holds))
}

/// Reads a file that the kernel generates on read. Such a file has no size. A read that does not fill its buffer has reached the end, as
/// long as the buffer is smaller than a page (`seq_read_iter`).
pub(crate) fn read(directory: BorrowedFd<'_>, name: impl rustix::path::Arg) -> std::io::Result<String> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut text, mut piece) = (Vec::new(), [0; FILE_BYTES]);
    loop {
        let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut piece))?;
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
        if length < FILE_BYTES {
            return String::from_utf8(text).map_err(std::io::Error::other);
        }
    }
}

/// Opens the cgroups in a cgroup. Omits a cgroup that is removed meanwhile.
pub(crate) fn children(directory: impl AsFd) -> rustix::io::Result<Vec<OwnedFd>> {
    Ok(names(&directory)?.iter().filter_map(|name| open(&directory, name).ok()).collect())
}

pub(super) fn names(directory: impl AsFd) -> rustix::io::Result<Vec<CString>> {
    // Listing is the most expensive call here, and most cgroups contain only files. The number of links is 2 plus the number of
    // directories; filesystems that do not count directories report 1.
    if rustix::fs::fstat(&directory)?.st_nlink == 2 {
        return Ok(Vec::new());
    }
    // The read position belongs to the open directory, so the directory is opened again.
    let listed = open(&directory, c".")?;
    let is_child = |name: &CStr| name != c"." && name != c"..";
    let (mut names, mut buffer) = (Vec::new(), [MaybeUninit::uninit(); LISTING_BYTES]);
    let mut entries = RawDir::new(&listed, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if entry.file_type() == FileType::Directory && is_child(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

pub(super) fn open(directory: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_below_are_collected() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("container")).unwrap();
        std::fs::write(root.path().join("cgroup.procs"), "0\n12\n").unwrap();
        std::fs::write(root.path().join("container/cgroup.procs"), "7\n").unwrap();
        let directory = std::fs::File::open(root.path()).unwrap();
        let mut pids = Vec::new();
        collect(&directory, &mut pids).unwrap();
        assert_eq!(pids, [Pid(12), Pid(7)]);
    }

    #[test]
    fn a_cgroup_that_cannot_be_read_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(root.path()).unwrap();
        assert!(collect(&directory, &mut Vec::new()).is_err());
    }
}
