//! Facts reported about proactive reclaim.

use std::time::Duration;

use crate::eviction::MetThreshold;
use crate::eviction::proactive_reclaim::{Futile, ReclaimOutcome};
use crate::units::{Bytes, CgroupId};

/// One write to a workload's `memory.reclaim`, and its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReclaimAttempt {
    pub workload: String,
    pub id: CgroupId,
    pub requested: Bytes,
    /// Decrease of the workload's usage during the write.
    pub freed: Bytes,
    /// Available memory of the node before the write; the next field has it after the write.
    pub available_before: Bytes,
    pub available_after: Bytes,
    pub took: Duration,
    pub outcome: ReclaimOutcome,
}

#[derive(Debug, Clone, Copy)]
pub enum ReclaimRecord<'r> {
    Ended(&'r ReclaimAttempt),
    /// No workload can release the missing amount of memory.
    Futile {
        met: &'r MetThreshold,
        futile: Futile,
    },
    /// The write was refused.
    Refused {
        workload: &'r str,
        reason: &'r str,
    },
    /// Observe mode.
    DryRun {
        met: &'r MetThreshold,
        workload: &'r str,
        requested: Bytes,
    },
}

impl ReclaimRecord<'_> {
    pub const fn outcome(&self) -> ReclaimOutcome {
        match self {
            Self::Ended(attempt) => attempt.outcome,
            Self::Refused { .. } => ReclaimOutcome::Refused,
            Self::Futile { .. } | Self::DryRun { .. } => ReclaimOutcome::Skipped,
        }
    }
}
