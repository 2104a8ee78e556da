//! Reads the number of OOM kills that the kernel has counted in a cgroup.

use std::os::fd::{AsFd, BorrowedFd};

use crate::node::CgroupVersion;
use crate::node::pinned_file::keyed_value;

use super::cgroup_processes::{Monitors, for_each_below, read};

/// Returns the OOM kills of the cgroup, and with `below` also those of the cgroups below it; `None` if the cgroup has no counter.
/// The kernel counts only the processes of each cgroup itself: v1 in `memory.oom_control` (Linux 4.13), v2 in
/// `memory.events.local` (5.2).
pub(super) fn of(directory: impl AsFd, version: CgroupVersion, below: bool) -> Option<u64> {
    let name = match version {
        CgroupVersion::V1 => "memory.oom_control",
        CgroupVersion::V2 => "memory.events.local",
    };
    let own = |directory: BorrowedFd<'_>| keyed_value(&read(directory, name).ok()?, "oom_kill");
    let mut kills = own(directory.as_fd())?;
    if below {
        // Listing fails if the cgroup is removed meanwhile.
        let _unlisted = for_each_below(directory.as_fd(), Monitors::Included, |child| kills += own(child).unwrap_or(0));
    }
    Some(kills)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_below_are_included_on_request() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("container")).unwrap();
        std::fs::write(root.path().join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
            .unwrap();
        std::fs::write(root.path().join("container/memory.oom_control"), "oom_kill 5\n").unwrap();
        std::fs::write(root.path().join("memory.events.local"), "low 0\noom 9\noom_kill 3\noom_group_kill 0\n")
            .unwrap();
        let directory = std::fs::File::open(root.path()).unwrap();
        assert_eq!(of(&directory, CgroupVersion::V1, true), Some(7));
        assert_eq!(of(&directory, CgroupVersion::V1, false), Some(2));
        assert_eq!(of(&directory, CgroupVersion::V2, true), Some(3));
        std::fs::write(root.path().join("memory.oom_control"), "under_oom 0\n").unwrap();
        assert_eq!(of(&directory, CgroupVersion::V1, true), None, "before Linux 4.13");
    }
}
