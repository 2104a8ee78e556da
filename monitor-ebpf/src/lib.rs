//! The types that the eBPF programs and the agent share: event records, map keys and values, and the tables of offsets.
//!
//! Every type is `repr(C)`, has no implicit padding, and its size is asserted here, so that both compilations agree or fail.
#![no_std]

mod offsets;
mod records;

pub use offsets::{Access, FieldOffsets, KernelOffsets, MAX_FIELDS, field};
pub use records::{
    CgroupPath, DirectReclaim, Header, KswapdWake, OomKill, OomKillRecord, OomMark, OomScoreAdj, PATH_LEVELS,
    PATH_TEXT, Stall,
};

/// Length of a task's `comm` with the terminating zero (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;

/// The kind of a record in a ring; also the index of its counters in `COUNTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// kswapd was woken. Wakes the agent; rate-limited in the kernel.
    KswapdWake = 0,
    /// A task entered direct reclaim. Wakes the agent; rate-limited in the kernel.
    DirectReclaim = 1,
    /// A task's stall in reclaim ended and was longer than the threshold. Rate-limited in the kernel.
    Stall = 2,
    /// The OOM killer marked a victim; the running task is the allocator.
    OomMark = 3,
    /// A marked victim is exiting; the running task was the victim.
    OomKill = 4,
    /// Another process than the agent wrote an `oom_score_adj`.
    OomScoreAdj = 5,
}

impl EventKind {
    pub const ALL: [Self; 6] =
        [Self::KswapdWake, Self::DirectReclaim, Self::Stall, Self::OomMark, Self::OomKill, Self::OomScoreAdj];

    pub const COUNT: u32 = 6;

    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.get(raw as usize).copied()
    }

    pub const fn index(self) -> u32 {
        self as u32
    }
}

/// Why a task reclaims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum ReclaimKind {
    /// The node ran low: `mm_vmscan_direct_reclaim_*`.
    Direct = 0,
    /// A cgroup hit its own limit: `mm_vmscan_memcg_reclaim_*`.
    Memcg = 1,
}

impl ReclaimKind {
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::Direct),
            1 => Some(Self::Memcg),
            _ => None,
        }
    }
}

/// Counts per CPU and [`EventKind`]. `generated` is counted before the reservation, so generated = delivered + lost + malformed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EventCounts {
    pub generated: u64,
    /// Events that were dropped because the ring buffer was full.
    pub lost: u64,
    /// Events that a rate limit suppressed. They are not counted as generated.
    pub suppressed: u64,
}

/// Kinds of events that could not be counted, mostly because a map was full. The value is the index into the per-CPU array
/// `UNTRACKED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Untracked {
    /// A stall is missed: its begin was not seen, or too many tasks stalled at once.
    Stall = 0,
    /// A stall is attributed to no cgroup, because there are too many cgroups.
    Reclaim = 1,
    /// There are too many pairs of cgroup and device.
    Inode = 2,
    /// There are too many victims at once, or too many cgroups with victims.
    OomKill = 3,
}

impl Untracked {
    pub const COUNT: u32 = 4;
}

/// Buckets of the stall histogram: bucket `i` counts stalls shorter than `1024 << i` ns, the last one all longer stalls.
pub const HISTOGRAM_BUCKETS: usize = 32;
const _: () = assert!(HISTOGRAM_BUCKETS.is_power_of_two(), "the programs mask the index");

/// Returns the histogram bucket of a stall of this length.
#[must_use]
#[inline]
pub const fn histogram_bucket(duration_ns: u64) -> usize {
    let mut rest = duration_ns >> 10;
    if rest >> (HISTOGRAM_BUCKETS - 2) != 0 {
        return HISTOGRAM_BUCKETS - 1;
    }
    // Computes the bit length by bisection: BPF has no instruction that counts leading zeros, and a loop costs 10 ns.
    let mut bits = 0;
    let mut half = HISTOGRAM_BUCKETS / 2;
    while half > 1 {
        if rest >> half != 0 {
            rest >>= half;
            bits += half;
        }
        half /= 2;
    }
    bits + match rest {
        0 => 0,
        1 => 1,
        _ => 2,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct ReclaimKey {
    pub cgroup: u64,
    /// A [`ReclaimKind`].
    pub kind: u32,
    pub reserved: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ReclaimCounters {
    /// The sum of the histogram. The agent computes it. The programs leave it at 0 to save time.
    pub stalls: u64,
    pub stalled_ns: u64,
    pub reclaimed_pages: u64,
    /// Scanned pages of the inactive lists; 0 where the kernel does not report them (MGLRU before 6.7).
    pub scanned_pages: u64,
    /// How often, and for how long, a task was put to sleep inside a stall (Linux 5.16).
    pub throttles: u64,
    pub throttled_ns: u64,
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}

impl ReclaimCounters {
    // SAFETY: all fields are integers.
    pub const ZERO: Self = unsafe { core::mem::zeroed() };

    pub fn add(&mut self, other: &Self) {
        self.stalls += other.stalls;
        self.stalled_ns += other.stalled_ns;
        self.reclaimed_pages += other.reclaimed_pages;
        self.scanned_pages += other.scanned_pages;
        self.throttles += other.throttles;
        self.throttled_ns += other.throttled_ns;
        for (sum, other) in self.histogram.iter_mut().zip(other.histogram) {
            *sum += other;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct InodeKey {
    pub cgroup: u64,
    /// The kernel's own `dev_t`: major << 20 | minor.
    pub device: u32,
    pub reserved: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct InodeCounters {
    pub created: u64,
    /// Inodes removed from the filesystem. On xfs an inode without its last name counts as well.
    pub removed: u64,
    /// Inodes evicted from the inode cache, with or without names.
    pub evicted: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KswapdCounters {
    pub wakes: u64,
    pub active_ns: u64,
    /// The time of the last wake-up; 0 while kswapd is asleep.
    pub woke_at_ns: u64,
    /// Pages of the inactive lists; see [`ReclaimCounters::scanned_pages`].
    pub reclaimed_pages: u64,
    pub scanned_pages: u64,
    /// The id of the node's kswapd thread.
    pub tid: u32,
    pub reserved: u32,
}

impl KswapdCounters {
    // SAFETY: all fields are integers.
    pub const ZERO: Self = unsafe { core::mem::zeroed() };
}

/// Slots for each kind of counters. There are more slots than a node has containers, because counting in an own slot is cheapest.
pub const COUNTER_SLOTS: u32 = 4096;
const _: () = assert!(COUNTER_SLOTS.is_power_of_two(), "the programs mask the index");

/// Room for keys whose slot belongs to another key. With as many keys as slots, about 1,500 keys have no slot.
pub const OTHER_COUNTERS: u32 = 2048;

/// An element of an array of counters, indexed by its key's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Slot<K, V> {
    pub key: K,
    /// 1 once the key is set.
    pub taken: u64,
    pub value: V,
}

const _: () = {
    assert!(EventKind::ALL.len() == EventKind::COUNT as usize);
    assert!(size_of::<EventCounts>() == 24);
    assert!(size_of::<ReclaimKey>() == 16);
    assert!(size_of::<ReclaimCounters>() == 48 + 8 * HISTOGRAM_BUCKETS);
    assert!(size_of::<Slot<ReclaimKey, ReclaimCounters>>() == 24 + size_of::<ReclaimCounters>());
    assert!(size_of::<Slot<InodeKey, InodeCounters>>() == 48);
    assert!(size_of::<InodeKey>() == 16);
    assert!(size_of::<InodeCounters>() == 24);
    assert!(size_of::<KswapdCounters>() == 48);
};

#[cfg(test)]
mod tests {
    use super::{EventKind, HISTOGRAM_BUCKETS, histogram_bucket};

    #[test]
    fn bucket_bounds_are_powers_of_two_of_a_microsecond() {
        for (duration_ns, bucket) in
            [(0, 0), (1023, 0), (1024, 1), (2047, 1), (2048, 2), (u64::MAX, HISTOGRAM_BUCKETS - 1)]
        {
            assert_eq!(histogram_bucket(duration_ns), bucket, "{duration_ns} ns");
        }
    }

    #[test]
    fn buckets_are_the_length_in_bits_of_the_microseconds() {
        for shift in 0..64 {
            for duration_ns in [(1_u64 << shift) - 1, 1 << shift, (1 << shift) + 1] {
                let bits = (u64::BITS - (duration_ns >> 10).leading_zeros()) as usize;
                assert_eq!(histogram_bucket(duration_ns), bits.min(HISTOGRAM_BUCKETS - 1), "{duration_ns} ns");
            }
        }
    }

    #[test]
    fn every_kind_is_found_by_its_number() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_raw(kind.index()), Some(kind));
        }
        assert_eq!(EventKind::from_raw(6), None);
    }
}
