//! What the kernel side and the agent both know: event records, map keys and values, and the table slots that carry offsets.
//!
//! Every type is `repr(C)`, has no implicit padding and a size that is asserted here, so that both compilations agree or fail.
#![no_std]

mod offsets;
mod records;

pub use offsets::{Access, FieldOffsets, KernelOffsets, MAX_FIELDS, field};
pub use records::{
    CgroupPath, DirectReclaim, Header, KswapdWake, OomKill, OomKillRecord, OomMark, OomScoreAdj, PATH_LEVELS,
    PATH_TEXT, Stall,
};

/// Length of a task's `comm`, terminating zero included (`TASK_COMM_LEN`).
pub const COMM_LEN: usize = 16;

/// What a record in the ring is about; also the index of its counters in `COUNTS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// kswapd was woken. A doorbell: rate-limited in the kernel.
    KswapdWake = 0,
    /// A task entered direct reclaim. A doorbell: rate-limited in the kernel.
    DirectReclaim = 1,
    /// A task left reclaim after more than the threshold.
    Stall = 2,
    /// The OOM killer marked a victim; the running task is the allocator.
    OomMark = 3,
    /// A marked victim is exiting; the running task was the victim.
    OomKill = 4,
    /// Somebody other than the agent wrote an `oom_score_adj`.
    OomScoreAdj = 5,
}

impl EventKind {
    /// Every kind, in the order of its index.
    pub const ALL: [Self; 6] =
        [Self::KswapdWake, Self::DirectReclaim, Self::Stall, Self::OomMark, Self::OomKill, Self::OomScoreAdj];

    /// How many kinds there are, as the size of a map.
    pub const COUNT: u32 = 6;

    /// The kind with this number, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::KswapdWake),
            1 => Some(Self::DirectReclaim),
            2 => Some(Self::Stall),
            3 => Some(Self::OomMark),
            4 => Some(Self::OomKill),
            5 => Some(Self::OomScoreAdj),
            _ => None,
        }
    }

    /// Index into the per-kind counters.
    #[must_use]
    pub const fn index(self) -> u32 {
        self as u32
    }
}

/// Who reclaims on whose behalf.
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

/// Per CPU and [`EventKind`]; `generated` is counted before the reservation, so generated = delivered + lost + malformed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EventCounts {
    pub generated: u64,
    /// The ring was full.
    pub lost: u64,
    /// Doorbells that came too soon after the one before; never generated.
    pub suppressed: u64,
}

/// What could not be counted, mostly because a map was full; index into the per-CPU array `UNTRACKED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Untracked {
    /// The stall's begin was not seen, or found no place among too many: the stall is missed.
    Stall = 0,
    /// Too many cgroups: the stall is in no cgroup's account.
    Reclaim = 1,
    /// Too many pairs of cgroup and device.
    Inode = 2,
    /// Too many victims at once, or too many cgroups with victims.
    OomKill = 3,
}

impl Untracked {
    pub const COUNT: u32 = 4;
}

/// Buckets of the stall histogram: bucket `i` holds stalls shorter than `1024 << i` ns, the last one all the rest.
pub const HISTOGRAM_BUCKETS: usize = 32;
const _: () = assert!(HISTOGRAM_BUCKETS.is_power_of_two(), "the programs mask the index");

/// Index of the histogram's bucket for a stall of this length.
#[must_use]
#[inline]
pub const fn histogram_bucket(duration_ns: u64) -> usize {
    let mut rest = duration_ns >> 10;
    if rest >> (HISTOGRAM_BUCKETS - 2) != 0 {
        return HISTOGRAM_BUCKETS - 1;
    }
    // The length in bits, by halves: BPF has no instruction that counts leading zeros, and the long way round costs 10 ns.
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
    /// The sum of the histogram: left at 0 by the programs, which have better to do than to count twice.
    pub stalls: u64,
    pub stalled_ns: u64,
    pub reclaimed_pages: u64,
    /// Pages of the inactive lists that were looked at; stays 0 where the kernel does not tell (MGLRU before 6.7).
    pub scanned_pages: u64,
    /// How often, and how long, a task was put to sleep inside a stall (5.16).
    pub throttles: u64,
    pub throttled_ns: u64,
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}

impl ReclaimCounters {
    pub const ZERO: Self = Self {
        stalls: 0,
        stalled_ns: 0,
        reclaimed_pages: 0,
        scanned_pages: 0,
        throttles: 0,
        throttled_ns: 0,
        histogram: [0; HISTOGRAM_BUCKETS],
    };

    /// Adds what was counted elsewhere for the same.
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
    /// Gone from the file system, or (xfs) without its last name.
    pub removed: u64,
    /// Left the inode cache, linked or not.
    pub evicted: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KswapdCounters {
    pub wakes: u64,
    pub active_ns: u64,
    /// When it last woke; 0 while asleep.
    pub woke_at_ns: u64,
    /// Of the inactive lists, as far as the kernel tells; see [`ReclaimCounters::scanned_pages`].
    pub reclaimed_pages: u64,
    pub scanned_pages: u64,
    /// The thread of this node.
    pub tid: u32,
    pub reserved: u32,
}

impl KswapdCounters {
    pub const ZERO: Self =
        Self { wakes: 0, active_ns: 0, woke_at_ns: 0, reclaimed_pages: 0, scanned_pages: 0, tid: 0, reserved: 0 };
}

/// Slots of each kind of counters: more than a node has containers, for a slot of one's own is the cheap way to count.
pub const COUNTER_SLOTS: u32 = 4096;
const _: () = assert!(COUNTER_SLOTS.is_power_of_two(), "the programs mask the index");

/// Room for keys whose slot is another's: with as many keys as slots, about 1,500 of them.
pub const OTHER_COUNTERS: u32 = 2048;

/// An element of an array of counters, found by its key's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Slot<K, V> {
    pub key: K,
    /// 1 once the key is there.
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
