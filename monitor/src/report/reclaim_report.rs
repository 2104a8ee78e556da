//! Facts reported about proactive reclaim.

use crate::actions::ReclaimAttempt;
use crate::eviction::MetThreshold;
use crate::eviction::proactive_reclaim::{Futile, ReclaimOutcome};
use crate::units::Bytes;

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
