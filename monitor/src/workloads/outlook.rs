//! The gain of a workload's end, as far as it is known before.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

use super::among_own::AmongOwn;

/// The facts about a candidate's memory beyond its place in the ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Outlook {
    /// The bytes that the candidate's end gives back: anonymous, kernel and shared memory, locked file pages and compressed swap in memory, not
    /// other file pages, not shared memory that outlives it, not other swap. An upper bound if the candidate's usage is one. `None` counts as its usage.
    pub gain: Option<Bytes>,
    /// The bytes per second by which the gain grows.
    pub growth: i64,
    /// The same since the reading before the last one: less if it has just stopped to grow. `None` counts as `growth`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth_lately: Option<i64>,
    /// Whether the growth was measured. Otherwise it is unknown, and `growth` is zero.
    pub is_growth_measured: bool,
    /// The candidate may be evicted only if it leaks.
    pub only_as_leaker: bool,
    /// The candidate has received an order to terminate already.
    pub is_terminating: bool,
    /// The candidate is a pod of a DaemonSet. Disks and soft thresholds do not evict it.
    pub is_daemon: bool,
    /// The place among the workloads of the same user; `None` for a workload of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub among_own: Option<AmongOwn>,
}
