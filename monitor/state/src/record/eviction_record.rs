//! The part of a record about an eviction.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Identity;

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Eviction {
    pub signal: String,
    /// The threshold as configured; for a limit, the excess in words.
    pub threshold: String,
    /// `hard`, `soft`, or `limit` for a limit of the pod.
    pub kind: String,
    pub mode: String,
    /// The victim; in observe mode, of the dry run.
    pub workload: String,
    /// `namespace/name`, if the container runtime or the file of pods gives them.
    pub pod: Option<String>,
    pub pod_uid: Option<String>,
    pub name: Option<Identity>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The kernfs id of the victim's cgroup.
    pub cgroup_id: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub qos_class: String,
    /// `kill`, `term` or `would_kill`.
    pub action: String,
    pub outcome: Outcome,
    pub failure: Option<String>,
    /// How many processes were signalled.
    pub processes: Option<usize>,
    pub working_set_bytes: Option<u64>,
    /// The victim's usage of a resource other than memory, in the signal's unit.
    pub used: Option<i64>,
    /// Available bytes at the decision. Signals that do not count bytes have `available`, `threshold_value` and `freed` instead.
    pub available_bytes: Option<i64>,
    pub available: Option<i64>,
    /// The threshold resolved against the node's capacity.
    pub threshold_bytes: Option<i64>,
    pub threshold_value: Option<i64>,
    /// How much more was available after the victim's exit; negative if other workloads took more than the victim freed.
    pub freed_bytes: Option<i64>,
    pub freed: Option<i64>,
    pub reclaim: Option<Reclaim>,
    /// Set if the eviction had waited for the kernel to swap out.
    pub swap_wait: Option<SwapWait>,
    /// The worth of the victim's end, for memory: the victim leaks, or buys so much time.
    pub benefit: Option<String>,
    /// Why the candidates before the victim were passed over.
    pub passed_over: Option<String>,
    /// The pod's end at the API server, in words. Set if it was not as usual, or came later than usual.
    pub afterwards: Option<String>,
    /// The policy that the decider followed, as `simulate --config` reads it.
    pub policy: Option<RawJson>,
    /// The decider's snapshots and steps that led to the eviction, oldest first, one line of a trace each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<RawJson>,
    /// Set when the trace exceeded the limit.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Signals were sent; the victim's exit was not recorded.
    #[default]
    Underway,
    /// The victim has no process left.
    Gone,
    /// Processes remain, or could not be signalled.
    Failed,
    Observed,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Underway => "underway",
            Self::Gone => "gone",
            Self::Failed => "failed",
            Self::Observed => "observed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct SwapWait {
    pub waited_ms: f64,
    /// Why the eviction waited no longer.
    pub limit: String,
}

/// Proactive reclaim: a write to `memory.reclaim` before a kill.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Reclaim {
    pub workload: String,
    pub name: Option<Identity>,
    pub requested_bytes: u64,
    /// By how much the workload's usage fell.
    pub freed_bytes: Option<u64>,
    pub available_before_bytes: Option<u64>,
    pub available_after_bytes: Option<u64>,
    pub took_ms: f64,
    /// `sufficed`, `insufficient`, `timed_out`, `refused` or `skipped`.
    pub outcome: String,
}

/// JSON text on one line, which the record passes on unread. Clones share the text.
#[derive(Debug, Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// Renders `value` on one line.
    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        let raw = serde_json::value::to_raw_value(value)?;
        // A raw value inside `value` keeps its line breaks, which the journal's format forbids.
        let raw = if raw.get().contains('\n') {
            serde_json::value::to_raw_value(&serde_json::from_str::<serde_json::Value>(raw.get())?)?
        } else {
            raw
        };
        Ok(Self(raw.into()))
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(raw.into()))
    }
}

/// The part of a trace that exceeded the limit of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct TraceCut {
    /// The oldest lines, which the record leaves out.
    pub lines: usize,
    pub bytes: usize,
    /// One sixteenth of the journal's `maxSize`.
    pub limit_bytes: usize,
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

    #[test]
    fn nested_line_breaks_are_removed() {
        let pretty = RawValue::from_string("{\n \"a\": \"x\\ny\"\n}".to_owned()).unwrap();
        let line = RawJson::of(&[pretty]).unwrap();
        assert_eq!(line.text(), r#"[{"a":"x\ny"}]"#);
        let read: RawJson = serde_json::from_str(&serde_json::to_string(&line).unwrap()).unwrap();
        assert_eq!(read, line);
    }
}
