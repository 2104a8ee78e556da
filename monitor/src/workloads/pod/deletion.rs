//! The deletion of a pod, and the time that is left of its grace period.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// A pod whose grace period ends within this time is as good as killed.
const SOON: Duration = Duration::from_secs(2);
/// A pod whose grace period ended longer ago than this is not expected to end by itself: the kubelet does not answer, or the clocks differ.
const OVERDUE: Duration = Duration::from_secs(10);

/// `metadata.deletionTimestamp` of a pod that is being deleted: the time at which its grace period ends, by the API server's clock and in
/// whole seconds. A time that cannot be read does not hide the deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "Wire<'_>", into = "Wire<'static>")]
pub struct Deletion {
    grace_ends: Option<Timestamp>,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Wire<'t> {
    Time(Cow<'t, str>),
    #[serde(serialize_with = "present")]
    Other(IgnoredAny),
}

impl Deletion {
    /// Returns the time until the grace period ends, if that is soon or was shortly ago.
    ///
    /// The agent does not know by how much the API server's clock differs from `now`, the node's. If the node's clock is ahead, the
    /// pod seems to end too early: an eviction waits for it in vain, as briefly as for any memory that does not come. If the
    /// node's clock is behind, the pod seems to end too late: nothing waits for it, and a hard threshold may cut its grace period.
    pub fn grace_left(self, now: Timestamp) -> Option<Duration> {
        let left = self.grace_ends?.duration_since(now);
        let is_soon = Duration::try_from(left).map_or(left.unsigned_abs() <= OVERDUE, |left| left <= SOON);
        is_soon.then(|| Duration::try_from(left).unwrap_or_default())
    }
}

impl From<Wire<'_>> for Deletion {
    fn from(wire: Wire<'_>) -> Self {
        match wire {
            Wire::Time(text) => Self { grace_ends: text.parse().ok() },
            Wire::Other(_) => Self { grace_ends: None },
        }
    }
}

impl From<Deletion> for Wire<'static> {
    fn from(deletion: Deletion) -> Self {
        deletion.grace_ends.map_or(Self::Other(IgnoredAny), |time| Self::Time(Cow::Owned(time.to_string())))
    }
}

fn present<S: serde::Serializer>(_: &IgnoredAny, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::pod::Metadata;

    fn deletion(value: &str) -> Option<Deletion> {
        let metadata: Metadata = serde_json::from_str(&format!("{{\"deletionTimestamp\": {value}}}")).unwrap();
        metadata.deletion
    }

    #[test]
    fn a_deletion_is_seen_whatever_its_time() {
        assert_eq!(deletion("null"), None);
        for value in ["true", "\"soon\"", "{\"x\": [1]}", "7"] {
            assert_eq!(deletion(value), Some(Deletion { grace_ends: None }), "{value}");
        }
        for value in ["\"2026-11-22T10:00:30Z\"", "true"] {
            let read = deletion(value);
            let written = serde_json::to_string(&read).unwrap();
            assert_eq!((written.as_str(), deletion(&written)), (value, read));
        }
    }

    #[test]
    fn only_a_grace_that_ends_soon_counts() {
        let at = |second: u32| format!("2026-11-22T10:00:{second:02}Z").parse().unwrap();
        let of = Deletion { grace_ends: Some(at(30)) };
        for (now, left) in
            [(0, None), (27, None), (28, Some(2)), (30, Some(0)), (31, Some(0)), (40, Some(0)), (41, None)]
        {
            assert_eq!(of.grace_left(at(now)), left.map(Duration::from_secs), "at {now} s");
        }
        assert_eq!(Deletion { grace_ends: None }.grace_left(at(30)), None, "its time is not known");
    }
}
