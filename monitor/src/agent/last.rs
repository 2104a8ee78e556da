//! What the loop remembers of earlier looks.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::actions::oom_score::Extent;
use crate::eviction::{Assessment, SignalValue};
use crate::node::{MemorySample, RootUsage};
use crate::units::Monotonic;
use crate::units::{Bytes, CgroupId, Pid};

use super::pauses::Pauses;

/// The last look, and when what is done now and then was done last.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) assessment: Assessment,
    /// Thresholds, by their place among the armed ones, of which it was said that they are met, and not that they no longer are.
    pub(super) told_met: HashSet<usize>,
    pub(super) sample: Option<MemorySample>,
    pub(super) root_usage: RootUsage,
    /// The signals beside memory.
    pub(super) others: Vec<SignalValue>,
    /// What was seen and not handed on yet: a look takes two samples at most.
    pub(super) unnoted: Vec<(Monotonic, Bytes)>,
    pub(super) scan: Scan,
    pub(super) housekeeping: Option<Monotonic>,
    /// When counters of what is gone were last let go of.
    pub(super) let_go: Option<Monotonic>,
    /// When the report was last made.
    pub(super) reported: Option<Monotonic>,
    /// For which thresholds it was just worked out whom to evict, or that nobody can be.
    pub(super) answered: Pauses,
    /// The earliest time at which a refused eviction may be tried again.
    pub(super) retry: Option<Monotonic>,
    /// The ring held more than one look takes.
    pub(super) ring_has_more: bool,
}

/// When the workload tree was scanned, and how long that took.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Scan {
    pub(super) at: Option<Monotonic>,
    pub(super) took: Duration,
}

/// Cgroups that are in the kernel's maps and not, or no longer, in the tree.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// Gone, to be let go of at the next housekeeping.
    pub(super) forgotten: HashSet<CgroupId>,
    /// No scan has seen them.
    pub(super) unowned: HashSet<CgroupId>,
    /// The same, and for how many rounds of housekeeping.
    pub(super) unknown: HashMap<CgroupId, u32>,
}

/// Audits of `oom_score_adj`.
#[derive(Debug, Default)]
pub(super) struct Audits {
    /// In these one may have changed.
    pub(super) due: Extent,
    /// Of these processes somebody wrote it; few enough to be looked up one by one.
    pub(super) written: HashSet<Pid>,
    /// When the last one was.
    pub(super) at: Option<Monotonic>,
    /// How long it took, or has taken yet.
    pub(super) took: Duration,
    /// Processes that it left with another value than they should have.
    pub(super) drifted: usize,
    /// Workloads of which that was said.
    pub(super) told: HashSet<CgroupId>,
}

/// Where more processes had theirs written, everybody's is looked at.
const MOST_WRITTEN: usize = 64;

impl Audits {
    /// Takes note that somebody wrote this process's.
    pub(super) fn note_write(&mut self, pid: Pid) {
        if self.written.len() < MOST_WRITTEN {
            self.written.insert(pid);
        } else {
            self.due = Extent::All;
        }
    }

    pub(super) fn are_due(&self) -> bool {
        !self.due.is_empty() || !self.written.is_empty()
    }
}
