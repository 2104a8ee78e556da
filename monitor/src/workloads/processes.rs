//! The processes of a cgroup and of all cgroups below it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use crate::config::Pid;

/// Appends the processes of the open cgroup `directory` and below to `pids`.
///
/// # Errors
/// When the cgroup itself cannot be read; one below that is removed meanwhile is no error.
pub fn collect(directory: impl AsFd, pids: &mut Vec<Pid>) -> std::io::Result<()> {
    let file = rustix::fs::openat(&directory, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let text = std::io::read_to_string(std::fs::File::from(file))?;
    // 0 stands for a process of another pid namespace, which cannot be addressed from here.
    pids.extend(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).map(Pid));
    for child in children(&directory)? {
        // A child that goes away takes its processes with it.
        let _gone = collect(child, pids);
    }
    Ok(())
}

/// Whether a process lives in the cgroup or below; a cgroup that is gone holds none.
#[must_use]
pub fn any(directory: impl AsFd) -> bool {
    let mut pids = Vec::new();
    collect(directory, &mut pids).is_ok() && !pids.is_empty()
}

fn children(directory: impl AsFd) -> std::io::Result<Vec<OwnedFd>> {
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
        assert!(any(&directory));
    }

    #[test]
    fn a_cgroup_that_is_gone_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let directory = std::fs::File::open(root.path()).unwrap();
        assert!(!any(&directory));
    }
}
