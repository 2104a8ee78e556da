//! The eviction decision, pure: (policy, state, observation, now) in, (state, decision) out. No I/O, no clock, no logging.
//!
//! The steps and their names are the kubelet's (`synchronize`): thresholds met, held by minimum reclaim, first observed,
//! conditions last observed, past their grace period, fresh, ranked. The agent asks twice: [`assess`] looks at the signals alone
//! and is cheap enough for a thousand times a second; [`rank`](rank::rank) orders the workloads once a threshold is to be acted on.

pub mod admission;
pub mod allocatable;
pub mod arm;
pub mod benefit;
pub mod budget;
pub mod collection;
pub mod conditions;
pub mod daemons;
pub mod deadline;
pub mod decider;
pub mod evicted;
pub mod exhaustion;
#[cfg(test)]
mod fixtures;
pub mod footprint;
pub mod garbage;
pub mod local_storage;
pub mod message;
mod names;
pub mod no_execute;
pub mod oom_score;
pub mod pressure;
pub mod proactive_reclaim;
pub mod rank;
pub mod refaulting;
pub mod signals;
pub mod standing;
pub mod synchronization;
pub mod thresholds;
pub mod tolerations;
pub mod usage;

pub use arm::{Armed, Layout, arm};
pub use footprint::DiskUsage;
pub use thresholds::{Assessment, MetThreshold, NodeCondition, State, assess, is_below};

use crate::units::{Bytes, Moment, Signal};
use serde::{Deserialize, Serialize};

/// One signal's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalValue {
    /// Which signal.
    pub signal: Signal,
    /// What is left, in the signal's own unit. Negative where the kubelet's arithmetic makes it so.
    pub available: i64,
    /// What a percentage is a percentage of.
    pub capacity: i64,
    /// When the statistics behind it were taken; without it they are taken for fresh.
    pub at: Option<Moment>,
}

impl SignalValue {
    /// A value measured just now, in bytes.
    pub fn now(signal: Signal, available: Bytes, capacity: Bytes) -> Self {
        let signed = |bytes: Bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX);
        Self { signal, available: signed(available), capacity: signed(capacity), at: None }
    }

    /// What is left, with its unit.
    pub fn words(&self) -> String {
        if self.signal.resource().is_bytes() { self.available_bytes().to_string() } else { self.available.to_string() }
    }

    /// What is left in bytes; zero when negative.
    pub fn available_bytes(&self) -> Bytes {
        Bytes(u64::try_from(self.available).unwrap_or(0))
    }
}

/// The signals at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// The signals that could be observed; a threshold on another is not met.
    pub signals: Vec<SignalValue>,
}

impl Observation {
    /// The value of `signal`, if observed.
    pub fn get(&self, signal: Signal) -> Option<SignalValue> {
        self.signals.iter().copied().find(|value| value.signal == signal)
    }
}
