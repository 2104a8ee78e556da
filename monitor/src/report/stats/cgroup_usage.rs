//! Memory, CPU and process ids of a cgroup, read from its files on request. Reading may block, so it does not run on the loop's thread.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};

use super::document::{Cpu, Memory, Time};
use crate::node::pinned_file::{Buffer, PinnedFile, keyed_value, number_or_max};
use crate::node::{CgroupVersion, Hierarchy};
use crate::units::{Monotonic, kernel_text};
use crate::workloads::task_count;

/// v1 writes "no limit" as the largest page count; anything above 2^62 is none, as for the kubelet.
const NO_LIMIT: u64 = 1 << 62;
/// Minimum interval of a rate. A rate over a shorter interval is noise.
const SHORTEST_RATE: Duration = Duration::from_secs(1);
/// Maximum interval of a rate. A rate over a longer interval does not describe the present.
const LONGEST_RATE: Duration = Duration::from_secs(300);

/// CPU time of each cgroup in the last document, for the rates of the next one.
#[derive(Debug, Default)]
pub struct CpuHistory {
    seen: HashMap<String, Mark>,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    nanos: u64,
    at: Monotonic,
    /// The rate reported at `at`. Requests within `SHORTEST_RATE` get the same rate again.
    rate: Option<u64>,
}

impl Mark {
    /// Returns the next mark, with the rate since this one.
    fn next(self, nanos: u64, at: Monotonic) -> Self {
        let elapsed = at.since(self.at);
        match nanos.checked_sub(self.nanos) {
            // CPU time fell: the cgroup was recreated under the same path.
            None => Self { nanos, at, rate: None },
            Some(_) if elapsed < SHORTEST_RATE => self,
            Some(_) if elapsed > LONGEST_RATE => Self { nanos, at, rate: None },
            Some(used) => {
                let per_second = u128::from(used) * 1_000_000_000 / elapsed.as_nanos().max(1);
                Self { nanos, at, rate: u64::try_from(per_second).ok() }
            }
        }
    }
}

#[derive(Debug)]
pub struct Cgroups<'h> {
    hierarchy: &'h Hierarchy,
    history: &'h mut CpuHistory,
    seen: HashMap<String, Mark>,
    buffer: Buffer,
}

impl<'h> Cgroups<'h> {
    /// Creates a reader for a hierarchy. `history` holds the CPU times of the previous document.
    pub fn new(hierarchy: &'h Hierarchy, history: &'h mut CpuHistory) -> Self {
        Self { hierarchy, history, seen: HashMap::new(), buffer: Buffer::new() }
    }

    /// Saves the CPU times for the next document.
    pub fn finish(self) {
        self.history.seen = self.seen;
    }

    /// Opens the cgroup at `path` below the hierarchy's root. Returns `None` if it is gone.
    pub fn open(&self, path: &str) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::open(self.hierarchy.memory.join(kernel_text::path(path)), flags, Mode::empty()).ok()
    }

    pub fn children(&self, path: &str) -> Vec<String> {
        let entries =
            std::fs::read_dir(self.hierarchy.memory.join(kernel_text::path(path))).into_iter().flatten().flatten();
        let is_directory = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        entries.filter(is_directory).map(|entry| kernel_text::of_name(&entry.file_name()).into_owned()).collect()
    }

    fn read(&mut self, directory: &OwnedFd, path: &str, name: &str) -> Option<&str> {
        PinnedFile::open_at(directory, &self.hierarchy.memory.join(kernel_text::path(path)), name)
            .ok()?
            .read(&mut self.buffer)
            .ok()
    }

    pub fn memory(&mut self, directory: &OwnedFd, path: &str) -> Option<Memory> {
        let (current, max, keys) = match self.hierarchy.version {
            CgroupVersion::V1 => (
                "memory.usage_in_bytes",
                "memory.limit_in_bytes",
                ["total_inactive_file", "total_rss", "total_pgfault", "total_pgmajfault"],
            ),
            CgroupVersion::V2 => ("memory.current", "memory.max", ["inactive_file", "anon", "pgfault", "pgmajfault"]),
        };
        let usage: u64 = self.read(directory, path, current)?.trim().parse().ok()?;
        let limit = self.read(directory, path, max).and_then(|text| number_or_max(text).ok().flatten());
        let stat = self.read(directory, path, "memory.stat")?;
        let [inactive_file, rss, faults, major_faults] = keys.map(|key| keyed_value(stat, key));
        let working_set = usage.saturating_sub(inactive_file?);
        Some(Memory {
            time: Time(Timestamp::now()),
            available_bytes: limit.filter(|limit| *limit < NO_LIMIT).map(|limit| limit.saturating_sub(working_set)),
            usage_bytes: usage,
            working_set_bytes: working_set,
            rss_bytes: rss,
            page_faults: faults,
            major_page_faults: major_faults,
        })
    }

    /// Reads the CPU time and derives its rate.
    pub fn cpu(&mut self, directory: &OwnedFd, path: &str) -> Option<Cpu> {
        let nanos = match self.hierarchy.version {
            // `cpu.stat` has the usage even if the cpu controller is disabled.
            CgroupVersion::V2 => {
                keyed_value(self.read(directory, path, "cpu.stat")?, "usage_usec")?.saturating_mul(1000)
            }
            CgroupVersion::V1 => {
                let file =
                    PinnedFile::open(self.of_controller("cpuacct").join(kernel_text::path(path)).join("cpuacct.usage"))
                        .ok()?;
                file.read_number(&mut self.buffer)?
            }
        };
        let now = Monotonic::now();
        let before = self.history.seen.get(path).copied();
        let mark = before.map_or(Mark { nanos, at: now, rate: None }, |before| before.next(nanos, now));
        self.seen.insert(path.to_owned(), mark);
        Some(Cpu { time: Time(Timestamp::now()), usage_nano_cores: mark.rate, usage_core_nano_seconds: nanos })
    }

    /// Returns the v1 mount of a controller. Each controller has its own, beside that of memory.
    fn of_controller(&self, controller: &str) -> PathBuf {
        self.hierarchy.memory.parent().unwrap_or(&self.hierarchy.memory).join(controller)
    }

    pub fn processes(&mut self, directory: &OwnedFd, path: &str) -> Option<u64> {
        task_count::count(directory.as_fd(), path, self.hierarchy, &mut self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_a_second_and_restarts_with_a_new_cgroup() {
        let at = |seconds: f64| Monotonic(Duration::from_secs_f64(seconds).as_nanos().try_into().unwrap());
        let first = Mark { nanos: 1_000, at: at(0.0), rate: None };
        let again = first.next(500_000_000, at(0.5));
        assert_eq!((again.nanos, again.rate), (1_000, None), "too soon");
        let second = again.next(1_000_001_000, at(2.0));
        assert_eq!(second.rate, Some(500_000_000), "half a core");
        assert_eq!(second.next(1_100_000_000, at(2.1)).rate, Some(500_000_000), "computed again");
        assert_eq!(second.next(5, at(4.0)).rate, None, "another cgroup of that name");
        assert_eq!(second.next(2_000_000_000, at(4000.0)).rate, None, "no client has asked for an hour");
    }

    #[test]
    fn both_versions_are_read() {
        for (version, files) in [
            (
                CgroupVersion::V2,
                &[
                    ("pod/memory.current", "1000\n"),
                    ("pod/memory.max", "max\n"),
                    ("pod/memory.stat", "anon 300\ninactive_file 400\npgfault 7\npgmajfault 1\n"),
                    ("pod/cpu.stat", "usage_usec 5\n"),
                    ("pod/pids.current", "3\n"),
                ][..],
            ),
            (
                CgroupVersion::V1,
                &[
                    ("memory/pod/memory.usage_in_bytes", "1000\n"),
                    ("memory/pod/memory.limit_in_bytes", "9223372036854771712\n"),
                    (
                        "memory/pod/memory.stat",
                        "total_rss 300\ntotal_inactive_file 400\ntotal_pgfault 7\ntotal_pgmajfault 1\n",
                    ),
                    ("cpuacct/pod/cpuacct.usage", "5000\n"),
                    ("pids/pod/pids.current", "3\n"),
                ][..],
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let memory = match version {
                CgroupVersion::V1 => root.path().join("memory"),
                CgroupVersion::V2 => root.path().to_owned(),
            };
            let hierarchy = Hierarchy { version, memory, freezer: None, hybrid: false };
            let mut history = CpuHistory::default();
            let mut cgroups = Cgroups::new(&hierarchy, &mut history);
            let directory = cgroups.open("pod").unwrap();
            let memory = cgroups.memory(&directory, "pod").unwrap();
            assert_eq!((memory.usage_bytes, memory.working_set_bytes, memory.available_bytes), (1000, 600, None));
            assert_eq!((memory.rss_bytes, memory.page_faults, memory.major_page_faults), (Some(300), Some(7), Some(1)));
            let cpu = cgroups.cpu(&directory, "pod").unwrap();
            assert_eq!((cpu.usage_core_nano_seconds, cpu.usage_nano_cores), (5000, None));
            assert_eq!(cgroups.processes(&directory, "pod"), Some(3));
            assert!(cgroups.open("gone").is_none());
            cgroups.finish();
            assert_eq!(history.seen.len(), 1);
        }
    }
}
