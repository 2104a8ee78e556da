//! Counts the process ids that a workload uses. Each thread uses one.

use std::io::{BufRead as _, BufReader};
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::node::pinned_file::{Buffer, PinnedFile};
use crate::node::{CgroupVersion, Hierarchy};

use super::cgroup_processes::{Monitors, for_each_below};
use crate::units::kernel_text;

/// The count of the pids controller, which includes all cgroups below (v1: Linux 4.3, v2: 4.5).
const CURRENT: &str = "pids.current";

/// Counts the tasks of the open cgroup `directory`, whose path below the hierarchy's root is `name`, and of all cgroups below it.
/// Reads the count of the pids controller if there is one, else the lists of tasks. Returns `None` if the cgroup no longer
/// exists.
pub fn count(directory: BorrowedFd<'_>, name: &str, hierarchy: &Hierarchy, buffer: &mut Buffer) -> Option<u64> {
    let of_controller = match hierarchy.version {
        CgroupVersion::V2 => PinnedFile::open_at(directory, Path::new(name), CURRENT),
        // v1 has one hierarchy for each controller. systemd and the runtimes create a cgroup at the same path in all of them.
        CgroupVersion::V1 => {
            let controllers = hierarchy.memory.parent().unwrap_or(&hierarchy.memory);
            PinnedFile::open(controllers.join("pids").join(kernel_text::path(name)).join(CURRENT))
        }
    };
    let counted = of_controller.and_then(|file| Ok(file.read(buffer)?.trim().parse().ok()));
    counted.ok().flatten().or_else(|| count_listed(directory, hierarchy.version))
}

fn count_listed(directory: BorrowedFd<'_>, version: CgroupVersion) -> Option<u64> {
    let name = match version {
        CgroupVersion::V1 => "tasks",
        CgroupVersion::V2 => "cgroup.threads",
    };
    // The cgroups above a threaded cgroup do not list its threads, but they list its processes.
    let own = |directory: BorrowedFd<'_>| lines(directory, name).or_else(|| processes(directory));
    let mut count = own(directory)?;
    let _unlisted = for_each_below(directory, Monitors::Included, |child| count += own(child).unwrap_or(0));
    Some(count)
}

/// Counts the processes in the open cgroup `directory` itself. Returns `None` if they cannot be listed.
pub fn processes(directory: BorrowedFd<'_>) -> Option<u64> {
    lines(directory, "cgroup.procs")
}

fn lines(directory: BorrowedFd<'_>, name: &str) -> Option<u64> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let lines = BufReader::new(std::fs::File::from(file)).lines();
    lines.map(|line| line.is_ok().then_some(1)).sum()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

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
    fn tasks_are_counted_with_and_without_the_controller() {
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
            (
                "v1 without the controller",
                V1,
                "memory",
                &[("memory/a/tasks", "1\n9\n"), ("memory/a/b/tasks", "3\n")],
                Some(3),
            ),
            ("nothing can be read", V2, "", &[("a/cgroup.kill", "")], None),
        ] {
            assert_eq!(counted(version, memory, files), expected, "{name}");
        }
    }
}
