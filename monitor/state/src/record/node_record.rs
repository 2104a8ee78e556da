//! The part of a record about the node and its workloads.

use serde::{Deserialize, Serialize};

use crate::Identity;

use super::is_zero;

/// One signal over the last minute.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SignalHistory {
    /// `bytes`, `inodes` or `pids`.
    pub unit: String,
    /// The base of a percentage.
    pub capacity: Option<u64>,
    /// The threshold that was met; without one, the highest threshold of the signal.
    pub threshold: Option<u64>,
    /// Milliseconds before the incident (negative after it) and the value from then on. Unchanged values are not repeated.
    pub samples: Vec<(f64, u64)>,
    /// Samples left out to limit the record. The older samples are thinned first; the lowest of each group is kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub thinned: usize,
}

/// One line of PSI. The averages are percentages of time lost in the last 10, 60 and 300 seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
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

/// The node's memory, from `/proc/meminfo`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub anon_bytes: Option<u64>,
    pub active_file_bytes: Option<u64>,
    pub inactive_file_bytes: Option<u64>,
    pub shmem_bytes: Option<u64>,
    /// `SReclaimable`.
    pub slab_reclaimable_bytes: Option<u64>,
    /// `SUnreclaim`.
    pub slab_unreclaimable_bytes: Option<u64>,
    /// `KernelStack` and `PageTables`.
    pub tables_and_stacks_bytes: Option<u64>,
    pub unevictable_bytes: Option<u64>,
    /// `Hugetlb` (Linux 4.19).
    pub hugetlb_bytes: Option<u64>,
    pub swap_total_bytes: Option<u64>,
    pub swap_free_bytes: Option<u64>,
}

/// Reclaim stalls of one workload.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Stalls {
    pub workload: String,
    pub name: Option<Identity>,
    /// `direct` or `memcg`.
    pub kind: String,
    pub count: u64,
    /// Summed over all tasks of the workload.
    pub seconds: f64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Consumer {
    pub workload: String,
    pub name: Option<Identity>,
    pub qos_class: String,
    pub working_set_bytes: u64,
    pub request_bytes: u64,
}

/// Inodes that one workload created and removed on one filesystem.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct InodeGrowth {
    pub workload: String,
    pub name: Option<Identity>,
    /// `major:minor`.
    pub device: String,
    pub created: u64,
    pub removed: u64,
}

/// One workload in the ranking.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Place {
    /// Counted from one; left out for protected workloads.
    pub place: Option<usize>,
    pub workload: String,
    pub name: Option<Identity>,
    pub protection: Option<String>,
    /// The usage is an upper bound: the workload could not become the victim, so the agent did not measure it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub at_most: bool,
    /// Most important key first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
}

/// One key of the ranking and its value for a workload, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Key {
    /// As in the configuration.
    pub name: String,
    pub value: String,
}
