//! What is told of the node and its workloads.

use serde::{Deserialize, Serialize};

use super::is_zero;

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
