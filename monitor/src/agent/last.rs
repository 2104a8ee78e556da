//! What the loop remembers of earlier turns.

use std::collections::HashSet;
use std::time::Duration;

use crate::actions::oom_score::Extent;
use crate::units::{CgroupId, Monotonic, Pid};

/// When what is done now and then was done last.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) housekeeping: Option<Monotonic>,
    /// When counters of what is gone were last let go of.
    pub(super) let_go: Option<Monotonic>,
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
    /// Workloads of which that was reported.
    pub(super) reported: HashSet<CgroupId>,
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
