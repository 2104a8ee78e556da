//! State that the loop keeps from earlier turns.

use std::collections::HashSet;
use std::time::Duration;

use crate::actions::oom_score::Extent;
use crate::units::{CgroupId, Monotonic, Pid};

/// Times of the last periodic work.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) housekeeping: Option<Monotonic>,
    /// When the counters of removed cgroups were dropped.
    pub(super) let_go: Option<Monotonic>,
}

/// Audits of `oom_score_adj`.
#[derive(Debug, Default)]
pub(super) struct Audits {
    /// Workloads in which a value may have changed.
    pub(super) due: Extent,
    /// Processes whose value was written; few enough to be looked up one by one.
    pub(super) written: HashSet<Pid>,
    /// When the last audit was.
    pub(super) at: Option<Monotonic>,
    /// Duration of the last audit, or of the present one so far.
    pub(super) took: Duration,
    /// Processes that the last audit left with a wrong value.
    pub(super) drifted: usize,
    /// Workloads whose drift was reported.
    pub(super) reported: HashSet<CgroupId>,
}

/// Above this number of written processes all processes are audited.
const MOST_WRITTEN: usize = 64;

impl Audits {
    /// Notes a write of the process's `oom_score_adj`.
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
