//! Facts about the kernel, the cgroup hierarchy and this process's permissions. Nothing is changed.

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use rustix::process::PidfdFlags;

use crate::actions::release;
use crate::node::{CgroupVersion, Hierarchy, file_locks};

use super::facts::{Capability, Cgroup, Feature};

/// Name, bit in `CapEff` (`linux/capability.h`), mask of older capabilities that include it, and purpose.
const CAPABILITIES: [(&str, u64, u64, &str); 9] = [
    ("CAP_BPF", 39, 1 << 21, "loading programs into the kernel"),
    ("CAP_PERFMON", 38, 1 << 21, "attaching programs"),
    ("CAP_KILL", 5, 0, "killing workloads"),
    ("CAP_SYS_RESOURCE", 24, 0, "lowering oom_score_adj, short PSI windows"),
    ("CAP_IPC_LOCK", 14, 0, "keeping the agent in memory"),
    ("CAP_SYS_NICE", 23, 0, "real-time scheduling of the agent"),
    ("CAP_SYSLOG", 34, 1 << 21, "reading the kernel's log"),
    ("CAP_DAC_READ_SEARCH", 2, 1 << 1, "measuring the disk usage of pods"),
    ("CAP_SYS_PTRACE", 19, 0, "finding files that are deleted and still open"),
];

pub fn capability_names() -> impl Iterator<Item = &'static str> {
    CAPABILITIES.into_iter().map(|(name, ..)| name)
}

/// Parses the effective capabilities from `/proc/self/status`; without `CapEff` all count as missing.
pub fn capabilities(status: &str) -> Vec<Capability> {
    let value = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0);
    let capability = |(name, bit, includes, purpose): (&'static str, u64, u64, &'static str)| Capability {
        name,
        present: bits & (1 << bit | includes) != 0,
        purpose,
    };
    CAPABILITIES.into_iter().map(capability).collect()
}

pub fn cgroup(hierarchy: &Hierarchy, cgroup_root: &Path) -> Cgroup {
    Cgroup {
        version: hierarchy.version.to_string(),
        memory: hierarchy.memory.clone(),
        hybrid: hierarchy.hybrid,
        controllers: controllers(hierarchy, cgroup_root),
        kill: hierarchy.version == CgroupVersion::V2 && may_write_below(&hierarchy.memory, "cgroup.kill"),
        freezer: match &hierarchy.freezer {
            // The freezer may have no cgroup yet.
            Some(freezer) => may_write_below(freezer, "freezer.state") || may_write(&freezer.join("cgroup.procs")),
            None => hierarchy.version == CgroupVersion::V2 && may_write_below(&hierarchy.memory, "cgroup.freeze"),
        },
    }
}

fn controllers(hierarchy: &Hierarchy, cgroup_root: &Path) -> Vec<String> {
    match hierarchy.version {
        CgroupVersion::V2 => {
            let text = fs::read_to_string(hierarchy.memory.join("cgroup.controllers")).unwrap_or_default();
            text.split_ascii_whitespace().map(str::to_owned).collect()
        }
        CgroupVersion::V1 => {
            let known = ["blkio", "cpu", "freezer", "memory", "pids"];
            let mounted = |name: &&str| cgroup_root.join(name).join("cgroup.procs").exists();
            known.into_iter().filter(mounted).map(str::to_owned).collect()
        }
    }
}

/// Whether a cgroup directly below `root` has a writable `file`. The root cgroup lacks these files.
fn may_write_below(root: &Path, file: &str) -> bool {
    let directories = fs::read_dir(root).into_iter().flatten().flatten();
    let mut files = directories.map(|entry| entry.path().join(file)).filter(|path| path.exists());
    files.next().is_some_and(|path| may_write(&path))
}

fn may_write(path: &Path) -> bool {
    OpenOptions::new().write(true).open(path).is_ok()
}

pub fn features(hierarchy: Option<&Hierarchy>, proc_root: &Path) -> Vec<Feature> {
    let feature = |name, present, since, otherwise| Feature { name, present, since, otherwise };
    let mut features = vec![
        feature(
            "BTF",
            File::open("/sys/kernel/btf/vmlinux").is_ok(),
            "5.4",
            "OOM kills on cgroup v1 are not attributed to cgroups",
        ),
        feature("pidfd", has_pidfd(), "5.3", "the agent cannot signal a process safely, so it signals none"),
        feature(
            "process_mrelease",
            release::is_possible(),
            "5.15",
            "the kernel frees a victim's memory only at its exit",
        ),
        feature(
            "PSI",
            proc_root.join("pressure/memory").exists(),
            "4.20",
            "the agent reports neither stalls nor conditions based on them",
        ),
    ];
    if let Some(hierarchy) = hierarchy.filter(|hierarchy| hierarchy.version == CgroupVersion::V2) {
        let below = |file: &str| {
            let directories = fs::read_dir(&hierarchy.memory).into_iter().flatten().flatten();
            directories.map(|entry| entry.path().join(file)).any(|path| path.exists())
        };
        features.push(feature("cgroup.kill", below("cgroup.kill"), "5.14", "workloads are killed process by process"));
        let reclaim = hierarchy.memory.join("memory.reclaim").exists();
        features.push(feature("memory.reclaim", reclaim, "5.19", "no proactive reclaim before an eviction"));
    }
    features
}

fn has_pidfd() -> bool {
    rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).is_ok()
}

/// Checks that `proc_root` shows this process and the machine's init, which the agent needs to find itself and the workloads.
pub fn sees_processes(proc_root: &Path) -> Result<(), String> {
    let shown = proc_root.display();
    let own = fs::read_link(proc_root.join("self")).map_err(|error| {
        format!("cannot read {shown}/self: {error}; set procRoot to the mount point of the machine's procfs")
    })?;
    if own != Path::new(&std::process::id().to_string()) {
        return Err(format!(
            "{shown} belongs to another pid namespace than this process, so its pids are wrong here; run in the host's (hostPID: true)"
        ));
    }
    fs::read(proc_root.join("1/cgroup")).map(drop).map_err(|error| {
        format!(
            "cannot read {shown}/1/cgroup: {error}; the agent cannot map processes to cgroups without it (hidepid? run as root)"
        )
    })
}

/// Returns the process that holds the agent's lock.
pub fn lock_holder(proc_root: &Path, lock_file: &Path) -> Option<i32> {
    file_locks::holder(proc_root, lock_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_capabilities_include_newer_ones() {
        let present = |cap_eff: &str| -> Vec<&str> {
            let all = capabilities(&format!("Name:\tx\nCapEff:\t{cap_eff}\n"));
            all.iter().filter(|capability| capability.present).map(|capability| capability.name).collect()
        };
        assert_eq!(present("000001ffffffffff").len(), CAPABILITIES.len());
        assert_eq!(present("0000000000000000"), [""; 0]);
        assert_eq!(present("none"), [""; 0]);
        assert_eq!(present("0000000000200000"), ["CAP_BPF", "CAP_PERFMON", "CAP_SYSLOG"], "CAP_SYS_ADMIN");
        assert_eq!(present("0000000000000020"), ["CAP_KILL"]);
    }

    #[test]
    fn a_lock_that_is_held_here_is_found() {
        use crate::commands::instance::InstanceLock;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        assert_eq!(lock_holder(Path::new("/proc"), &path), None, "no file, no lock");
        let _lock = InstanceLock::take(&path).unwrap();
        // overlayfs shows another device in stat than in the lock.
        if let Some(pid) = lock_holder(Path::new("/proc"), &path) {
            assert_eq!(u32::try_from(pid), Ok(std::process::id()));
        }
    }

    #[test]
    fn another_procfs_is_not_taken_for_this_one() {
        assert_eq!(sees_processes(Path::new("/proc")), Ok(()));
        assert!(sees_processes(Path::new("/nonexistent")).unwrap_err().contains("procRoot"));
        let other = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("1", other.path().join("self")).unwrap();
        assert!(sees_processes(other.path()).unwrap_err().contains("another pid namespace"));
        std::fs::remove_file(other.path().join("self")).unwrap();
        std::os::unix::fs::symlink(std::process::id().to_string(), other.path().join("self")).unwrap();
        assert!(sees_processes(other.path()).unwrap_err().contains("1/cgroup"));
    }
}
