//! One eviction to carry out, and its outcome.

use crate::config::Mode;
use crate::eviction::MetThreshold;
use crate::eviction::decider::Choice;
use crate::eviction::evicted::Cause;
use crate::eviction::rank::Ranked;
use crate::sensors::local_storage_limits::Above;
use crate::units::{CgroupId, Monotonic, named_enum};
use crate::workloads::WorkloadUsage;

use super::ReclaimAttempt;

#[derive(Debug, Clone, Copy)]
pub(super) struct EvictionOrder<'o> {
    pub(super) choice: &'o Choice,
    /// The victim's cgroup.
    pub(super) id: CgroupId,
    /// The facts for the eviction message.
    pub(super) reason: Option<Reason<'o>>,
}

/// The cause of an eviction, with the facts for its message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reason<'o> {
    Threshold(&'o MetThreshold, &'o Ranked<WorkloadUsage>),
    Limit(&'o Above),
}

#[derive(Debug, Clone, Copy)]
pub struct Started {
    pub processes: usize,
    pub action: Action,
    pub at: Monotonic,
}

/// Something to report about an action.
#[derive(Debug)]
pub enum ActionNote {
    /// The API server does not list the pod, which was evicted all the same.
    PodUnknown {
        pod_uid: String,
    },
    /// The eviction is not reported to the API server.
    Unreported {
        pod: String,
        pod_uid: String,
        reason: String,
    },
    /// The containers of an evicted pod stay on the disk.
    RestLeft {
        pod_uid: String,
        reason: String,
    },
    NotStarted {
        cause: Cause,
        workload: String,
        reason: String,
    },
    ReclaimRefused {
        workload: String,
        reason: String,
    },
    ReclaimEnded(ReclaimAttempt),
}

named_enum! {
    pub enum Action {
        /// SIGKILL, without a grace period.
        Kill = "kill",
        /// SIGTERM, or a stop by the container runtime; SIGKILL follows after the grace period.
        Term = "term",
        /// Eviction request to the API server; the kubelet stops the pod.
        Ask = "ask",
        /// Observe mode: no signal is sent.
        DryRun = "would_kill",
    }
}

impl Action {
    pub const fn mode(self) -> Mode {
        match self {
            Self::Kill | Self::Term | Self::Ask => Mode::Enforce,
            Self::DryRun => Mode::Observe,
        }
    }
}
