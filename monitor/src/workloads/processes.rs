//! The processes of a cgroup and of all cgroups below it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use crate::config::Pid;

/// Cgroups nested deeper than this are nobody's work, but could be somebody's attack on our stack.
pub(super) const DEPTH_LIMIT: usize = 64;

/// Appends the processes of the open cgroup `directory` and below to `pids`.
///
/// # Errors
/// When the cgroup itself cannot be read; one below that is removed meanwhile is no error.
pub fn collect(directory: impl AsFd, pids: &mut Vec<Pid>) -> std::io::Result<()> {
    collect_to_depth(directory.as_fd(), pids, DEPTH_LIMIT)
}

fn collect_to_depth(directory: BorrowedFd<'_>, pids: &mut Vec<Pid>, depth: usize) -> std::io::Result<()> {
    let file = rustix::fs::openat(directory, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let text = std::io::read_to_string(std::fs::File::from(file))?;
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

pub(super) fn children(directory: impl AsFd) -> std::io::Result<Vec<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let is_child = |name: &std::ffi::CStr| name != c"." && name != c"..";
    let entries = Dir::read_from(&directory)?.flatten();
    Ok(entries
        .filter(|entry| entry.file_type() == FileType::Directory && is_child(entry.file_name()))
        .filter_map(|entry| rustix::fs::openat(&directory, entry.file_name(), flags, Mode::empty()).ok())
        .collect())
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
