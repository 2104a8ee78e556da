//! Signals with their thresholds, and the node's figures behind them.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
