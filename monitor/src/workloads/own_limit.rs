//! Whether a workload reclaims at its own limit, and how long its tasks have waited for memory.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::config::PressureKind;
use crate::node::CgroupVersion;
use crate::node::pinned_file::{keyed_value, number_or_max};
use crate::node::psi_figures::Pressure;

use super::cgroup_processes::{children, read};

/// A workload within this part of its limit counts as at it, if the kernel does not count how often it was hit.
const NEAR_PART: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AtLimit {
    /// How often the workload, or a cgroup in it, has hit `memory.max` or `memory.high` (v1: the limit). `None` if that is not counted.
    hits: Option<u64>,
    /// Whether its usage is at the limit, if hits are not counted.
    is_full: bool,
    /// The time for which all its tasks waited for memory since it was made (v2, Linux 4.20). `None` without PSI for cgroups.
    pub stalled: Option<Duration>,
}

impl AtLimit {
    /// Reads the figures of the open cgroup of a workload. The hits of the cgroups in it count too.
    pub(super) fn read(directory: impl AsFd, version: CgroupVersion) -> Self {
        let directory = directory.as_fd();
        match version {
            CgroupVersion::V2 => Self::of_v2(directory, "memory.events"),
            CgroupVersion::V1 => {
                // v1 counts the hits of each cgroup itself. A container's limit is on its own cgroup.
                let hits = |cgroup: BorrowedFd<'_>| read(cgroup, "memory.failcnt").ok()?.trim().parse::<u64>().ok();
                let inside = children(directory).unwrap_or_default();
                let inside: u64 = inside.iter().filter_map(|child| hits(child.as_fd())).sum();
                Self { hits: hits(directory).map(|own| own.saturating_add(inside)), ..Self::default() }
            }
        }
    }

    /// Reads the figures of a cgroup that holds workloads, such as a slice, by its own hits only (v2, Linux 5.2). `None` on v1.
    pub(super) fn of_group(directory: impl AsFd, version: CgroupVersion) -> Option<Self> {
        (version == CgroupVersion::V2).then(|| Self::of_v2(directory.as_fd(), "memory.events.local"))
    }

    fn of_v2(directory: BorrowedFd<'_>, events: &str) -> Self {
        let events = read(directory, events).unwrap_or_default();
        let max = keyed_value(&events, "max");
        let hits = max.map(|max| max.saturating_add(keyed_value(&events, "high").unwrap_or(0)));
        let pressure = read(directory, "memory.pressure").ok();
        let stall = pressure.and_then(|text| Pressure::parse(&text).of(PressureKind::Full));
        Self { hits, is_full: hits.is_none() && is_full(directory), stalled: stall.map(|stall| stall.total) }
    }

    /// Returns whether the workload was at its limit since the reading `before`.
    pub fn since(self, before: Self) -> bool {
        match (before.hits, self.hits) {
            (Some(before), Some(now)) => now > before,
            _ => self.is_full,
        }
    }
}

fn is_full(directory: BorrowedFd<'_>) -> bool {
    let number = |name: &str| number_or_max(&read(directory, name).ok()?).ok().flatten();
    let limit = [number("memory.max"), number("memory.high")].into_iter().flatten().min();
    number("memory.current").zip(limit).is_some_and(|(usage, limit)| usage >= limit - limit / NEAR_PART)
}

#[cfg(test)]
pub(super) fn fixture(hits: Option<u64>, stalled_ms: Option<u64>) -> AtLimit {
    AtLimit { hits, is_full: hits.is_none(), stalled: stalled_ms.map(Duration::from_millis) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_of(files: &[(&str, &str)], version: CgroupVersion) -> AtLimit {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        AtLimit::read(std::fs::File::open(root.path()).unwrap(), version)
    }

    #[test]
    fn hits_tell_and_without_them_the_usage() {
        use CgroupVersion::{V1, V2};
        let pressure = (
            "memory.pressure",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
        );
        let counted =
            |max: u64| read_of(&[("memory.events", &format!("low 0\nhigh 2\nmax {max}\noom 0\n")), pressure], V2);
        assert_eq!(counted(3), AtLimit { hits: Some(5), is_full: false, stalled: Some(Duration::from_micros(5)) });
        assert!(counted(4).since(counted(3)) && !counted(3).since(counted(3)));
        for (usage, max, high, expected) in [
            ("256", "256", "max", true),
            ("253", "256", "max", true),
            ("100", "256", "max", false),
            ("100", "max", "100", true),
            ("100", "max", "max", false),
        ] {
            let files = [
                ("memory.current", usage),
                ("memory.max", max),
                ("memory.high", high),
                ("memory.events", "oom_kill 0\n"),
            ];
            let found = read_of(&files, V2);
            assert_eq!(found.since(found), expected, "{usage} {max} {high}");
        }
        let v1 = |inside: &str| read_of(&[("memory.failcnt", "1\n"), ("container/memory.failcnt", inside)], V1);
        assert!(v1("7\n").since(v1("6\n")) && !v1("6\n").since(v1("6\n")));
        assert_eq!(read_of(&[], V2), AtLimit::default());
    }
}
