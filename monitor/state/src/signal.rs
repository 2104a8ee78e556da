//! Signals with their thresholds, and the node's figures behind them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A threshold that is further away at the present rate is not near.
const NEAR_SECONDS: f64 = 600.0;
/// A shorter fall foretells nothing.
const FALL_SECONDS: f64 = 10.0;
/// A signal with this part of its capacity left may fall for a while. A disk that is three quarters full is an ordinary one, whatever its
/// threshold.
const AMPLE_PART: u64 = 4;

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SignalState {
    /// For example `memory.available`.
    pub signal: String,
    /// `bytes`, `inodes` or `pids`.
    pub unit: String,
    pub available: Option<u64>,
    /// The base of percentages.
    pub capacity: Option<u64>,
    /// The change of `available`, in its unit per second; negative while it falls.
    pub per_second: Option<f64>,
    /// Seconds until nothing is left at the present rate. Absent while the signal does not fall.
    pub exhausted_in_seconds: Option<f64>,
    /// Highest first.
    pub thresholds: Vec<ThresholdState>,
    pub history: History,
}

impl SignalState {
    /// Returns the threshold that would be crossed first, or is met.
    #[must_use]
    pub fn nearest(&self) -> Option<&ThresholdState> {
        self.thresholds
            .iter()
            .filter(|threshold| threshold.crossed_in_seconds.is_some())
            .min_by(|a, b| a.crossed_in_seconds.partial_cmp(&b.crossed_in_seconds).unwrap_or(std::cmp::Ordering::Equal))
    }

    /// Returns how near one of the signal's thresholds is, or `None` for a threshold that is met or not near.
    #[must_use]
    pub fn nearness(&self, threshold: &ThresholdState) -> Option<Nearness> {
        let available = self.available.filter(|_| !threshold.met)?;
        let is_ample = self.capacity.is_some_and(|capacity| available >= capacity / AMPLE_PART);
        let seconds = threshold.crossed_in_seconds.filter(|seconds| *seconds <= NEAR_SECONDS && !is_ample);
        if let Some(seconds) = seconds.filter(|_| self.falling_seconds() >= FALL_SECONDS) {
            return Some(Nearness::In(seconds));
        }
        let is_close = threshold.value.is_some_and(|value| available < value.saturating_mul(2));
        (is_close && !(is_ample && self.is_of_disk())).then_some(Nearness::LessThanTwice)
    }

    fn is_of_disk(&self) -> bool {
        ["nodefs", "imagefs", "containerfs"].iter().any(|filesystem| self.signal.starts_with(filesystem))
    }

    /// Returns whether a threshold is met or near.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.thresholds.iter().any(|it| it.met || self.nearness(it).is_some())
    }

    /// Returns how long the fall from the highest value of the last minute has lasted. The first tenth of the fall is not counted: it may be
    /// noise before the fall.
    fn falling_seconds(&self) -> f64 {
        let samples = &self.history.samples;
        let (Some(available), Some(highest)) = (self.available, samples.iter().map(|(_, value)| *value).max()) else {
            return 0.0;
        };
        let begun = highest.saturating_sub(highest.saturating_sub(available) / 10);
        let before = samples.iter().rposition(|(_, value)| *value >= begun);
        // A value holds until the next sample.
        before.and_then(|index| samples.get(index + 1)).map_or(0.0, |(milliseconds, _)| milliseconds / 1000.0)
    }
}

/// How near a threshold is that is not met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Nearness {
    /// Less than a quarter of the capacity is left, the signal has fallen for ten seconds, and it crosses the threshold in so many seconds.
    In(f64),
    /// Less than twice the threshold is left, and of a disk less than a quarter of its capacity.
    LessThanTwice,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ThresholdState {
    /// As in the configuration, for example `memory.available<100Mi`.
    pub threshold: String,
    /// `hard` or `soft`.
    pub kind: String,
    /// In the signal's unit. Absent while the signal is not observed.
    pub value: Option<u64>,
    /// `available` minus `value`; negative below the threshold.
    pub distance: Option<i64>,
    pub met: bool,
    /// Seconds until the threshold is crossed at the present rate; 0 if it is met. Absent while the signal does not fall.
    pub crossed_in_seconds: Option<f64>,
    /// How long a soft threshold must be met.
    pub grace_period_seconds: Option<f64>,
    /// Why the threshold evicts nothing yet. Absent for a threshold that does.
    pub unarmed: Option<String>,
    /// Why the threshold can evict nothing on this host, so that it is only reported. Absent for a threshold that can.
    pub reported_only: Option<String>,
    /// The workloads that the threshold may evict, in words: `12 pods`. Absent where there are none.
    pub evicts: Option<String>,
}

/// The last minute of a signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct History {
    /// Milliseconds before `time` of the document, and the value from then on. Oldest first. Unchanged values are not repeated.
    pub samples: Vec<(f64, u64)>,
}

/// Memory of the node, in bytes.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    pub capacity_bytes: Option<u64>,
    pub working_set_bytes: Option<u64>,
    /// Available memory as the agent corrects it.
    pub corrected_bytes: Option<u64>,
    /// Available memory as the kubelet computes it.
    pub kubelet_bytes: Option<u64>,
    pub swap_total_bytes: Option<u64>,
    pub swap_free_bytes: Option<u64>,
}

/// One line of PSI. The averages are shares of the last 10, 60 and 300 seconds, 0 to 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Pressure {
    /// `system` or `kubepods`.
    pub scope: String,
    /// `memory`, `io` or `cpu`.
    pub resource: String,
    /// `some` or `full`.
    pub kind: String,
    pub avg10: f64,
    pub avg60: f64,
    pub avg300: f64,
}

/// A condition of the node.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// For example `MemoryPressure`.
    pub condition: String,
    /// Absent while it is not known.
    pub holds: Option<bool>,
    /// When it has changed last. Absent if it is as it was at the agent's start.
    pub since: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns a signal of 1000 MiB that has had these values, each some seconds ago, and crosses 50 MiB in 40 s.
    fn signal(values: &[(f64, u64)]) -> SignalState {
        let samples = values.iter().map(|(ago, mib)| (ago * 1000.0, mib * MIB)).collect();
        let threshold =
            ThresholdState { value: Some(50 * MIB), crossed_in_seconds: Some(40.0), ..ThresholdState::default() };
        SignalState {
            available: values.last().map(|(_, mib)| mib * MIB),
            capacity: Some(1000 * MIB),
            thresholds: vec![threshold],
            history: History { samples },
            ..SignalState::default()
        }
    }

    #[test]
    fn a_threshold_is_near_in_a_fall_that_lasts_or_below_twice_its_size() {
        let (soon, twice) = (Some(Nearness::In(40.0)), Some(Nearness::LessThanTwice));
        for (name, values, nearness) in [
            ("a fall that lasts", &[(20.0, 300), (15.0, 280), (10.0, 250), (5.0, 220), (0.0, 200)][..], soon),
            ("a fall after a still time", &[(50.0, 300), (12.0, 299), (11.0, 289), (5.0, 220), (0.0, 200)], soon),
            ("an allocation of a moment", &[(50.0, 300), (20.0, 298), (10.0, 300), (2.0, 220), (0.0, 200)], None),
            ("a fall from much to much", &[(20.0, 900), (15.0, 880), (10.0, 850), (0.0, 800)], None),
            ("no history", &[(0.0, 200)], None),
            ("less than twice the threshold", &[(0.0, 99)], twice),
            ("twice the threshold", &[(0.0, 100)], None),
        ] {
            let signal = signal(values);
            assert_eq!(signal.nearness(&signal.thresholds[0]), nearness, "{name}");
            assert_eq!(signal.is_tight(), nearness.is_some(), "{name}");
        }
        let mut far = signal(&[(20.0, 240), (15.0, 235), (0.0, 200)]);
        far.thresholds[0].crossed_in_seconds = Some(601.0);
        assert!(!far.is_tight());
        far.thresholds[0].met = true;
        assert!(far.is_tight() && far.nearness(&far.thresholds[0]).is_none());
    }
}
