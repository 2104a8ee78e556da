//! An eviction that was decided: who, why, how fast, and what is written on the pod.

use std::time::Duration;

use crate::units::{Resource, Signal};
use crate::workloads::Pod;
use serde::{Deserialize, Serialize};

/// The `reason` in the pod's status and of the event about it.
pub const REASON: &str = "Evicted";

/// Seconds a pod gets when it may not wait: for a hard threshold, and for a limit of local storage.
pub const IMMEDIATE_GRACE_SECONDS: i64 = 1;
/// The same for signals.
pub const IMMEDIATE_GRACE: Duration = Duration::from_secs(IMMEDIATE_GRACE_SECONDS.unsigned_abs());

/// What a pod is evicted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cause {
    /// A threshold on this signal.
    Signal(Signal),
    /// An emptyDir volume holds more than its `sizeLimit`.
    EmptyDirLimit,
    /// The pod uses more ephemeral storage than its limits add up to.
    PodLimit,
    /// A container uses more ephemeral storage than its limit.
    ContainerLimit,
}

impl Cause {
    /// The name in metrics, as in the kubelet's `eviction_signal` label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Signal(signal) => signal.as_str(),
            Self::EmptyDirLimit => "emptydirfs.limit",
            Self::PodLimit => "ephemeralpodfs.limit",
            Self::ContainerLimit => "ephemeralcontainerfs.limit",
        }
    }

    /// The signal whose threshold was met; none for a limit of the pod's own.
    pub const fn signal(self) -> Option<Signal> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::EmptyDirLimit | Self::PodLimit | Self::ContainerLimit => None,
        }
    }

    /// What is to be had back.
    pub const fn resource(self) -> Resource {
        match self {
            Self::Signal(signal) => signal.resource(),
            Self::EmptyDirLimit | Self::PodLimit | Self::ContainerLimit => Resource::EphemeralStorage,
        }
    }

    /// Whether the end of the processes alone gives nothing back: what they leave on the disk has to go as well.
    pub const fn is_for_disk(self) -> bool {
        matches!(self.resource(), Resource::EphemeralStorage | Resource::Inodes)
    }
}

impl From<Signal> for Cause {
    fn from(signal: Signal) -> Self {
        Self::Signal(signal)
    }
}

/// An eviction.
#[derive(Debug, Clone, PartialEq)]
pub struct Eviction<'a> {
    /// Who.
    pub pod: &'a Pod,
    /// Why.
    pub cause: Cause,
    /// Seconds between SIGTERM and SIGKILL. Below zero only under the quirk of that name.
    pub grace_period_seconds: i64,
    /// The `message` in the pod's status and of the event about it.
    pub message: String,
    /// Annotations of the event.
    pub annotations: Vec<(&'static str, String)>,
    /// The pod's status gets the condition `DisruptionTarget`, with the same message.
    pub has_disruption_target: bool,
}
