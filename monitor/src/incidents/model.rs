//! What a record of an incident holds. Its JSON is what is kept on disk, printed by `incidents --output json` and served over HTTP.
//!
//! What is not known is left out, never zero. A reader takes records of older and newer versions: what it does not know it skips,
//! what it misses is not known.

mod eviction_record;
mod eviction_trace;
mod node_record;
mod oom_kill_record;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use eviction_record::{Eviction, Outcome, Reclaim};
pub use eviction_trace::{RawJson, TraceCut};
pub use node_record::{Consumer, InodeGrowth, Key, Memory, Place, Pressure, SignalHistory, Stalls};
pub use oom_kill_record::{Limit, OomKill, Trigger, Victim};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
pub enum Kind {
    /// The kernel's OOM killer ended processes.
    #[default]
    OomKill,
    /// The agent evicted a workload, or in observe mode would have.
    Eviction,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::OomKill, Self::Eviction];

    /// The value of the `kind` label and of the JSON field.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OomKill => "OomKill",
            Self::Eviction => "Eviction",
        }
    }

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::OomKill => "OOM kill",
            Self::Eviction => "eviction",
        }
    }
}

/// One incident with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Incident {
    /// Its name. A later record of the same name takes the place of the earlier.
    pub id: String,
    /// What happened.
    pub kind: Kind,
    /// When, by the wall clock.
    pub time: Timestamp,
    /// When, by the clock of the kernel's events and of the log's `_mono_ns` fields.
    pub monotonic_ns: u64,
    /// The machine's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The story in one line.
    pub summary: String,
    /// `enforce` or `observe`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// Of an OOM kill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kill: Option<OomKill>,
    /// Of an eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Eviction>,
    /// The last minute of each signal, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<String, SignalHistory>,
    /// PSI.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<Pressure>,
    /// Where the node's memory was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Who was held up in reclaim, longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stalls>,
    /// Over how long the stalls and inodes were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls_seconds: Option<f64>,
    /// Who used most memory, most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top_consumers: Vec<Consumer>,
    /// Who made most inodes, most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inode_growth: Vec<InodeGrowth>,
    /// In which order the workloads would go, and why; those that are never evicted at the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<Place>,
    /// Workloads that the list leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub ranking_omitted: usize,
    /// What was done, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// When the figures about the node and its workloads were taken, in milliseconds after the incident. Below zero is before it:
    /// in a storm of OOM kills they are not taken anew for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_after_ms: Option<f64>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Something that was done or happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    /// What.
    pub step: String,
    /// To which process, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Milliseconds after the first one.
    pub ms: f64,
}

impl Step {
    /// What happened so many milliseconds after the first step.
    #[must_use]
    pub fn at(step: &str, ms: f64) -> Self {
        Self { step: step.to_owned(), pid: None, ms }
    }
}

/// Enough of a record to list it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its name.
    pub id: String,
    /// What happened.
    pub kind: Kind,
    /// When.
    pub time: Timestamp,
    /// The story in one line.
    pub summary: String,
}

impl From<&Incident> for Head {
    fn from(incident: &Incident) -> Self {
        let Incident { id, kind, time, summary, .. } = incident;
        Self { id: id.clone(), kind: *kind, time: *time, summary: summary.clone() }
    }
}

/// The name of an incident: when, what, and the number of the process or cgroup. Names sort by time.
#[must_use]
pub fn name(kind: Kind, time: Timestamp, number: impl std::fmt::Display) -> String {
    let what = match kind {
        Kind::OomKill => "oom",
        Kind::Eviction => "eviction",
    };
    format!("{}-{what}-{number}", time.strftime("%Y%m%d-%H%M%S"))
}

/// Nanoseconds as milliseconds, to the microsecond.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "exact for centuries of microseconds")]
pub fn millis(nanos: u64) -> f64 {
    (nanos / 1000) as f64 / 1e3
}
