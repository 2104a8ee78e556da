//! What was measured, with its age.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::DeviceId;
use crate::units::Monotonic;
use crate::units::{Bytes, CgroupId};

/// So much of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Space that is allocated, as `du` counts it: not the length of files.
    pub bytes: Bytes,
    /// Files, directories and all else that takes an inode.
    pub inodes: u64,
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

/// One place in which a workload keeps something.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// What a container has changed of its image; the id is the runtime's.
    WritableLayer {
        /// The container's id.
        container: String,
    },
    /// The logs of a container, which the runtime writes for it.
    Logs {
        /// The container's name in the pod.
        container: String,
    },
    /// A volume that lives and dies with the pod, on the node's own disk: `emptyDir`, `configMap`, `gitRepo`.
    Volume {
        /// Its name in the pod.
        name: String,
    },
    /// An `emptyDir` in memory: on no disk, but it may have a size limit all the same.
    MemoryVolume {
        /// Its name in the pod.
        name: String,
    },
    /// What else a pod's processes can write to: termination messages and `/etc/hosts`.
    PodFiles,
}

impl Part {
    /// Returns the name used in logs and metrics.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::WritableLayer { .. } => "writable_layer",
            Self::Logs { .. } => "logs",
            Self::Volume { .. } => "volume",
            Self::MemoryVolume { .. } => "memory_volume",
            Self::PodFiles => "pod_files",
        }
    }

    /// Whether it takes space of a disk.
    #[must_use]
    pub const fn is_on_disk(&self) -> bool {
        !matches!(self, Self::MemoryVolume { .. })
    }
}

/// How a figure was found; ordered by how much it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// By walking the directories: as old as the walk.
    Walk,
    /// The filesystem's own count: it holds nothing else.
    Filesystem,
    /// A project quota, which the filesystem keeps exact all the time.
    Quota,
}

impl Source {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Walk, Self::Filesystem, Self::Quota];

    /// Returns the name used in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Walk => "walk",
            Self::Filesystem => "filesystem",
            Self::Quota => "quota",
        }
    }
}

/// What one place holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartUsage {
    /// Which place.
    pub part: Part,
    /// The filesystem that it lies on.
    pub device: DeviceId,
    /// What is there, files included that were deleted and are still open.
    pub held: Held,
    /// When measuring it began: what was written since is not in it for sure.
    pub at: Monotonic,
    /// How it was found.
    pub source: Source,
    /// False when it is at least this much: the walk is not over, or could not look everywhere.
    pub is_complete: bool,
}

/// What a workload keeps on the node's disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Whose it is.
    pub id: CgroupId,
    /// All parts on disks together.
    pub bytes: Bytes,
    /// The same in inodes.
    pub inodes: u64,
    /// When the oldest part was measured.
    pub at: Monotonic,
    /// The least exact source of a part.
    pub source: Source,
    /// False when it is at least this much.
    pub is_complete: bool,
    /// It is being measured, and what has been found so far is more than was known.
    pub is_under_way: bool,
    /// Place by place, sorted.
    pub parts: Vec<PartUsage>,
}

impl Usage {
    /// Adds the parts up. `at` is when measuring began: where there is no part, nothing is held since then.
    #[must_use]
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

    /// The sum of some parts.
    #[must_use]
    pub fn of(&self, is_wanted: impl Fn(&Part) -> bool) -> Held {
        held(&self.parts, is_wanted)
    }

    /// What lies where the runtime keeps containers (`eviction-semantics.md` §5).
    #[must_use]
    pub fn writable_layers(&self) -> Held {
        self.of(|part| matches!(part, Part::WritableLayer { .. }))
    }

    /// What lies where the kubelet keeps pods.
    #[must_use]
    pub fn logs_and_volumes(&self) -> Held {
        self.of(|part| part.is_on_disk() && !matches!(part, Part::WritableLayer { .. }))
    }

    /// What lies on one filesystem, whatever it is called.
    #[must_use]
    pub fn on(&self, device: DeviceId) -> Held {
        self.parts.iter().filter(|part| part.device == device).map(|part| part.held).sum()
    }

    /// How old the oldest part of it is.
    #[must_use]
    pub fn age(&self, now: Monotonic) -> Duration {
        now.since(self.at)
    }
}

fn held(parts: &[PartUsage], is_wanted: impl Fn(&Part) -> bool) -> Held {
    parts.iter().filter(|it| is_wanted(&it.part)).map(|it| it.held).sum()
}

/// What measuring has cost so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effort {
    /// Workloads measured to the end.
    pub measured: u64,
    /// Files looked at.
    pub entries: u64,
    /// Times that a workload's project quotas were read again, between two measurements.
    pub recounts: u64,
    /// CPU time of the thread, its waking up included.
    pub cpu: Duration,
}

/// All workloads, as far as they have been measured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usages {
    /// By the workload's name.
    pub by_workload: HashMap<Arc<str>, Arc<Usage>>,
    /// Workloads that were not measured to the end even once.
    pub unmeasured: usize,
    /// What cannot be measured here, each with its consequence; said in the log already.
    pub degradations: Vec<String>,
    /// What it has cost.
    pub effort: Effort,
}

impl Usages {
    /// What is known of a workload; nothing for another one of the same name.
    #[must_use]
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
        PartUsage { part, device, held, at: Monotonic(at), source, is_complete: true }
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
    fn parts_add_up_by_where_they_lie() {
        let usage = usage();
        let held = |bytes, inodes| Held { bytes: Bytes(bytes), inodes };
        assert_eq!((usage.bytes, usage.inodes), (Bytes(1235), 20), "memory is no disk");
        assert_eq!(usage.writable_layers(), held(1000, 10));
        assert_eq!(usage.logs_and_volumes(), held(235, 10));
        assert_eq!(usage.on(OTHER), held(1000, 10));
        assert_eq!(usage.on(DISK), held(235, 10));
    }

    #[test]
    fn the_whole_is_as_old_and_as_good_as_its_worst_part() {
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
