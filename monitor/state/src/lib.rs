//! The document that the agent serves at `/api/v1/state` and streams at `/api/v1/watch`. `top`, the status page and the `kubectl` plugin
//! show this document and read nothing else.
//!
//! Unknown figures are left out; they are never zero. A reader accepts documents of older and newer versions: it skips unknown fields and
//! treats missing ones as unknown.

mod agent;
mod eviction;
mod incident;
mod ranking;
pub mod record;
mod signal;
mod verdict;
mod workload;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use agent::{Agent, Configuration, Degradation, Pattern, Probe, Source};
pub use eviction::{Evictions, UnderWay};
pub use incident::IncidentLine;
pub use ranking::{Key, Place, Ranking};
pub use signal::{Condition, History, Memory, Nearness, Pressure, SignalState, ThresholdState};
pub use workload::{Identity, Name, WorkloadState};

/// The version of the document. It changes when a reader of the version before would misunderstand the document, not when fields are
/// added.
pub const API_VERSION: &str = "node-pressure-monitor/v1";

/// The agent's knowledge of its node at one moment.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// `node-pressure-monitor/v1`.
    pub api_version: String,
    /// Wall clock of the observation.
    pub time: Timestamp,
    /// Seconds from the observation to the moment at which the document was sent.
    pub age_seconds: f64,
    /// The state of the node in one sentence.
    pub verdict: Verdict,
    pub agent: Agent,
    pub signals: Vec<SignalState>,
    pub memory: Option<Memory>,
    pub pressure: Vec<Pressure>,
    pub conditions: Vec<Condition>,
    /// One ranking for each signal with a threshold whose workloads could be measured; that of the signal nearest to its threshold comes
    /// first.
    pub rankings: Vec<Ranking>,
    /// Largest memory usage first.
    pub workloads: Vec<WorkloadState>,
    /// Workloads that `workloads` leaves out to limit the document.
    #[serde(skip_serializing_if = "is_zero")]
    pub workloads_omitted: usize,
    pub evictions: Evictions,
    /// The newest incidents, newest first.
    pub incidents: Vec<IncidentLine>,
    pub sources: Vec<Source>,
    pub probes: Vec<Probe>,
    /// Capabilities that are missing at present, each with its remedy.
    pub degradations: Vec<Degradation>,
}

impl State {
    /// Returns the signal with this name.
    #[must_use]
    pub fn signal(&self, name: &str) -> Option<&SignalState> {
        self.signals.iter().find(|signal| signal.signal == name)
    }

    /// Returns the ranking by this signal.
    #[must_use]
    pub fn ranking(&self, signal: &str) -> Option<&Ranking> {
        self.rankings.iter().find(|ranking| ranking.signal == signal)
    }

    /// Returns the workload with this cgroup path.
    #[must_use]
    pub fn workload(&self, workload: &str) -> Option<&WorkloadState> {
        self.workloads.iter().find(|state| state.name.workload == workload)
    }
}

/// The state of the node in one sentence, with the colour of a traffic light.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    pub level: Level,
    /// For example `41 s to the threshold memory.available<100Mi; batch/report would be evicted`.
    pub sentence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// No threshold is near. Capabilities that cannot be mended may be missing.
    #[default]
    Green,
    /// A threshold is near, a soft threshold is met, the configuration file was refused, or a missing capability can be mended. A threshold is near
    /// while less than twice its value is left, or while the signal is below a quarter of its capacity, has fallen for ten seconds, and crosses
    /// the threshold within ten minutes at the present rate.
    Yellow,
    /// A hard threshold is met, or an eviction is under way.
    Red,
    /// A newer agent's level.
    #[serde(other)]
    Unknown,
}

/// Returns the JSON Schema (draft 2020-12) of [`State`]. `config/state.schema.json` holds it.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(State).to_value()
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !*value
}
