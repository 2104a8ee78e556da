//! Offsets on the running kernel. The loader sets them; none is compiled in.

/// The most fields of one tracepoint that the programs can use.
pub const MAX_FIELDS: usize = 10;

/// Offsets of one tracepoint's fields, from its `format` file, indexed by `field::…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FieldOffsets {
    pub offsets: [u16; MAX_FIELDS],
}

impl FieldOffsets {
    /// This kernel's tracepoint has no such field. Not zero, because an all-zero static would not be placed in `.rodata`.
    pub const ABSENT: u16 = u16::MAX;
    pub const NONE: Self = Self { offsets: [Self::ABSENT; MAX_FIELDS] };
}

macro_rules! fields {
    ($($tracepoint:ident: $($field:ident = $slot:literal),+;)+) => {
        $(pub mod $tracepoint { $(pub const $field: usize = $slot;)+ })+
    };
}

/// Slots of [`FieldOffsets`], per tracepoint.
pub mod field {
    fields! {
        reclaim_begin: ORDER = 0;
        reclaim_end: NR_RECLAIMED = 0;
        shrink_inactive: NID = 0, NR_SCANNED = 1, NR_RECLAIMED = 2;
        throttled: USEC_DELAYED = 0;
        kswapd: NID = 0, ORDER = 1;
        signal_generate: SIG = 0, PID = 1, CODE = 2;
        mark_victim: PID = 0, COMM = 1, TOTAL_VM = 2, ANON_RSS = 3, FILE_RSS = 4, SHMEM_RSS = 5, UID = 6, PGTABLES = 7,
            OOM_SCORE_ADJ = 8;
        oom_score_adj_update: PID = 0, COMM = 1, OOM_SCORE_ADJ = 2;
        inode: DEV = 0;
    }
}

/// How a program reads the memory cgroup of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Access {
    /// By `bpf_get_current_cgroup_id`, on kernels without BTF.
    Helper = 0,
    /// By `bpf_probe_read_kernel`, one call per step.
    ProbeRead = 1,
    /// By plain loads that the verifier checks against the kernel's BTF (`bpf_get_current_task_btf`, 5.11).
    Load = 2,
}

/// Byte offsets inside the kernel's structs, from the running kernel's BTF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct KernelOffsets {
    /// An [`Access`]. Unless it is `Helper`, the five steps to the cgroup and `kn_id` are present.
    pub access: u32,
    /// `task_struct.pid`, the id of the thread
    pub task_pid: u32,
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
    /// `kernfs_node.name`
    pub kn_name: u32,
    /// `kernfs_node.parent`; `__parent` since 6.15
    pub kn_parent: u32,
    /// `task_struct.group_leader`
    pub task_leader: u32,
    /// `task_struct.start_time`
    pub task_start: u32,
    /// `oom_control.memcg`
    pub oom_memcg: u32,
    /// `oom_control.constraint`
    pub oom_constraint: u32,
    /// `oom_control.order`
    pub oom_order: u32,
    /// `mem_cgroup.css`
    pub memcg_css: u32,
    /// Offset of the first argument in a kprobe's registers
    pub first_argument: u32,
}

impl KernelOffsets {
    /// The value for a member that this kernel does not have.
    pub const ABSENT: u32 = u32::MAX;
    /// The offsets without BTF. The non-zero filler keeps the static in `.rodata`, see [`FieldOffsets::ABSENT`].
    pub const UNKNOWN: Self = Self {
        access: Access::Helper as u32,
        // SAFETY: all fields are 32-bit integers; the sizes are compared at compile time.
        ..unsafe { core::mem::transmute::<[u32; 16], Self>([Self::ABSENT; 16]) }
    };
}

const _: () = {
    assert!(size_of::<FieldOffsets>() == 2 * MAX_FIELDS);
    assert!(size_of::<KernelOffsets>() == 64);
};
