//! The record of an incident. Its JSON is kept on disk, printed by `incidents --output json` and served over HTTP.
//!
//! Unknown figures are left out; they are never zero. A reader accepts records of older and newer versions: it skips unknown fields and
//! treats missing ones as unknown.

mod eviction_record;
mod node_record;
mod oom_kill_record;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Identity;

pub use eviction_record::{Eviction, Outcome, RawJson, Reclaim, SwapWait, TraceCut};
pub use node_record::{Consumer, InodeGrowth, Key, Memory, Place, Pressure, SignalHistory, Stalls};
pub use oom_kill_record::{Limit, OomKill, Trigger, Victim};

/// The text is the value of the `kind` label and of the JSON field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
pub enum Kind {
    /// The kernel's OOM killer killed processes.
    #[default]
    OomKill,
    /// The agent evicted a workload, or recorded a dry run in observe mode.
    Eviction,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::OomKill, Self::Eviction];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OomKill => "OomKill",
            Self::Eviction => "Eviction",
        }
    }

    pub const fn words(self) -> &'static str {
        match self {
            Self::OomKill => "OOM kill",
            Self::Eviction => "eviction",
        }
    }
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Incident {
    /// A later record with the same id replaces the earlier one.
    pub id: String,
    pub kind: Kind,
    /// Wall clock.
    pub time: Timestamp,
    /// `CLOCK_MONOTONIC`, as in the kernel's events and in the log's `_mono_ns` fields.
    pub monotonic_ns: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The event in one line.
    pub summary: String,
    /// `enforce` or `observe`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    pub oom_kill: Option<OomKill>,
    pub eviction: Option<Eviction>,
    /// The last minute of each signal, by the signal's name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub signals: BTreeMap<String, SignalHistory>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<Pressure>,
    pub memory: Option<Memory>,
    /// Workloads that stalled in reclaim, longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stalls: Vec<Stalls>,
    /// The period over which stalls and inodes were counted.
    pub stalls_seconds: Option<f64>,
    /// Largest working set first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub top_consumers: Vec<Consumer>,
    /// Largest growth first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inode_growth: Vec<InodeGrowth>,
    /// The candidates in the order of eviction, then the protected workloads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<Place>,
    /// Candidates that `ranking` leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub ranking_omitted: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// When the figures about the node and its workloads were measured, in milliseconds after the incident. Negative figures predate
    /// the incident: in a storm of OOM kills the agent does not measure for each.
    pub evidence_after_ms: Option<f64>,
    /// How many further incidents of the workload this record stands for. They exceed its share of the journal, so their evidence is not
    /// recorded.
    #[serde(skip_serializing_if = "is_none")]
    pub repeated: u64,
}

impl Incident {
    /// Names each row that has a workload and no name yet. `name` gets the workload's path, and that of the cgroup if the row has one.
    pub fn name_rows(&mut self, name: impl Fn(&str, Option<&str>) -> Option<Identity>) {
        let fill = |workload: &str, known: &mut Option<Identity>| {
            if known.is_none() {
                *known = name(workload, None);
            }
        };
        self.stalls.iter_mut().for_each(|row| fill(&row.workload, &mut row.name));
        self.top_consumers.iter_mut().for_each(|row| fill(&row.workload, &mut row.name));
        self.inode_growth.iter_mut().for_each(|row| fill(&row.workload, &mut row.name));
        self.ranking.iter_mut().for_each(|row| fill(&row.workload, &mut row.name));
        if let Some(eviction) = &mut self.eviction {
            fill(&eviction.workload, &mut eviction.name);
            eviction.reclaim.iter_mut().for_each(|reclaim| fill(&reclaim.workload, &mut reclaim.name));
        }
        if let Some(kill) = &mut self.oom_kill {
            kill.name_rows(name);
        }
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

/// One action of the agent or event of the kernel.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    pub step: String,
    /// The process concerned, if one invocation has several.
    pub pid: Option<i32>,
    /// Milliseconds after the first step.
    pub ms: f64,
}

impl Step {
    pub fn at(step: &str, ms: f64) -> Self {
        Self { step: step.to_owned(), pid: None, ms }
    }
}

/// The fields of a record that a list shows.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredHead")]
pub struct Head {
    pub id: String,
    pub kind: Kind,
    pub time: Timestamp,
    pub summary: String,
    /// `enforce` or `observe`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mode: String,
    /// `namespace/name` of the victim, if known; of several the first.
    pub pod: Option<String>,
    /// The outcome of an eviction.
    pub outcome: Option<Outcome>,
    #[serde(skip_serializing_if = "is_none")]
    pub repeated: u64,
}

/// The same fields of a whole record, without the cost of reading the rest.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredHead {
    id: String,
    kind: Kind,
    time: Timestamp,
    summary: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    repeated: u64,
    pub eviction: Option<StoredVictim>,
    pub oom_kill: Option<StoredVictims>,
}

/// The names of a victim in a record.
#[derive(Debug, Deserialize)]
pub struct StoredVictim {
    pub workload: Option<String>,
    pub pod: Option<String>,
    /// Of an eviction.
    #[serde(default)]
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Deserialize)]
pub struct StoredVictims {
    #[serde(default)]
    pub victims: Vec<StoredVictim>,
}

impl From<StoredHead> for Head {
    fn from(stored: StoredHead) -> Self {
        let StoredHead { id, kind, time, summary, mode, repeated, eviction, oom_kill } = stored;
        let victims = oom_kill.map(|kill| kill.victims).unwrap_or_default();
        let outcome = eviction.as_ref().and_then(|eviction| eviction.outcome);
        let pod = eviction.into_iter().chain(victims).find_map(|victim| victim.pod);
        Self { id, kind, time, summary, mode, pod, outcome, repeated }
    }
}

impl Head {
    /// Returns whether it is an eviction of observe mode, which evicts nothing.
    pub fn is_dry_run(&self) -> bool {
        self.kind == Kind::Eviction && self.mode != "enforce"
    }

    pub fn namespace(&self) -> Option<&str> {
        self.pod.as_deref()?.split_once('/').map(|(namespace, _)| namespace)
    }
}

impl From<&Incident> for Head {
    fn from(incident: &Incident) -> Self {
        let Incident { id, kind, time, summary, mode, repeated, eviction, oom_kill, .. } = incident;
        let killed = || oom_kill.iter().flat_map(|kill| &kill.victims).find_map(|victim| victim.pod.clone());
        Self {
            id: id.clone(),
            kind: *kind,
            time: *time,
            summary: summary.clone(),
            mode: mode.clone(),
            pod: eviction.as_ref().and_then(|eviction| eviction.pod.clone()).or_else(killed),
            outcome: eviction.as_ref().map(|eviction| eviction.outcome),
            repeated: *repeated,
        }
    }
}

/// Returns an incident's id: its time, its kind, and the process or cgroup id. Ids sort by time.
pub fn name(kind: Kind, time: Timestamp, number: impl std::fmt::Display) -> String {
    let what = match kind {
        Kind::OomKill => "oom",
        Kind::Eviction => "eviction",
    };
    format!("{}-{what}-{number}", time.strftime("%Y%m%d-%H%M%S"))
}

/// Returns whether an id can be part of a file's name. A journal may come from a node under foreign control.
#[must_use]
pub fn is_file_name(id: &str) -> bool {
    (1..=64).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !id.starts_with('-')
}

/// Converts nanoseconds to milliseconds, rounded down to the microsecond.
#[expect(clippy::cast_precision_loss, reason = "exact for centuries of microseconds")]
pub fn millis(nanos: u64) -> f64 {
    (nanos / 1000) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_ids_are_names_of_files() {
        assert!(is_file_name(&name(Kind::OomKill, Timestamp::now(), u64::MAX)));
        assert!(is_file_name("evicted"));
        let long = "a".repeat(65);
        for id in ["", ".", "..", "../a", "a/b", "-a", "a b", "a\n", "$(a)", "ä", long.as_str()] {
            assert!(!is_file_name(id), "{id:?}");
        }
    }

    #[test]
    fn a_head_is_read_from_a_record_as_it_is_made_from_it() {
        let victim = |pod: Option<&str>| Victim { pod: pod.map(str::to_owned), ..Victim::default() };
        let kill = OomKill { victims: vec![victim(None), victim(Some("batch/report"))], ..OomKill::default() };
        let of_kill = Incident { id: "a".to_owned(), oom_kill: Some(kill), repeated: 3, ..Incident::default() };
        let eviction = Eviction { pod: Some("web/front".to_owned()), ..Eviction::default() };
        let of_eviction = Incident { mode: "enforce".to_owned(), eviction: Some(eviction), ..Incident::default() };
        for (incident, namespace) in [(of_kill, Some("batch")), (of_eviction, Some("web")), (Incident::default(), None)]
        {
            let head = Head::from(&incident);
            assert_eq!(head.namespace(), namespace);
            assert_eq!(serde_json::from_str::<Head>(&serde_json::to_string(&incident).unwrap()).unwrap(), head);
        }
    }
}
