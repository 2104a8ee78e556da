//! What the kernel side and the agent both know: event records, map keys and values, and the table slots that carry offsets.
//!
//! Every type is `repr(C)`, has no implicit padding and a size that is asserted here, so that both compilations agree or fail.
#![no_std]

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

/// Head of every record.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Header {
    /// `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// An [`EventKind`].
    pub kind: u32,
    /// Presence bits, see the constants beside each record.
    pub flags: u32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KswapdWake {
    pub header: Header,
    pub node: i32,
    pub order: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DirectReclaim {
    pub header: Header,
    pub cgroup: u64,
    pub pid: u32,
    pub order: i32,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Stall {
    pub header: Header,
    pub cgroup: u64,
    pub duration_ns: u64,
    pub reclaimed_pages: u64,
    /// Process (thread group) and thread that stalled.
    pub pid: u32,
    pub tid: u32,
    /// A [`ReclaimKind`].
    pub kind: u32,
    pub reserved: u32,
    pub comm: [u8; COMM_LEN],
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct OomMark {
    pub header: Header,
    pub trigger_cgroup: u64,
    /// The thread that was marked, by its thread id: the process's own id in all but multi-threaded victims.
    pub victim_tid: u32,
    pub trigger_pid: u32,
    pub trigger_comm: [u8; COMM_LEN],
}

impl OomMark {
    /// The victim was dying already, from something else than the OOM killer: nothing was killed (`task_will_free_mem`).
    pub const ALREADY_DYING: u32 = 1;
}

/// Sizes are in KiB, as the tracepoint gives them.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct OomKill {
    pub header: Header,
    pub marked_at_ns: u64,
    pub victim_cgroup: u64,
    pub trigger_cgroup: u64,
    pub total_vm_kib: u64,
    pub anon_rss_kib: u64,
    pub file_rss_kib: u64,
    pub shmem_rss_kib: u64,
    pub pgtables_kib: u64,
    pub victim_tid: u32,
    pub victim_pid: u32,
    pub trigger_pid: u32,
    pub uid: u32,
    pub oom_score_adj: i32,
    pub reserved: u32,
    pub victim_comm: [u8; COMM_LEN],
    pub trigger_comm: [u8; COMM_LEN],
}

impl OomKill {
    pub const HAS_VICTIM_CGROUP: u32 = 1;
    pub const HAS_COMM: u32 = 1 << 1;
    pub const HAS_TOTAL_VM: u32 = 1 << 2;
    pub const HAS_ANON_RSS: u32 = 1 << 3;
    pub const HAS_FILE_RSS: u32 = 1 << 4;
    pub const HAS_SHMEM_RSS: u32 = 1 << 5;
    pub const HAS_PGTABLES: u32 = 1 << 6;
    pub const HAS_UID: u32 = 1 << 7;
    pub const HAS_OOM_SCORE_ADJ: u32 = 1 << 8;
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct OomScoreAdj {
    pub header: Header,
    /// The thread whose value was written, as the tracepoint names it.
    pub pid: u32,
    pub oom_score_adj: i32,
    /// Process (thread group) that wrote it.
    pub writer_pid: u32,
    pub reserved: u32,
    pub comm: [u8; COMM_LEN],
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

/// What could not be counted because a map was full; index into the per-CPU array `UNTRACKED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Untracked {
    /// Too many tasks in reclaim at once: the stall is missed.
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
    let bucket = (u64::BITS - (duration_ns >> 10).leading_zeros()) as usize;
    if bucket < HISTOGRAM_BUCKETS { bucket } else { HISTOGRAM_BUCKETS - 1 }
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
    pub stalls: u64,
    pub stalled_ns: u64,
    pub reclaimed_pages: u64,
    pub histogram: [u64; HISTOGRAM_BUCKETS],
}

impl ReclaimCounters {
    pub const ZERO: Self = Self { stalls: 0, stalled_ns: 0, reclaimed_pages: 0, histogram: [0; HISTOGRAM_BUCKETS] };
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
}

/// How many fields of one tracepoint the programs can use.
pub const MAX_FIELDS: usize = 10;

/// Where one tracepoint's fields are on the running kernel; filled in at load from its `format` file, indexed by `field::…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FieldOffsets {
    pub offsets: [u16; MAX_FIELDS],
}

impl FieldOffsets {
    /// This kernel's tracepoint has no such field. Not zero: an all-zero static would leave `.rodata`.
    pub const ABSENT: u16 = u16::MAX;
    pub const NONE: Self = Self { offsets: [Self::ABSENT; MAX_FIELDS] };
}

/// Slots of [`FieldOffsets`], per tracepoint.
pub mod field {
    pub mod reclaim_begin {
        pub const ORDER: usize = 0;
    }
    pub mod reclaim_end {
        pub const NR_RECLAIMED: usize = 0;
    }
    pub mod kswapd {
        pub const NID: usize = 0;
        pub const ORDER: usize = 1;
    }
    pub mod signal_generate {
        pub const SIG: usize = 0;
        pub const PID: usize = 1;
    }
    pub mod mark_victim {
        pub const PID: usize = 0;
        pub const COMM: usize = 1;
        pub const TOTAL_VM: usize = 2;
        pub const ANON_RSS: usize = 3;
        pub const FILE_RSS: usize = 4;
        pub const SHMEM_RSS: usize = 5;
        pub const UID: usize = 6;
        pub const PGTABLES: usize = 7;
        pub const OOM_SCORE_ADJ: usize = 8;
    }
    pub mod oom_score_adj_update {
        pub const PID: usize = 0;
        pub const COMM: usize = 1;
        pub const OOM_SCORE_ADJ: usize = 2;
    }
    pub mod inode {
        pub const DEV: usize = 0;
    }
}

/// Byte offsets of the walk from a task to its memory cgroup's id, from the running kernel's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct CgroupWalk {
    /// 1 when the offsets hold; otherwise `bpf_get_current_cgroup_id` is the source.
    pub known: u32,
    /// `task_struct.cgroups`
    pub task_cgroups: u32,
    /// `css_set.subsys[memory_cgrp_id]`
    pub css_set_memory: u32,
    /// `cgroup_subsys_state.cgroup`
    pub css_cgroup: u32,
    /// `cgroup.kn`
    pub cgroup_kn: u32,
    /// `kernfs_node.id`
    pub kn_id: u32,
}

impl CgroupWalk {
    /// No BTF. The filler keeps the static in `.rodata`, see [`FieldOffsets::ABSENT`].
    pub const UNKNOWN: Self = Self {
        known: 0,
        task_cgroups: u32::MAX,
        css_set_memory: u32::MAX,
        css_cgroup: u32::MAX,
        cgroup_kn: u32::MAX,
        kn_id: u32::MAX,
    };
}

const _: () = {
    assert!(EventKind::ALL.len() == EventKind::COUNT as usize);
    assert!(size_of::<Header>() == 16);
    assert!(size_of::<KswapdWake>() == 24);
    assert!(size_of::<DirectReclaim>() == 32);
    assert!(size_of::<Stall>() == 72);
    assert!(size_of::<OomMark>() == 48);
    assert!(size_of::<OomKill>() == 136);
    assert!(size_of::<OomScoreAdj>() == 48);
    assert!(size_of::<EventCounts>() == 24);
    assert!(size_of::<ReclaimKey>() == 16);
    assert!(size_of::<ReclaimCounters>() == 24 + 8 * HISTOGRAM_BUCKETS);
    assert!(size_of::<InodeKey>() == 16);
    assert!(size_of::<InodeCounters>() == 24);
    assert!(size_of::<KswapdCounters>() == 24);
    assert!(size_of::<FieldOffsets>() == 2 * MAX_FIELDS);
    assert!(size_of::<CgroupWalk>() == 24);
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
    fn every_kind_is_found_by_its_number() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_raw(kind.index()), Some(kind));
        }
        assert_eq!(EventKind::from_raw(6), None);
    }
}
