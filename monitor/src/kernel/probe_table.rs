//! The probes that the agent uses, and the fields that it reads from them.

use monitor_ebpf::{FieldOffsets, field};

use super::tracepoint_format::TracepointFormat;

#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeField {
    /// The index of its offset in [`FieldOffsets`].
    pub slot: usize,
    pub name: &'static str,
    pub size: u16,
    /// Without a required field the program is useless; an optional one is absent from the record.
    pub required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Tracepoint,
    /// The entry of a kernel function, by a kprobe, for what no tracepoint reports.
    Function,
}

/// A tracepoint or function, and the program for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub target: Target,
    pub category: &'static str,
    pub event: &'static str,
    /// The effect of its absence.
    pub purpose: &'static str,
    /// The program's global for the offsets; `None` when the program reads no field.
    pub layout: Option<&'static str>,
    pub fields: &'static [ProbeField],
    /// Attached only if the tracepoint of this name cannot be.
    pub instead_of: Option<&'static str>,
}

impl Probe {
    /// Programs are named after their tracepoint or function.
    pub const fn program(&self) -> &'static str {
        self.event
    }

    pub fn name(&self) -> String {
        format!("{}:{}", self.category, self.event)
    }

    /// Returns the offsets of the fields in this kernel's format file.
    pub fn offsets(&self, format: &TracepointFormat<'_>) -> Result<FieldOffsets, String> {
        let mut offsets = FieldOffsets::NONE;
        for wanted in self.fields {
            match (format.require(wanted.name, wanted.size), offsets.offsets.get_mut(wanted.slot)) {
                (Ok(offset), Some(slot)) => *slot = offset,
                (Err(error), _) if wanted.required => return Err(error),
                _ => {}
            }
        }
        Ok(offsets)
    }
}

const fn required(slot: usize, name: &'static str, size: u16) -> ProbeField {
    ProbeField { slot, name, size, required: true }
}

const fn optional(slot: usize, name: &'static str, size: u16) -> ProbeField {
    ProbeField { slot, name, size, required: false }
}

const NR_RECLAIMED: &[ProbeField] = &[optional(field::reclaim_end::NR_RECLAIMED, "nr_reclaimed", 8)];
const NID: ProbeField = required(field::kswapd::NID, "nid", 4);
const DEV: &[ProbeField] = &[required(field::inode::DEV, "dev", 4)];

const fn tracepoint(
    category: &'static str,
    event: &'static str,
    purpose: &'static str,
    layout: Option<&'static str>,
    fields: &'static [ProbeField],
) -> Probe {
    Probe { target: Target::Tracepoint, category, event, purpose, layout, fields, instead_of: None }
}

const fn vmscan(
    event: &'static str,
    purpose: &'static str,
    layout: Option<&'static str>,
    fields: &'static [ProbeField],
) -> Probe {
    tracepoint("vmscan", event, purpose, layout, fields)
}

const fn inode(category: &'static str, event: &'static str, purpose: &'static str, layout: &'static str) -> Probe {
    tracepoint(category, event, purpose, Some(layout), DEV)
}

/// In attachment order: the end of a pair before its begin, and what completes a record before what opens it.
pub(super) const PROBES: &[Probe] = &[
    vmscan("mm_vmscan_direct_reclaim_end", "reclaim stalls per cgroup", Some("DIRECT_RECLAIM_END"), NR_RECLAIMED),
    vmscan(
        "mm_vmscan_direct_reclaim_begin",
        "wake-up when a task enters direct reclaim",
        Some("DIRECT_RECLAIM_BEGIN"),
        &[optional(field::reclaim_begin::ORDER, "order", 4)],
    ),
    vmscan("mm_vmscan_memcg_reclaim_end", "stalls at a cgroup's own limit", Some("MEMCG_RECLAIM_END"), NR_RECLAIMED),
    vmscan("mm_vmscan_memcg_reclaim_begin", "stalls at a cgroup's own limit", None, &[]),
    vmscan(
        "mm_vmscan_lru_shrink_inactive",
        "pages scanned by reclaim",
        Some("SHRINK_INACTIVE"),
        &[
            required(field::shrink_inactive::NID, "nid", 4),
            required(field::shrink_inactive::NR_SCANNED, "nr_scanned", 8),
            optional(field::shrink_inactive::NR_RECLAIMED, "nr_reclaimed", 8),
        ],
    ),
    vmscan(
        "mm_vmscan_throttled",
        "throttled reclaim",
        Some("THROTTLED"),
        &[required(field::throttled::USEC_DELAYED, "usec_delayed", 4)],
    ),
    vmscan("mm_vmscan_kswapd_sleep", "kswapd's activity", Some("KSWAPD_SLEEP"), &[NID]),
    vmscan(
        "mm_vmscan_kswapd_wake",
        "wake-up when the node falls below its low watermark",
        Some("KSWAPD_WAKE"),
        &[NID, optional(field::kswapd::ORDER, "order", 4)],
    ),
    tracepoint(
        "signal",
        "signal_generate",
        "distinguishing OOM kills from tasks that were already exiting",
        Some("SIGNAL_GENERATE"),
        &[
            required(field::signal_generate::SIG, "sig", 4),
            required(field::signal_generate::PID, "pid", 4),
            optional(field::signal_generate::CODE, "code", 4),
        ],
    ),
    tracepoint("sched", "sched_process_exit", "OOM kills with their victim", None, &[]),
    Probe {
        target: Target::Function,
        ..tracepoint("kprobe", "oom_kill_process", "constraint and limit owner of OOM kills", None, &[])
    },
    tracepoint(
        "oom",
        "mark_victim",
        "OOM kills",
        Some("MARK_VICTIM"),
        &[
            required(field::mark_victim::PID, "pid", 4),
            optional(field::mark_victim::COMM, "comm", 4),
            optional(field::mark_victim::TOTAL_VM, "total_vm", 8),
            optional(field::mark_victim::ANON_RSS, "anon_rss", 8),
            optional(field::mark_victim::FILE_RSS, "file_rss", 8),
            optional(field::mark_victim::SHMEM_RSS, "shmem_rss", 8),
            optional(field::mark_victim::UID, "uid", 4),
            optional(field::mark_victim::PGTABLES, "pgtables", 8),
            optional(field::mark_victim::OOM_SCORE_ADJ, "oom_score_adj", 2),
        ],
    ),
    tracepoint(
        "oom",
        "oom_score_adj_update",
        "drift of oom_score_adj",
        Some("OOM_SCORE_ADJ_UPDATE"),
        &[
            required(field::oom_score_adj_update::PID, "pid", 4),
            optional(field::oom_score_adj_update::COMM, "comm", 16),
            required(field::oom_score_adj_update::OOM_SCORE_ADJ, "oom_score_adj", 2),
        ],
    ),
    inode("ext4", "ext4_allocate_inode", "inodes created on ext4", "EXT4_ALLOCATE_INODE"),
    inode("ext4", "ext4_free_inode", "inodes removed from ext4", "EXT4_FREE_INODE"),
    inode("ext4", "ext4_evict_inode", "ext4 inodes leaving the cache", "EXT4_EVICT_INODE"),
    // xfs reports the attempt, in the task that makes it. An inode created without a name (O_TMPFILE) is not reported.
    inode("xfs", "xfs_create", "inodes created on xfs", "XFS_CREATE"),
    inode("xfs", "xfs_symlink", "symbolic links created on xfs", "XFS_SYMLINK"),
    // The removal of the last name, in the task that removes it. Since 5.14 a worker frees the inode itself (xfs_inode_inactivating), where
    // the task is unknown.
    inode("xfs", "xfs_iunlink", "inodes removed from xfs", "XFS_IUNLINK"),
    Probe {
        instead_of: Some("xfs_iunlink"),
        ..inode(
            "xfs",
            "xfs_inode_set_need_inactive",
            "inodes removed from xfs (also counts those with preallocated blocks)",
            "XFS_INODE_SET_NEED_INACTIVE",
        )
    },
    inode("xfs", "xfs_destroy_inode", "xfs inodes leaving the cache", "XFS_DESTROY_INODE"),
];

#[cfg(test)]
#[path = "probe_table_tests.rs"]
mod tests;
