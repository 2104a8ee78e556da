//! The eviction decision. It is pure: it takes the policy, the state, the observation and the time, and returns the new state and
//! the decision. It does no I/O, reads no clock and logs nothing.
//!
//! The steps and their names are those of the kubelet's `synchronize`: thresholds met, held by minimum reclaim, first observed,
//! conditions last observed, past their grace period, fresh, ranked. [`assess`] reads only the signals, and is cheap enough to run a
//! thousand times a second. [`Order::rank`](rank::Order::rank) orders the candidates once a threshold is acted on.

pub mod admission;
pub mod allocatable;
pub mod arm;
pub mod at_capacity;
pub mod benefit;
pub mod budget;
pub mod collection;
pub mod conditions;
pub mod daemons;
pub mod deadline;
pub mod decider;
mod disk_holding;
pub mod evicted;
pub mod exhaustion;
pub mod fall;
#[cfg(test)]
mod fixtures;
pub mod footprint;
pub mod garbage;
pub mod growth;
pub mod local_storage;
pub mod memory_benefit;
pub mod message;
pub mod mutants;
mod names;
pub mod no_execute;
pub mod oom_score;
pub mod place_words;
pub mod pressure;
pub mod preview;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalValue {
    pub signal: Signal,
    /// The available amount, in the signal's own unit. It is negative where the kubelet's arithmetic makes it so.
    pub available: i64,
    /// The total amount. Percentages are relative to it.
    pub capacity: i64,
    /// When the statistics were taken. Statistics without a time count as fresh.
    pub at: Option<Moment>,
}

impl SignalValue {
    /// Returns a value in bytes without a time, which counts as fresh.
    pub fn now(signal: Signal, available: Bytes, capacity: Bytes) -> Self {
        Self { signal, available: available.signed(), capacity: capacity.signed(), at: None }
    }

    /// Returns the available amount as text, with its unit.
    pub fn words(&self) -> String {
        if self.signal.resource().is_bytes() { self.available_bytes().to_string() } else { self.available.to_string() }
    }

    /// Returns the available bytes, or zero when the amount is negative.
    pub fn available_bytes(&self) -> Bytes {
        Bytes(u64::try_from(self.available).unwrap_or(0))
    }
}

/// The signals at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// The signals that could be observed. A threshold on any other signal is not met.
    pub signals: Vec<SignalValue>,
}

impl Observation {
    /// Returns the value of `signal`, if it was observed.
    pub fn get(&self, signal: Signal) -> Option<SignalValue> {
        self.signals.iter().copied().find(|value| value.signal == signal)
    }
}
