//! How many OOM kills the kernel has counted in a cgroup.

use std::os::fd::{AsFd, BorrowedFd};

use crate::node::CgroupVersion;
use crate::node::pinned_file::keyed_value;

use super::processes::{DEPTH_LIMIT, children, read};

/// Kills in the cgroup, and `below` it too; `None` when it does not say. Each cgroup tells of its own processes alone: v1 in
/// `memory.oom_control` (Linux 4.13), v2 in `memory.events.local` (5.2).
pub(super) fn of(directory: impl AsFd, version: CgroupVersion, below: bool) -> Option<u64> {
    let name = match version {
        CgroupVersion::V1 => "memory.oom_control",
        CgroupVersion::V2 => "memory.events.local",
    };
    let depth = if below { DEPTH_LIMIT } else { 0 };
    to_depth(directory.as_fd(), name, depth)
}

fn to_depth(directory: BorrowedFd<'_>, name: &str, depth: usize) -> Option<u64> {
    let text = read(directory, name).ok()?;
    let own = keyed_value(&text, "oom_kill")?;
    let Some(depth) = depth.checked_sub(1) else { return Some(own) };
    let below = children(directory).unwrap_or_default();
    Some(own + below.iter().filter_map(|child| to_depth(child.as_fd(), name, depth)).sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_below_belong_to_it_unless_others_do() {
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
