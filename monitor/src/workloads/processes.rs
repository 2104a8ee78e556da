//! The processes of a cgroup and of all cgroups below it.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, RawDir};

use crate::units::Pid;

/// Cgroups nested deeper than this are nobody's work, but could be somebody's attack on our stack.
pub(super) const DEPTH_LIMIT: usize = 64;

/// Most files of a cgroup are shorter.
const AT_ONCE: usize = 1024;
/// Most directories of a cgroup are.
const LISTED_AT_ONCE: usize = 8192;

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
    let file = rustix::fs::openat(directory, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    file.and_then(|file| rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut [0_u8; 1])))
        .is_ok_and(|read| read > 0)
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

/// The text of a file that the kernel makes up as it is read: such a file has no size to ask for, and a read that leaves room has come to
/// its end, as long as what is read at once is less than a page (`seq_read_iter`).
pub(crate) fn read(directory: BorrowedFd<'_>, name: impl rustix::path::Arg) -> std::io::Result<String> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut text, mut piece) = (Vec::new(), [0; AT_ONCE]);
    loop {
        let length = rustix::io::retry_on_intr(|| rustix::io::read(&file, &mut piece))?;
        text.extend_from_slice(piece.get(..length).unwrap_or_default());
        if length < AT_ONCE {
            return String::from_utf8(text).map_err(std::io::Error::other);
        }
    }
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
    // Opened anew: where somebody has read to is of the open directory.
    let listed = open(&directory, c".")?;
    let is_child = |name: &CStr| name != c"." && name != c"..";
    let (mut names, mut buffer) = (Vec::new(), [MaybeUninit::uninit(); LISTED_AT_ONCE]);
    let mut entries = RawDir::new(&listed, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if entry.file_type() == FileType::Directory && is_child(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
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
