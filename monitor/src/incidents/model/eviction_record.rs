//! What is told of an eviction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{RawJson, TraceCut};

/// One eviction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Eviction {
    /// The signal.
    pub signal: String,
    /// The threshold as configured; of a limit, what is above it.
    pub threshold: String,
    /// `hard`, `soft`, or `limit` for one of the pod's own.
    pub kind: String,
    /// `enforce` or `observe`.
    pub mode: String,
    /// Who went, or would have.
    pub workload: String,
    /// Its pod's namespace and name, where the container runtime or the file of pods tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
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
    /// What it used of what was short, where that was not memory, in the signal's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<i64>,
    /// What was left when it was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<i64>,
    /// The same of a signal that does not count bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available: Option<i64>,
    /// The threshold as an amount of this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_bytes: Option<i64>,
    /// The same of a signal that does not count bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_value: Option<i64>,
    /// How much more was left when the workload was gone; below zero when others took more than it gave back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed_bytes: Option<i64>,
    /// The same of a signal that does not count bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freed: Option<i64>,
    /// What reclaiming freed before anybody was evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    /// The policy that the decider followed, as `simulate --config` reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<RawJson>,
    /// The decider's snapshots and steps that led to the eviction, oldest first, one line of a trace each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<RawJson>,
    /// Set when the trace exceeded the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_cut: Option<TraceCut>,
}

impl Eviction {
    /// Drops the oldest lines of the trace until the rest fits into `limit` bytes: the newest ones explain the step.
    pub fn limit_trace(&mut self, limit: usize) {
        let mut room = limit;
        let fits = |line: &&RawJson| room.checked_sub(line.text().len()).map(|rest| room = rest).is_some();
        let kept = self.trace.iter().rev().take_while(fits).count();
        let cut: Vec<RawJson> = self.trace.drain(..self.trace.len() - kept).collect();
        if !cut.is_empty() {
            let bytes = cut.iter().map(|line| line.text().len()).sum();
            self.trace_cut = Some(TraceCut { lines: cut.len(), bytes, limit_bytes: limit });
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_that_fit_are_kept() {
        for (limit, kept, cut) in [
            (12, vec!["[1]", "[22]", "[333]"], None),
            (11, vec!["[22]", "[333]"], Some((1, 3))),
            (8, vec!["[333]"], Some((2, 7))),
            (4, vec![], Some((3, 12))),
        ] {
            let trace = [[1], [22], [333]].map(|line| RawJson::of(&line).unwrap()).to_vec();
            let mut eviction = Eviction { trace, ..Eviction::default() };
            eviction.limit_trace(limit);
            assert_eq!(eviction.trace.iter().map(RawJson::text).collect::<Vec<_>>(), kept, "{limit}");
            let expected = cut.map(|(lines, bytes)| TraceCut { lines, bytes, limit_bytes: limit });
            assert_eq!(eviction.trace_cut, expected, "{limit}");
        }
    }
}
