//! Finds the cgroup of a process in the memory hierarchy.

use std::path::Path;

use crate::node::CgroupVersion;
use crate::units::Pid;

/// Returns the path of `pid`'s cgroup in the memory hierarchy, relative to the hierarchy's root; `None` when it cannot be read.
pub fn of(proc_root: &Path, pid: &str, version: CgroupVersion) -> Option<String> {
    let text = std::fs::read_to_string(proc_root.join(pid).join("cgroup")).ok()?;
    parse(&text, version).map(str::to_owned)
}

/// As [`of`], for a task that may be exiting. v1 shows an exiting task in the root, wherever it was before (`proc_cgroup_show`,
/// Linux 4.15 to 6.18), so the root is `None` on v1. v2 shows the task's last cgroup, with a suffix once that cgroup is removed.
pub fn of_exiting(proc_root: &Path, pid: Pid, version: CgroupVersion) -> Option<String> {
    let path = of(proc_root, &pid.0.to_string(), version)?;
    last_cgroup(&path, version).map(str::to_owned)
}

fn last_cgroup(path: &str, version: CgroupVersion) -> Option<&str> {
    let path = match version {
        CgroupVersion::V1 => Some(path).filter(|path| !path.is_empty())?,
        CgroupVersion::V2 => path.strip_suffix(" (deleted)").unwrap_or(path),
    };
    // A cgroup outside the agent's cgroup namespace has no path that can be opened.
    (!path.starts_with("..")).then_some(path)
}

/// Returns whether `pid` is in the cgroup `name` or below it.
pub fn is_in(proc_root: &Path, pid: Pid, version: CgroupVersion, name: &str) -> bool {
    of(proc_root, &pid.0.to_string(), version).is_some_and(|path| is_within(&path, name))
}

/// Returns every process in the cgroup `name` or below it, by the cgroup of each process of this machine. The cost does not depend on the
/// number of cgroups.
pub fn members(proc_root: &Path, version: CgroupVersion, name: &str) -> std::io::Result<Vec<Pid>> {
    let entries = std::fs::read_dir(proc_root)?.flatten();
    let pids = entries.filter_map(|entry| Some(Pid(entry.file_name().to_str()?.parse().ok()?)));
    Ok(pids.filter(|pid| is_in(proc_root, *pid, version, name)).collect())
}

pub fn is_within(path: &str, name: &str) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Finds the memory hierarchy's line in the text of `/proc/PID/cgroup`.
fn parse(text: &str, version: CgroupVersion) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted = match version {
            CgroupVersion::V1 => controllers.split(',').any(|controller| controller == "memory"),
            CgroupVersion::V2 => id == "0" && controllers.is_empty(),
        };
        wanted.then(|| path.trim_start_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_with_a_longer_name_is_not_below() {
        assert!(is_within("a/b", "a") && is_within("a", "a"));
        assert!(!is_within("ab", "a") && !is_within("", "a"));
    }

    #[test]
    fn members_are_found_by_the_cgroup_of_each_process() {
        let root = tempfile::tempdir().unwrap();
        for (pid, path) in [("7", "/pod"), ("8", "/pod/a/b"), ("9", "/podium"), ("self", "/pod")] {
            std::fs::create_dir(root.path().join(pid)).unwrap();
            std::fs::write(root.path().join(pid).join("cgroup"), format!("0::{path}\n")).unwrap();
        }
        let mut found = members(root.path(), CgroupVersion::V2, "pod").unwrap();
        found.sort_unstable();
        assert_eq!(found, [Pid(7), Pid(8)]);
    }

    #[test]
    fn v2_reports_the_last_cgroup_of_an_exiting_task() {
        use CgroupVersion::{V1, V2};
        for (path, version, expected) in [
            ("", V1, None),
            ("pod/c", V1, Some("pod/c")),
            ("", V2, Some("")),
            ("pod/c", V2, Some("pod/c")),
            ("pod/c (deleted)", V2, Some("pod/c")),
            ("../pod/c", V2, None),
        ] {
            assert_eq!(last_cgroup(path, version), expected, "{path:?} {version}");
        }
    }

    #[test]
    fn the_memory_line_is_found() {
        let text = "9:name=systemd:/a\n4:memory,hugetlb:/b/c\n0::/d\n";
        assert_eq!(parse(text, CgroupVersion::V1), Some("b/c"));
        assert_eq!(parse(text, CgroupVersion::V2), Some("d"));
        assert_eq!(parse("0::/\n", CgroupVersion::V2), Some(""));
        assert_eq!(parse("0::/\n", CgroupVersion::V1), None);
    }
}
