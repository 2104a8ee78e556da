//! The processes of a cgroup and of all cgroups below it.

use std::ffi::{CStr, CString};
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use crate::config::Pid;

/// Cgroups nested deeper than this are nobody's work, but could be somebody's attack on our stack.
pub(super) const DEPTH_LIMIT: usize = 64;

/// Most files of a cgroup are shorter.
const USUAL_LENGTH: usize = 512;

/// Appends the processes of the open cgroup `directory` and below to `pids`.
///
/// # Errors
/// When the cgroup itself cannot be read; one below that is removed meanwhile is no error.
pub fn collect(directory: impl AsFd, pids: &mut Vec<Pid>) -> std::io::Result<()> {
    collect_to_depth(directory.as_fd(), pids, DEPTH_LIMIT)
}

fn collect_to_depth(directory: BorrowedFd<'_>, pids: &mut Vec<Pid>, depth: usize) -> std::io::Result<()> {
    let text = read(directory, "cgroup.procs")?;
    // 0 stands for a process of another pid namespace, which cannot be addressed from here.
    pids.extend(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).map(Pid));
    if let Some(depth) = depth.checked_sub(1) {
        for child in children(directory)? {
            // A child that goes away takes its processes with it.
            let _gone = collect_to_depth(child.as_fd(), pids, depth);
        }
    }
    Ok(())
}

/// Some process lives in this very cgroup.
pub(super) fn has_processes(directory: BorrowedFd<'_>) -> bool {
    read(directory, "cgroup.procs").is_ok_and(|text| !text.is_empty())
}

/// Some process lives in this cgroup or below; `inside` are the names of the cgroups in it.
pub(super) fn is_inhabited(directory: BorrowedFd<'_>, inside: &[CString]) -> bool {
    is_inhabited_to_depth(directory, inside, DEPTH_LIMIT)
}

fn is_inhabited_to_depth(directory: BorrowedFd<'_>, inside: &[CString], depth: usize) -> bool {
    let below = |depth| {
        inside.iter().filter_map(|name| open(directory, name).ok()).any(|child| {
            let inside = names(&child).unwrap_or_default();
            is_inhabited_to_depth(child.as_fd(), &inside, depth)
        })
    };
    has_processes(directory) || depth.checked_sub(1).is_some_and(below)
}

/// The text of a cgroup's file.
pub(super) fn read(directory: BorrowedFd<'_>, name: &str) -> std::io::Result<String> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::with_capacity(USUAL_LENGTH);
    // A `File` would ask for its size first, which these files do not have.
    std::fs::File::from(file).take(u64::MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The cgroups in a cgroup.
pub(super) fn children(directory: impl AsFd) -> rustix::io::Result<Vec<OwnedFd>> {
    Ok(names(&directory)?.iter().filter_map(|name| open(&directory, name).ok()).collect())
}

/// Their names.
pub(super) fn names(directory: impl AsFd) -> rustix::io::Result<Vec<CString>> {
    // Listing files takes longer than anything else, and most cgroups hold nothing else. The number of links tells: each directory inside
    // is one, beside the name and the `.`; filesystems that do not count them have one link.
    if rustix::fs::fstat(&directory)?.st_nlink == 2 {
        return Ok(Vec::new());
    }
    let is_child = |name: &CStr| name != c"." && name != c"..";
    let entries = Dir::read_from(&directory)?.flatten();
    Ok(entries
        .filter(|entry| entry.file_type() == FileType::Directory && is_child(entry.file_name()))
        .map(|entry| entry.file_name().to_owned())
        .collect())
}

/// Opens the directory `name` in another one.
pub(super) fn open(directory: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_below_belong_to_it() {
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
