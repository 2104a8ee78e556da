//! The records in the ring buffer.

use crate::{COMM_LEN, EventKind};

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Header {
    /// The time in `CLOCK_MONOTONIC` nanoseconds.
    pub at_ns: u64,
    /// An [`EventKind`].
    pub kind: u32,
    /// Presence bits; see the constants of each record.
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
    /// The process (thread group) that stalled. The next field is the thread.
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
    /// When the OOM killer was invoked; 0 if unknown. The time is equal for all victims of one invocation.
    pub invoked_at_ns: u64,
    pub trigger_cgroup: u64,
    /// The marked thread. It equals the process id except in multi-threaded victims.
    pub victim_tid: u32,
    pub trigger_pid: u32,
    pub trigger_tid: u32,
    pub reserved: u32,
    pub trigger_comm: [u8; COMM_LEN],
}

impl OomMark {
    /// The victim was already exiting for another reason, so nothing was killed (`task_will_free_mem`).
    pub const ALREADY_DYING: u32 = 1;
}

/// An OOM kill without the path. Sizes are in KiB, as in the tracepoint.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct OomKill {
    pub header: Header,
    pub marked_at_ns: u64,
    /// When the OOM killer was invoked, equal for all victims of one invocation.
    pub invoked_at_ns: u64,
    pub started_at_ns: u64,
    pub victim_cgroup: u64,
    pub trigger_cgroup: u64,
    /// The cgroup whose limit was hit.
    pub limit_cgroup: u64,
    pub total_vm_kib: u64,
    pub anon_rss_kib: u64,
    pub file_rss_kib: u64,
    pub shmem_rss_kib: u64,
    pub pgtables_kib: u64,
    pub victim_tid: u32,
    pub victim_pid: u32,
    pub trigger_pid: u32,
    pub trigger_tid: u32,
    pub uid: u32,
    pub oom_score_adj: i32,
    /// The kernel's `enum oom_constraint`: none, cpuset, memory policy, memcg.
    pub constraint: u32,
    pub order: i32,
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
    pub const HAS_INVOCATION: u32 = 1 << 9;
    pub const HAS_CONSTRAINT: u32 = 1 << 10;
    pub const HAS_ORDER: u32 = 1 << 11;
    pub const HAS_LIMIT_CGROUP: u32 = 1 << 12;
    pub const HAS_START: u32 = 1 << 13;

    pub const EMPTY: Self = Self {
        header: Header { at_ns: 0, kind: EventKind::OomKill as u32, flags: 0 },
        // SAFETY: all fields are integers.
        ..unsafe { core::mem::zeroed() }
    };
}

/// Levels of a cgroup's path in a record; a container's scope is the fourth or fifth.
pub const PATH_LEVELS: usize = 8;
/// Bytes for the names of all levels, terminating zeros included.
pub const PATH_TEXT: usize = 256;

/// A cgroup's path as the kernel has it, from the leaf up.
///
/// The path is the only trace of the cgroup if the cgroup is removed before a process can read it in the filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct CgroupPath {
    /// The id of each level, without the root.
    pub ids: [u64; PATH_LEVELS],
    pub levels: u32,
    /// 1 if the path continues above the last level, or if a name was truncated.
    pub truncated: u32,
    /// The used length of `text`.
    pub text_bytes: u32,
    pub reserved: u32,
    /// The names, each with a terminating zero.
    pub text: [u8; PATH_TEXT],
}

impl CgroupPath {
    // SAFETY: all fields are integers.
    pub const EMPTY: Self = unsafe { core::mem::zeroed() };
}

/// The record of an OOM kill.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct OomKillRecord {
    pub kill: OomKill,
    pub path: CgroupPath,
}

#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct OomScoreAdj {
    pub header: Header,
    /// The thread whose value was written, as in the tracepoint.
    pub pid: u32,
    pub oom_score_adj: i32,
    /// Process (thread group) that wrote it.
    pub writer_pid: u32,
    pub reserved: u32,
    pub comm: [u8; COMM_LEN],
}

const _: () = {
    assert!(size_of::<Header>() == 16);
    assert!(size_of::<KswapdWake>() == 24);
    assert!(size_of::<DirectReclaim>() == 32);
    assert!(size_of::<Stall>() == 72);
    assert!(size_of::<OomMark>() == 64);
    assert!(size_of::<OomKill>() == 168);
    assert!(size_of::<CgroupPath>() == 8 * PATH_LEVELS + 16 + PATH_TEXT);
    assert!(size_of::<OomKillRecord>() == size_of::<OomKill>() + size_of::<CgroupPath>());
    assert!(size_of::<OomScoreAdj>() == 48);
};
