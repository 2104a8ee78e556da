//! What a record of an incident holds. Its JSON is what is kept on disk, printed by `incidents --output json` and served over HTTP.
//!
//! What is not known is left out, never zero. A reader takes records of older and newer versions: what it does not know it skips,
//! what it misses is not known.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

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
    /// How old the figures about workloads were: in a storm of OOM kills they are not read anew for each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_age_ms: Option<f64>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// One invocation of the kernel's OOM killer, which may end several processes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct OomKill {
    /// Whose memory was at its end: `none` (the node's), `cpuset`, `memory_policy` or `memcg`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
    /// More than one process was chosen (`memory.oom.group`).
    pub group: bool,
    /// Who told: `ebpf` or `kmsg`.
    pub source: String,
    /// Size of the allocation: two to the power of this many pages; -1 for a kill asked for by hand (SysRq).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<i32>,
    /// The cgroup whose limit was hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// The task whose allocation found no memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// The processes that were ended.
    pub victims: Vec<Victim>,
    /// Processes that the list leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub victims_omitted: usize,
}

/// A cgroup that hit its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Limit {
    /// Its path below the hierarchy's root; left out when it was gone before anybody saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its kernfs id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// The workload that it is, or is part of; the path itself for a cgroup that only groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Its limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Its usage when the record was made: the victims' memory is back by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_bytes: Option<u64>,
}

/// A task that asked for memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Trigger {
    /// Its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tid: Option<i32>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Its container's id, as its runtime knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its cgroup's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its cgroup's kernfs id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
}

/// A process that the OOM killer ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Victim {
    /// Its process id.
    pub pid: i32,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Its workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// Its container's id, as its runtime knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its cgroup's path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Its cgroup's kernfs id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// Anonymous memory: heap and stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anon_bytes: Option<u64>,
    /// Mapped files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Shared memory and tmpfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shmem_bytes: Option<u64>,
    /// Page tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgtables_bytes: Option<u64>,
    /// Address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_vm_bytes: Option<u64>,
    /// How it was marked for the OOM killer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// How long it had lived when it was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<f64>,
    /// How long it took to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dying_ms: Option<f64>,
}

impl Victim {
    /// What it had in memory; nothing when nothing is known of it.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let parts = [self.anon_bytes, self.file_bytes, self.shmem_bytes];
        parts.iter().any(Option::is_some).then(|| parts.iter().flatten().sum())
    }
}

/// One eviction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Eviction {
    /// The signal.
    pub signal: String,
    /// The threshold as configured.
    pub threshold: String,
    /// `hard` or `soft`.
    pub kind: String,
    /// `enforce` or `observe`.
    pub mode: String,
    /// Who went, or would have.
    pub workload: String,
    /// Its cgroup's kernfs id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_id: Option<u64>,
    /// Its QoS class.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub qos_class: String,
    /// `kill`, `term` or `would_kill`.
    pub action: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Processes that were signalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<usize>,
    /// What it used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_set_bytes: Option<u64>,
    /// What was left when it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<i64>,
    /// The threshold as an amount of this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_bytes: Option<i64>,
    /// How much more was left when the workload was gone; below zero when others took more than it gave back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<i64>,
    /// What reclaiming freed before anybody was evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
}

/// How an eviction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Signals were sent; the end is not known.
    #[default]
    Underway,
    /// No process is left.
    Gone,
    /// Processes are left, or could not be signalled.
    Failed,
    /// Observe mode: nothing was done.
    Observed,
}

/// An attempt to reclaim memory before a kill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Reclaim {
    /// Whose memory was to be reclaimed.
    pub workload: String,
    /// How much was asked for.
    pub requested_bytes: u64,
    /// How much its usage fell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<u64>,
    /// What was left on the node before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_before_bytes: Option<u64>,
    /// And after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_after_bytes: Option<u64>,
    /// How long it took.
    pub took_ms: f64,
    /// `sufficed`, `insufficient`, `timed_out`, `refused` or `skipped`.
    pub outcome: String,
}

/// One signal over the last minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SignalHistory {
    /// `bytes`, `inodes` or `pids`.
    pub unit: String,
    /// What a percentage is a percentage of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// The threshold that was met, or else the highest one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u64>,
    /// Milliseconds before the incident (after it: below zero), and the value from then on; it is not repeated while it stays.
    pub samples: Vec<(f64, u64)>,
    /// Samples left out because there were too many, the older ones first: of each few the lowest is kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub thinned: usize,
}

/// One line of PSI.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Pressure {
    /// `system` or `kubepods`.
    pub scope: String,
    /// `memory`, `io` or `cpu`.
    pub resource: String,
    /// `some` or `full`.
    pub kind: String,
    /// Share of the last 10 s that was lost, in percent.
    pub avg10: f64,
    /// Of the last minute.
    pub avg60: f64,
    /// Of the last five.
    pub avg300: f64,
}

/// Where the node's memory was, from `/proc/meminfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    /// `MemTotal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// `MemAvailable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// `MemFree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// `AnonPages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anon_bytes: Option<u64>,
    /// `Active(file)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_file_bytes: Option<u64>,
    /// `Inactive(file)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactive_file_bytes: Option<u64>,
    /// `Shmem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shmem_bytes: Option<u64>,
    /// `SReclaimable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slab_reclaimable_bytes: Option<u64>,
    /// `SUnreclaim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slab_unreclaimable_bytes: Option<u64>,
    /// `KernelStack` and `PageTables`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables_and_stacks_bytes: Option<u64>,
    /// `Unevictable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unevictable_bytes: Option<u64>,
    /// `Hugetlb` (Linux 4.19).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugetlb_bytes: Option<u64>,
    /// `SwapTotal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_total_bytes: Option<u64>,
    /// `SwapFree`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_free_bytes: Option<u64>,
}

/// How one workload was held up in reclaim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Stalls {
    /// Which.
    pub workload: String,
    /// `direct` or `memcg`.
    pub kind: String,
    /// How often.
    pub count: u64,
    /// How long, all its tasks together.
    pub seconds: f64,
}

/// What one workload used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    /// Which.
    pub workload: String,
    /// Its QoS class.
    pub qos_class: String,
    /// What it used.
    pub working_set_bytes: u64,
    /// What it was promised.
    pub request_bytes: u64,
}

/// Inodes that one workload made on one file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct InodeGrowth {
    /// Which.
    pub workload: String,
    /// `major:minor`.
    pub device: String,
    /// Made.
    pub created: u64,
    /// Removed.
    pub removed: u64,
}

/// One workload in the ranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// Counted from one; left out for who is never evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// Which.
    pub workload: String,
    /// Why it is never evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protection: Option<String>,
    /// Its usage is an upper bound: it was clear without measuring that it does not go first.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_most: bool,
    /// Every key that decided, most important first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
}

/// One key of a ranking and what it made of the workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Key {
    /// Its name as in the configuration.
    pub name: String,
    /// In words.
    pub value: String,
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
