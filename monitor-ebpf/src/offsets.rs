//! Offsets on the running kernel. The loader fills them in; none is compiled in.

/// How many fields of one tracepoint the programs can use.
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

/// Slots of [`FieldOffsets`], per tracepoint.
pub mod field {
    pub mod reclaim_begin {
        pub const ORDER: usize = 0;
    }
    pub mod reclaim_end {
        pub const NR_RECLAIMED: usize = 0;
    }
    pub mod shrink_inactive {
        pub const NID: usize = 0;
        pub const NR_SCANNED: usize = 1;
        pub const NR_RECLAIMED: usize = 2;
    }
    pub mod throttled {
        pub const USEC_DELAYED: usize = 0;
    }
    pub mod kswapd {
        pub const NID: usize = 0;
        pub const ORDER: usize = 1;
    }
    pub mod signal_generate {
        pub const SIG: usize = 0;
        pub const PID: usize = 1;
        pub const CODE: usize = 2;
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

/// How a program reads the memory cgroup of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Access {
    /// Without BTF, by `bpf_get_current_cgroup_id`.
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
    /// This kernel does not have it.
    pub const ABSENT: u32 = u32::MAX;
    /// No BTF. The non-zero filler keeps the static in `.rodata`, see [`FieldOffsets::ABSENT`].
    pub const UNKNOWN: Self = Self {
        access: Access::Helper as u32,
        task_pid: Self::ABSENT,
        task_cgroups: Self::ABSENT,
        css_set_memory: Self::ABSENT,
        css_cgroup: Self::ABSENT,
        cgroup_kn: Self::ABSENT,
        kn_id: Self::ABSENT,
        kn_name: Self::ABSENT,
        kn_parent: Self::ABSENT,
        task_leader: Self::ABSENT,
        task_start: Self::ABSENT,
        oom_memcg: Self::ABSENT,
        oom_constraint: Self::ABSENT,
        oom_order: Self::ABSENT,
        memcg_css: Self::ABSENT,
        first_argument: Self::ABSENT,
    };
}

const _: () = {
    assert!(size_of::<FieldOffsets>() == 2 * MAX_FIELDS);
    assert!(size_of::<KernelOffsets>() == 64);
};
