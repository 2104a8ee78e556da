//! Which tracepoints the agent wants, what it reads from them, and what becomes of each on this kernel.

use monitor_ebpf::{FieldOffsets, field};

use super::format::{FormatError, TracepointFormat};

/// One field that a program reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeField {
    /// Where its offset goes in [`FieldOffsets`].
    pub slot: usize,
    pub name: &'static str,
    pub size: u16,
    /// Without it the program is of no use; an optional one is merely absent from the record.
    pub required: bool,
}

/// What a program is attached to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Tracepoint,
    /// The entry of a function of the kernel, by a kprobe: for what no tracepoint tells.
    Function,
}

/// One tracepoint or function, the program for it, and what that is good for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub target: Target,
    /// `kprobe` for a function.
    pub category: &'static str,
    pub event: &'static str,
    /// What is lost without it.
    pub purpose: &'static str,
    /// The program's global that takes the offsets; none when the program reads no field.
    pub layout: Option<&'static str>,
    pub fields: &'static [ProbeField],
    /// Attached only where the tracepoint of this name is not to be had.
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

    /// The offsets that this kernel's format file gives.
    pub fn offsets(&self, format: &TracepointFormat<'_>) -> Result<FieldOffsets, FormatError> {
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

const fn vmscan(
    event: &'static str,
    purpose: &'static str,
    layout: Option<&'static str>,
    fields: &'static [ProbeField],
) -> Probe {
    Probe { target: Target::Tracepoint, category: "vmscan", event, purpose, layout, fields, instead_of: None }
}

const fn inode(category: &'static str, event: &'static str, purpose: &'static str, layout: &'static str) -> Probe {
    Probe { target: Target::Tracepoint, category, event, purpose, layout: Some(layout), fields: DEV, instead_of: None }
}

/// In the order of attachment: an end before its begin, and what completes a record before what opens it.
pub(super) const PROBES: &[Probe] = &[
    vmscan("mm_vmscan_direct_reclaim_end", "reclaim stalls per cgroup", Some("DIRECT_RECLAIM_END"), NR_RECLAIMED),
    vmscan(
        "mm_vmscan_direct_reclaim_begin",
        "wake-up when a task has to reclaim for itself",
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
    Probe {
        target: Target::Tracepoint,
        category: "signal",
        event: "signal_generate",
        purpose: "telling OOM kills from tasks that were dying anyway",
        layout: Some("SIGNAL_GENERATE"),
        fields: &[
            required(field::signal_generate::SIG, "sig", 4),
            required(field::signal_generate::PID, "pid", 4),
            optional(field::signal_generate::CODE, "code", 4),
        ],
        instead_of: None,
    },
    Probe {
        target: Target::Tracepoint,
        category: "sched",
        event: "sched_process_exit",
        purpose: "OOM kills with their victim",
        layout: None,
        fields: &[],
        instead_of: None,
    },
    Probe {
        target: Target::Function,
        category: "kprobe",
        event: "oom_kill_process",
        purpose: "constraint and limit owner of OOM kills",
        layout: None,
        fields: &[],
        instead_of: None,
    },
    Probe {
        target: Target::Tracepoint,
        category: "oom",
        event: "mark_victim",
        purpose: "OOM kills",
        layout: Some("MARK_VICTIM"),
        fields: &[
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
        instead_of: None,
    },
    Probe {
        target: Target::Tracepoint,
        category: "oom",
        event: "oom_score_adj_update",
        purpose: "drift of oom_score_adj",
        layout: Some("OOM_SCORE_ADJ_UPDATE"),
        fields: &[
            required(field::oom_score_adj_update::PID, "pid", 4),
            optional(field::oom_score_adj_update::COMM, "comm", 16),
            required(field::oom_score_adj_update::OOM_SCORE_ADJ, "oom_score_adj", 2),
        ],
        instead_of: None,
    },
    inode("ext4", "ext4_allocate_inode", "inodes made on ext4", "EXT4_ALLOCATE_INODE"),
    inode("ext4", "ext4_free_inode", "inodes removed from ext4", "EXT4_FREE_INODE"),
    inode("ext4", "ext4_evict_inode", "ext4 inodes leaving the cache", "EXT4_EVICT_INODE"),
    // xfs tells of the attempt, in the task that makes it; an inode made without a name (O_TMPFILE) is not told.
    inode("xfs", "xfs_create", "inodes made on xfs", "XFS_CREATE"),
    inode("xfs", "xfs_symlink", "symbolic links made on xfs", "XFS_SYMLINK"),
    // The loss of the last name, in the task that removed it. The inode itself is freed by a worker since 5.14
    // (xfs_inode_inactivating), where nobody can be told apart any more.
    inode("xfs", "xfs_iunlink", "inodes removed from xfs", "XFS_IUNLINK"),
    Probe {
        target: Target::Tracepoint,
        category: "xfs",
        event: "xfs_inode_set_need_inactive",
        purpose: "inodes removed from xfs (counts those with preallocated blocks as well)",
        layout: Some("XFS_INODE_SET_NEED_INACTIVE"),
        fields: DEV,
        instead_of: Some("xfs_iunlink"),
    },
    inode("xfs", "xfs_destroy_inode", "xfs inodes leaving the cache", "XFS_DESTROY_INODE"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use monitor_ebpf::{FieldOffsets, MAX_FIELDS, field::mark_victim};

    use super::{PROBES, Probe};
    use crate::kernel::format::{FormatError, TracepointFormat};

    fn probe(event: &str) -> &'static Probe {
        PROBES.iter().find(|probe| probe.event == event).expect("in the table")
    }

    #[test]
    fn a_pid_only_mark_victim_has_a_pid_and_nothing_else() {
        let format = TracepointFormat::parse("field:int pid;\toffset:8;\tsize:4;\tsigned:1;").expect("parses");
        let offsets = probe("mark_victim").offsets(&format).expect("pid is enough").offsets;
        for (slot, offset) in offsets.into_iter().enumerate() {
            assert_eq!(offset, if slot == mark_victim::PID { 8 } else { FieldOffsets::ABSENT }, "slot {slot}");
        }
    }

    #[test]
    fn an_optional_field_of_another_size_is_absent_and_a_required_one_is_an_error() {
        let text = "field:int pid;\toffset:8;\tsize:4;\tsigned:1;\nfield:uid_t uid;\toffset:12;\tsize:2;\tsigned:0;";
        let format = TracepointFormat::parse(text).expect("parses");
        let offsets = probe("mark_victim").offsets(&format).expect("pid is enough");
        assert_eq!(offsets.offsets[mark_victim::UID], FieldOffsets::ABSENT);
        let format = TracepointFormat::parse("field:long pid;\toffset:8;\tsize:8;\tsigned:1;").expect("parses");
        assert_eq!(
            probe("mark_victim").offsets(&format),
            Err(FormatError::Size { field: "pid", expected: 4, found: 8 })
        );
    }

    #[test]
    fn the_table_holds_together() {
        let events: Vec<_> = PROBES.iter().map(|probe| probe.event).collect();
        assert_eq!(events.iter().collect::<BTreeSet<_>>().len(), PROBES.len(), "each once");
        let place = |event: &str| events.iter().position(|&other| other == event).expect("in the table");
        for (first, then) in [
            ("mm_vmscan_direct_reclaim_end", "mm_vmscan_direct_reclaim_begin"),
            ("mm_vmscan_memcg_reclaim_end", "mm_vmscan_memcg_reclaim_begin"),
            ("signal_generate", "mark_victim"),
            ("sched_process_exit", "mark_victim"),
            ("oom_kill_process", "mark_victim"),
            ("xfs_iunlink", "xfs_inode_set_need_inactive"),
        ] {
            assert!(place(first) < place(then), "{first} before {then}");
        }
        for probe in PROBES {
            let slots: BTreeSet<_> = probe.fields.iter().map(|field| field.slot).collect();
            assert_eq!(slots.len(), probe.fields.len(), "{}: one slot a field", probe.event);
            assert!(slots.iter().all(|&slot| slot < MAX_FIELDS), "{}", probe.event);
            assert_eq!(probe.layout.is_none(), probe.fields.is_empty(), "{}", probe.event);
        }
    }
}
