//! An eviction that was decided: the pod, the cause, the grace period, and what is written to the pod's status.

use std::time::Duration;

use crate::config::{Policy, Semantics, Threshold};
use crate::units::{Resource, Signal};
use crate::workloads::Pod;
use serde::{Deserialize, Serialize};

/// The `reason` in the pod's status and in the event about the pod.
pub const REASON: &str = "Evicted";

/// The grace period in seconds of an eviction for a hard threshold or for a limit of local storage.
pub const IMMEDIATE_GRACE_SECONDS: i64 = 1;
/// The same grace period as a `Duration`, for evictions by signals (SIGTERM, SIGKILL).
pub const IMMEDIATE_GRACE: Duration = Duration::from_secs(IMMEDIATE_GRACE_SECONDS.unsigned_abs());

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// A threshold on this signal is met.
    Signal(Signal),
    /// An emptyDir volume holds more than its `sizeLimit`.
    EmptyDirLimit,
    /// The pod uses more ephemeral storage than its limits add up to.
    PodLimit,
    /// A container uses more ephemeral storage than its limit.
    ContainerLimit,
}

impl Cause {
    /// Returns the name in metrics. It equals the value of the kubelet's label `eviction_signal`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal(signal) => signal.as_str(),
            Self::EmptyDirLimit => "emptydirfs.limit",
            Self::PodLimit => "ephemeralpodfs.limit",
            Self::ContainerLimit => "ephemeralcontainerfs.limit",
        }
    }

    /// Returns the signal whose threshold was met, or `None` for a limit of the pod's own.
    pub const fn signal(self) -> Option<Signal> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::EmptyDirLimit | Self::PodLimit | Self::ContainerLimit => None,
        }
    }

    pub const fn resource(self) -> Resource {
        match self {
            Self::Signal(signal) => signal.resource(),
            Self::EmptyDirLimit | Self::PodLimit | Self::ContainerLimit => Resource::EphemeralStorage,
        }
    }

    /// Returns whether the eviction is to free space or inodes of a disk. Ending the processes does not free them: the files have to be
    /// removed as well.
    pub const fn is_for_disk(self) -> bool {
        matches!(self.resource(), Resource::EphemeralStorage | Resource::Inodes)
    }
}

impl From<Signal> for Cause {
    fn from(signal: Signal) -> Self {
        Self::Signal(signal)
    }
}

/// Returns the seconds between SIGTERM and SIGKILL as `simulate` and `rank` print them. `chosen` is what the API states. The agent ends a
/// victim by SIGKILL alone, except for a disk. The kubelet gives it a second.
pub fn printed_grace_seconds(policy: &Policy, threshold: &Threshold, chosen: i64) -> i64 {
    let is_corrected = policy.semantics == Semantics::Corrected;
    let is_at_once = is_corrected && threshold.is_hard() && !threshold.signal.resource().is_on_disk();
    if is_at_once { 0 } else { chosen }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Eviction<'a> {
    pub pod: &'a Pod,
    pub cause: Cause,
    /// The seconds between SIGTERM and SIGKILL. They are negative only under the quirk of that name.
    pub grace_period_seconds: i64,
    /// The `message` in the pod's status and in the event about the pod.
    pub message: String,
    pub annotations: Vec<(&'static str, String)>,
    /// Whether the pod's status gets the condition `DisruptionTarget`, with the same message.
    pub has_disruption_target: bool,
}
