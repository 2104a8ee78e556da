//! Measured disk usage, with its age.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::DeviceId;
use crate::units::{Bytes, CgroupId, Monotonic, named_enum};

/// Space and inodes used on a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Allocated space, as `du` counts it, not the length of files.
    pub bytes: Bytes,
    /// Number of inodes: files, directories and others.
    pub inodes: u64,
}

impl Held {
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), inodes: self.inodes.max(other.inodes) }
    }
}

impl AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

impl std::iter::Sum for Held {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |mut sum, held| {
            sum += held;
            sum
        })
    }
}

/// A place where a workload keeps files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The files in which a container, by the runtime's id, differs from its image.
    WritableLayer { container: String },
    /// The logs of a container, written by the runtime.
    Logs { container: String },
    /// A volume on the node's own disk that is removed with the pod: `emptyDir`, `configMap`, `gitRepo`.
    Volume { name: String },
    /// An `emptyDir` in memory, which may have a size limit too.
    MemoryVolume { name: String },
    /// Other files that a pod's processes can write: termination messages and `/etc/hosts`.
    PodFiles,
}

impl Part {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::WritableLayer { .. } => "writable_layer",
            Self::Logs { .. } => "logs",
            Self::Volume { .. } => "volume",
            Self::MemoryVolume { .. } => "memory_volume",
            Self::PodFiles => "pod_files",
        }
    }

    pub const fn is_on_disk(&self) -> bool {
        !matches!(self, Self::MemoryVolume { .. })
    }
}

named_enum! {
    /// How a figure was measured, ordered by reliability.
    pub enum Source {
        Walk = "walk",
        /// The filesystem's own count, for a filesystem that contains nothing else.
        Filesystem = "filesystem",
        /// A project quota, which the filesystem keeps exact.
        Quota = "quota",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartUsage {
    pub part: Part,
    pub device: DeviceId,
    /// The usage, including deleted files that are still open.
    pub held: Held,
    /// The usage that counts in a ranking: at least that of the last complete measurement. A limit applies to `held`, which the
    /// workload has for certain.
    pub ranked: Held,
    /// When the measurement began. Later writes may not be included.
    pub at: Monotonic,
    pub source: Source,
    /// False if the value is a lower bound, because the walk is unfinished or could not read everything.
    pub is_complete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    pub id: CgroupId,
    /// Sum of all parts on disks.
    pub bytes: Bytes,
    pub inodes: u64,
    /// When the oldest part was measured.
    pub at: Monotonic,
    /// The least reliable source of a part.
    pub source: Source,
    /// False if the value is a lower bound.
    pub is_complete: bool,
    /// Whether the measurement is unfinished, and its partial result exceeds the previous result.
    pub is_under_way: bool,
    /// The parts, sorted.
    pub parts: Vec<PartUsage>,
}

impl Usage {
    /// Sums the parts. `at` is the time at which the measurement began; it is also the time of a workload without parts.
    pub fn new(id: CgroupId, mut parts: Vec<PartUsage>, at: Monotonic, is_complete: bool) -> Self {
        parts.sort_by(|a, b| a.part.cmp(&b.part));
        let Held { bytes, inodes } = held(&parts, Part::is_on_disk);
        Self {
            id,
            bytes,
            inodes,
            at: parts.iter().map(|part| part.at).fold(at, Ord::min),
            source: parts.iter().map(|part| part.source).min().unwrap_or(Source::Filesystem),
            is_complete: is_complete && parts.iter().all(|part| part.is_complete),
            is_under_way: false,
            parts,
        }
    }

    pub fn of(&self, is_wanted: impl Fn(&Part) -> bool) -> Held {
        held(&self.parts, is_wanted)
    }

    /// Returns the usage of the runtime's filesystem (`eviction-semantics.md` §5).
    pub fn writable_layers(&self) -> Held {
        self.of(|part| matches!(part, Part::WritableLayer { .. }))
    }

    /// Returns the usage of the kubelet's filesystem.
    pub fn logs_and_volumes(&self) -> Held {
        self.of(|part| part.is_on_disk() && !matches!(part, Part::WritableLayer { .. }))
    }

    pub fn on(&self, device: DeviceId) -> Held {
        self.parts.iter().filter(|part| part.device == device).map(|part| part.held).sum()
    }

    pub fn age(&self, now: Monotonic) -> Duration {
        now.since(self.at)
    }
}

fn held(parts: &[PartUsage], is_wanted: impl Fn(&Part) -> bool) -> Held {
    parts.iter().filter(|it| is_wanted(&it.part)).map(|it| it.held).sum()
}

/// The cost of all measurements so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    pub measured: u64,
    pub entries: u64,
    /// How often a workload's project quotas were read between two measurements.
    pub recounts: u64,
    /// CPU time of the thread, including its wake-ups.
    pub cpu: Duration,
}

/// The disk usage of all workloads measured so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usages {
    pub by_workload: HashMap<Arc<str>, Arc<Usage>>,
    /// The number of workloads without a finished measurement.
    pub unmeasured: usize,
    /// The degradations. The thread has already logged them.
    pub degradations: Vec<String>,
    pub effort: Effort,
}

impl Usages {
    /// Returns the usage of this workload. Another workload with the same name has another id.
    pub fn get(&self, name: &str, id: CgroupId) -> Option<&Arc<Usage>> {
        self.by_workload.get(name).filter(|usage| usage.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DeviceId = DeviceId(0x0080_0001);
    const OTHER: DeviceId = DeviceId(0x0080_0002);

    fn part(part: Part, device: DeviceId, bytes: u64, inodes: u64, at: u64, source: Source) -> PartUsage {
        let held = Held { bytes: Bytes(bytes), inodes };
        PartUsage { part, device, held, ranked: held, at: Monotonic(at), source, is_complete: true }
    }

    fn usage() -> Usage {
        let name = |name: &str| name.to_owned();
        let parts = vec![
            part(Part::WritableLayer { container: name("id") }, OTHER, 1000, 10, 50, Source::Walk),
            part(Part::Logs { container: name("app") }, DISK, 200, 2, 60, Source::Walk),
            part(Part::Volume { name: name("cache") }, DISK, 30, 3, 70, Source::Quota),
            part(Part::MemoryVolume { name: name("shm") }, DeviceId(7), 4000, 40, 70, Source::Filesystem),
            part(Part::PodFiles, DISK, 5, 5, 70, Source::Walk),
        ];
        Usage::new(CgroupId(1), parts, Monotonic(100), true)
    }

    #[test]
    fn parts_are_summed_by_filesystem() {
        let usage = usage();
        let held = |bytes, inodes| Held { bytes: Bytes(bytes), inodes };
        assert_eq!((usage.bytes, usage.inodes), (Bytes(1235), 20), "volumes in memory do not count");
        assert_eq!(usage.writable_layers(), held(1000, 10));
        assert_eq!(usage.logs_and_volumes(), held(235, 10));
        assert_eq!(usage.on(OTHER), held(1000, 10));
        assert_eq!(usage.on(DISK), held(235, 10));
    }

    #[test]
    fn age_and_source_are_those_of_the_worst_part() {
        let mut usage = usage();
        assert_eq!((usage.at, usage.source, usage.is_complete), (Monotonic(50), Source::Walk, true));
        assert_eq!(usage.age(Monotonic(80)), Duration::from_nanos(30));
        usage.parts[1].is_complete = false;
        assert!(!Usage::new(CgroupId(1), usage.parts, Monotonic(100), true).is_complete);
        let nothing = Usage::new(CgroupId(1), Vec::new(), Monotonic(100), true);
        assert_eq!((nothing.bytes, nothing.at, nothing.is_complete), (Bytes::ZERO, Monotonic(100), true));
    }

    #[test]
    fn another_workload_of_the_same_name_has_no_usage() {
        let by_workload = HashMap::from([(Arc::from("a"), Arc::new(usage()))]);
        let usages = Usages { by_workload, ..Usages::default() };
        assert!(usages.get("a", CgroupId(1)).is_some());
        assert!(usages.get("a", CgroupId(2)).is_none() && usages.get("b", CgroupId(1)).is_none());
    }
}
