//! The eviction decision, pure: (policy, state, observation, now) in, (state, decision) out. No I/O, no clock, no logging.
//!
//! The steps and their names are the kubelet's (`synchronize`): thresholds met, held by minimum reclaim, first observed,
//! conditions last observed, past their grace period, ranked. The agent asks twice: [`assess`] looks at the signals alone and is
//! cheap enough for a thousand times a second; [`rank`](rank::rank) orders the workloads once a threshold is to be acted on.

pub mod budget;
pub mod deadline;
pub mod oom_score;
pub mod rank;
pub mod thresholds;

pub use thresholds::{Assessment, MetThreshold, State, assess};

use crate::config::{Bytes, Signal};
use crate::node::Monotonic;

/// One signal's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalValue {
    /// Which signal.
    pub signal: Signal,
    /// What is left.
    pub available: Bytes,
    /// What a percentage is a percentage of.
    pub capacity: Bytes,
}

/// The signals at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// The signals that could be observed; a threshold on another is not met.
    pub signals: Vec<SignalValue>,
    /// When they were true.
    pub at: Monotonic,
}

impl Observation {
    /// The value of `signal`, if observed.
    #[must_use]
    pub fn get(&self, signal: Signal) -> Option<SignalValue> {
        self.signals.iter().copied().find(|value| value.signal == signal)
    }
}
