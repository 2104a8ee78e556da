//! The order of eviction as it stands.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Ranking {
    pub signal: String,
    /// The candidates in the order of eviction, then the exempt workloads.
    pub places: Vec<Place>,
    /// The workload that would be evicted next, as in `places`.
    pub next: Option<String>,
    /// Why no workload would be evicted, if none would.
    pub none_because: Option<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// Counted from one. Absent for exempt workloads.
    pub place: Option<usize>,
    /// The path of the cgroup, as in `workloads`.
    pub workload: String,
    /// The name to show, as in `workloads`.
    pub display: String,
    /// Why the workload is not evicted, or not now.
    pub exempt: Option<String>,
    /// Why the workload has its place or none, in one phrase. For example `BestEffort, 812.0 MiB above its request`.
    pub why: Option<String>,
    /// The usage that decides, in the signal's unit.
    pub usage: Option<u64>,
    /// The request, in the signal's unit. Absent for a resource that cannot be requested.
    pub request: Option<u64>,
    /// The usage is an upper bound.
    #[serde(skip_serializing_if = "super::is_false")]
    pub at_most: bool,
    /// Most important key first.
    pub keys: Vec<Key>,
}

/// One key of the ranking and its value for a workload, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Key {
    /// As in the configuration.
    pub name: String,
    pub value: String,
}
