//! How many process ids a workload has taken: one for each thread.

use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::node::pinned_file::{Buffer, PinnedFile};
use crate::node::{CgroupVersion, Hierarchy};

use super::processes::{DEPTH_LIMIT, children};

/// What the pids controller counts, of everything below too (v1: Linux 4.3, v2: 4.5).
const CURRENT: &str = "pids.current";

/// Counts the tasks of the open cgroup `directory`, called `name` below the hierarchy's root, and of all below it: the controller's count
/// where there is one, else one by one. Forks nothing and needs no process id. Nothing when the cgroup is gone.
#[must_use]
pub fn count(directory: BorrowedFd<'_>, name: &str, hierarchy: &Hierarchy, buffer: &mut Buffer) -> Option<u64> {
    let of_controller = match hierarchy.version {
        CgroupVersion::V2 => PinnedFile::open_at(directory, Path::new(name), CURRENT),
        // v1 has a hierarchy for each controller; who makes cgroups makes them at the same path in all.
        CgroupVersion::V1 => {
            let controllers = hierarchy.memory.parent().unwrap_or(&hierarchy.memory);
            PinnedFile::open(controllers.join("pids").join(name).join(CURRENT))
        }
    };
    let counted = of_controller.and_then(|file| Ok(file.read(buffer)?.trim().parse().ok()));
    match counted {
        Ok(Some(count)) => Some(count),
        Ok(None) | Err(_) => one_by_one(directory, hierarchy.version, DEPTH_LIMIT),
    }
}

fn one_by_one(directory: BorrowedFd<'_>, version: CgroupVersion, depth: usize) -> Option<u64> {
    let name = match version {
        CgroupVersion::V1 => "tasks",
        CgroupVersion::V2 => "cgroup.threads",
    };
    // The threads of a threaded cgroup are not listed by those above it; its processes are.
    let own = lines(directory, name).or_else(|| lines(directory, "cgroup.procs"))?;
    let below = depth.checked_sub(1).map_or(0, |depth| {
        let children = children(directory).unwrap_or_default();
        children.iter().filter_map(|child| one_by_one(child.as_fd(), version, depth)).sum::<u64>()
    });
    Some(own + below)
}

fn lines(directory: BorrowedFd<'_>, name: &str) -> Option<u64> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut count = 0;
    for line in BufReader::new(std::fs::File::from(file)).lines() {
        line.ok()?;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn counted(version: CgroupVersion, memory: &str, files: &[(&str, &str)]) -> Option<u64> {
        let root = tree(files);
        let hierarchy = Hierarchy { version, memory: root.path().join(memory), freezer: None, hybrid: false };
        let directory = std::fs::File::open(hierarchy.memory.join("a")).unwrap();
        count(directory.as_fd(), "a", &hierarchy, &mut Buffer::new())
    }

    #[test]
    fn the_controllers_count_or_one_by_one() {
        use CgroupVersion::{V1, V2};
        for (name, version, memory, files, expected) in [
            ("v2", V2, "", &[("a/pids.current", "41\n"), ("a/cgroup.threads", "1\n")][..], Some(41)),
            (
                "v2 without the controller",
                V2,
                "",
                &[("a/cgroup.threads", "1\n2\n"), ("a/b/cgroup.threads", "3\n")],
                Some(3),
            ),
            ("v2, threaded", V2, "", &[("a/cgroup.procs", "1\n2\n")], Some(2)),
            ("v1", V1, "memory", &[("memory/a/tasks", "1\n"), ("pids/a/pids.current", "7\n")], Some(7)),
            ("v1 without", V1, "memory", &[("memory/a/tasks", "1\n9\n"), ("memory/a/b/tasks", "3\n")], Some(3)),
            ("nothing to be read", V2, "", &[("a/cgroup.kill", "")], None),
        ] {
            assert_eq!(counted(version, memory, files), expected, "{name}");
        }
    }
}
