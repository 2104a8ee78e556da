//! Which cgroup of the memory hierarchy a process is in.

use std::path::Path;

use crate::node::CgroupVersion;
use crate::units::Pid;

/// The path of `pid`'s cgroup in the memory hierarchy, relative to its root; `None` when it cannot be told.
#[must_use]
pub fn of(proc_root: &Path, pid: &str, version: CgroupVersion) -> Option<String> {
    let text = std::fs::read_to_string(proc_root.join(pid).join("cgroup")).ok()?;
    parse(&text, version).map(str::to_owned)
}

/// The same of a task that may be exiting. `None` also where the answer is none: v1 shows whoever exits in the root, wherever it lived
/// (`proc_cgroup_show`, Linux 4.15 to 6.18). v2 tells where it lived, and marks that when it is gone.
#[must_use]
pub fn of_exiting(proc_root: &Path, pid: Pid, version: CgroupVersion) -> Option<String> {
    let path = of(proc_root, &pid.0.to_string(), version)?;
    where_it_lived(&path, version).map(str::to_owned)
}

fn where_it_lived(path: &str, version: CgroupVersion) -> Option<&str> {
    let path = match version {
        CgroupVersion::V1 => Some(path).filter(|path| !path.is_empty())?,
        CgroupVersion::V2 => path.strip_suffix(" (deleted)").unwrap_or(path),
    };
    // Outside of the agent's cgroup namespace there is no path that could be looked up.
    (!path.starts_with("..")).then_some(path)
}

/// Whether `pid` is in the cgroup `name` or below.
#[must_use]
pub fn is_in(proc_root: &Path, pid: Pid, version: CgroupVersion, name: &str) -> bool {
    of(proc_root, &pid.0.to_string(), version).is_some_and(|path| is_within(&path, name))
}

/// Whether the cgroup `path` is `name` or below it.
#[must_use]
pub fn is_within(path: &str, name: &str) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Picks the memory hierarchy's line out of `/proc/PID/cgroup`.
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
    fn a_longer_name_is_not_below() {
        assert!(is_within("a/b", "a") && is_within("a", "a"));
        assert!(!is_within("ab", "a") && !is_within("", "a"));
    }

    #[test]
    fn where_an_exiting_task_lived_is_told_by_v2_alone() {
        use CgroupVersion::{V1, V2};
        for (path, version, expected) in [
            ("", V1, None),
            ("pod/c", V1, Some("pod/c")),
            ("", V2, Some("")),
            ("pod/c", V2, Some("pod/c")),
            ("pod/c (deleted)", V2, Some("pod/c")),
            ("../pod/c", V2, None),
        ] {
            assert_eq!(where_it_lived(path, version), expected, "{path:?} {version}");
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
