//! Finds the cgroup of a process in the memory hierarchy.

use std::io;
use std::path::Path;

use crate::node::CgroupVersion;
use crate::units::{Pid, kernel_text};

/// Returns the path of `pid`'s cgroup in the memory hierarchy, relative to the hierarchy's root; `None` when it cannot be read.
pub fn of(proc_root: &Path, pid: &str, version: CgroupVersion) -> Option<String> {
    find(proc_root, pid, version).ok().flatten()
}

/// As [`of`]; `None` if the process has exited, or has no cgroup in the hierarchy.
///
/// # Errors
/// When the file of a process that may be alive cannot be read.
fn find(proc_root: &Path, pid: &str, version: CgroupVersion) -> io::Result<Option<String>> {
    let path = proc_root.join(pid).join("cgroup");
    match std::fs::read(&path) {
        Ok(bytes) => Ok(parse(&bytes, version).map(|path| kernel_text::name(path).into_owned())),
        Err(error) if has_exited(&error) => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))),
    }
}

/// Returns whether the error of a file in `/proc/PID` means that the process has exited: `ENOENT` for its path, `ESRCH` for an open file.
pub fn has_exited(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
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

/// Returns whether `pid` is in the cgroup `name` or below it. A process that has exited is not.
///
/// # Errors
/// When that cannot be found out.
pub fn is_in(proc_root: &Path, pid: Pid, version: CgroupVersion, name: &str) -> io::Result<bool> {
    Ok(find(proc_root, &pid.0.to_string(), version)?.is_some_and(|path| is_within(&path, name)))
}

/// Returns every process in the cgroup `name` or below it, by the cgroup of each process of this machine. The cost does not depend on the
/// number of cgroups.
///
/// # Errors
/// When the processes cannot be listed, or none is found and one of them cannot be assigned. Else a single process in a path that is too long
/// would keep every other workload alive.
pub fn members(proc_root: &Path, version: CgroupVersion, name: &str) -> io::Result<Vec<Pid>> {
    let mut members = Vec::new();
    let mut unassigned = None;
    for entry in std::fs::read_dir(proc_root)? {
        // Names that are no number are not processes.
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid) else { continue };
        match is_in(proc_root, pid, version, name) {
            Ok(true) => members.push(pid),
            Ok(false) => {}
            Err(error) => unassigned = unassigned.or(Some(error)),
        }
    }
    unassigned.filter(|_| members.is_empty()).map_or(Ok(members), Err)
}

pub fn is_within(path: &str, name: &str) -> bool {
    path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Finds the memory hierarchy's line in the text of `/proc/PID/cgroup`.
fn parse(text: &[u8], version: CgroupVersion) -> Option<&[u8]> {
    // The kernel refuses a cgroup whose name has a line feed.
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted = match version {
            CgroupVersion::V1 => controllers.split(|byte| *byte == b',').any(|controller| controller == b"memory"),
            CgroupVersion::V2 => id == b"0" && controllers.is_empty(),
        };
        wanted.then(|| path.strip_prefix(b"/").unwrap_or(path))
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
        // One that cannot be read hides no other.
        std::fs::create_dir_all(root.path().join("6/cgroup")).unwrap();
        let mut found = members(root.path(), CgroupVersion::V2, "pod").unwrap();
        found.sort_unstable();
        assert_eq!(found, [Pid(7), Pid(8)]);
        let error = members(root.path(), CgroupVersion::V2, "other").unwrap_err().to_string();
        assert!(error.contains("/6/cgroup"), "{error}");
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
        let text = b"9:name=systemd:/a\n4:memory,hugetlb:/b/c\n0::/d\n";
        assert_eq!(parse(text, CgroupVersion::V1), Some(b"b/c".as_slice()));
        assert_eq!(parse(text, CgroupVersion::V2), Some(b"d".as_slice()));
        assert_eq!(parse(b"0::/\n", CgroupVersion::V2), Some(b"".as_slice()));
        assert_eq!(parse(b"0::/\n", CgroupVersion::V1), None);
    }

    #[test]
    fn a_member_is_found_by_any_name() {
        let root = tempfile::tempdir().unwrap();
        for (pid, path) in [("7", b"/a/\xff".as_slice()), ("8", b"/a/\xfe"), ("9", b"/caf\xc3/b"), ("10", br"/a/\377")]
        {
            std::fs::create_dir(root.path().join(pid)).unwrap();
            std::fs::write(root.path().join(pid).join("cgroup"), [b"0::", path, b"\n"].concat()).unwrap();
        }
        for (name, expected) in
            [(r"a/\377", [Pid(7)]), (r"a/\376", [Pid(8)]), (r"caf\303", [Pid(9)]), (r"a/\134377", [Pid(10)])]
        {
            assert_eq!(members(root.path(), CgroupVersion::V2, name).unwrap(), expected, "{name}");
        }
        assert_eq!(of(root.path(), "9", CgroupVersion::V2).as_deref(), Some(r"caf\303/b"));
    }

    #[test]
    fn an_unreadable_process_is_an_error_and_one_that_exited_is_not() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("7/cgroup")).unwrap();
        let error = is_in(root.path(), Pid(7), CgroupVersion::V2, "a").unwrap_err().to_string();
        assert!(error.contains("7/cgroup"), "{error}");
        assert!(members(root.path(), CgroupVersion::V2, "a").is_err());
        assert!(!is_in(root.path(), Pid(8), CgroupVersion::V2, "a").unwrap());
    }
}
