//! What was decided of a pod that is to go, as the ledger keeps it and the API server is told of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::kubernetes_options::EvictionMethod;
use crate::units::Monotonic;

/// A message longer than that is cut: the ledger must stay small, and nobody reads more.
const LONGEST_MESSAGE: usize = 4096;
/// Annotations longer than that are left out, for the same reason.
const LONGEST_ANNOTATION: usize = 4096;

/// A pod that is to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Which pod: unique for ever. A pod of the same name with another is another pod.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// How; never [`EvictionMethod::Off`].
    pub method: EvictionMethod,
    /// The agent ends the pod's processes itself, or will: the rest has to follow, while that is recent. Else the API server is asked
    /// first, and nothing happens when it refuses or does not answer.
    pub is_certain: bool,
    /// Seconds between SIGTERM and SIGKILL; at least one, since zero would remove the object before the kubelet has stopped the pod.
    pub grace_seconds: i64,
    /// What it is evicted for, as metrics call it.
    pub cause: String,
    /// What the pod's condition and the event say.
    pub message: String,
    /// The event's annotations.
    #[serde(default)]
    pub annotations: Vec<(String, String)>,
    /// Whether the pod's status gets the condition `DisruptionTarget`.
    #[serde(rename = "isMarked")]
    pub wants_mark: bool,
    /// Whether an event is sent.
    #[serde(rename = "isTold")]
    pub wants_event: bool,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// The same on the clock that wall-clock jumps do not reach; it goes on while the node is up.
    pub decided_mono_ns: u64,
}

impl Intent {
    /// The same with nothing in it that is too large, or that the API server would refuse.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if self.message.len() > LONGEST_MESSAGE {
            self.message.truncate(self.message.floor_char_boundary(LONGEST_MESSAGE - 3));
            self.message.push_str("...");
        }
        self.annotations.retain(|(_, value)| value.len() <= LONGEST_ANNOTATION);
        self.grace_seconds = self.grace_seconds.max(1);
        self
    }

    /// Whether its names can be put into a path as they are; the API server gives no others.
    #[must_use]
    pub fn has_plain_names(&self) -> bool {
        let is_plain = |name: &str| {
            let of_dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !name.is_empty() && name != "." && name != ".." && name.len() <= 253 && name.chars().all(of_dns)
        };
        is_plain(&self.namespace) && is_plain(&self.name) && !self.uid.is_empty() && self.uid.len() <= 128
    }

    /// `namespace/name`.
    #[must_use]
    pub fn pod(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the agent ends it at once; else its grace period is the pod's, or the soft threshold's.
    #[must_use]
    pub const fn is_hard(&self) -> bool {
        self.is_certain && self.grace_seconds <= crate::eviction::evicted::IMMEDIATE_GRACE_SECONDS
    }

    /// How long ago it was decided.
    #[must_use]
    pub fn age(&self) -> std::time::Duration {
        Monotonic::now().since(Monotonic(self.decided_mono_ns))
    }
}

#[cfg(test)]
pub(in crate::cluster) mod tests {
    use super::*;

    pub(in crate::cluster) fn intent(uid: &str) -> Intent {
        Intent {
            uid: uid.to_owned(),
            namespace: "ns".to_owned(),
            name: "web-0".to_owned(),
            method: EvictionMethod::Delete,
            is_certain: true,
            grace_seconds: 1,
            cause: "memory.available".to_owned(),
            message: "The node was low on resource: memory. ".to_owned(),
            annotations: vec![("starved_resource".to_owned(), "memory".to_owned())],
            wants_mark: true,
            wants_event: true,
            decided_at: Timestamp::UNIX_EPOCH,
            decided_mono_ns: 0,
        }
    }

    #[test]
    fn what_is_too_large_is_cut_and_a_grace_period_is_never_zero() {
        let long = Intent {
            message: "ä".repeat(LONGEST_MESSAGE),
            annotations: vec![("a".to_owned(), "x".repeat(LONGEST_ANNOTATION + 1)), ("b".to_owned(), "y".to_owned())],
            grace_seconds: 0,
            ..intent("u")
        };
        let bounded = long.bounded();
        assert!(bounded.message.len() <= LONGEST_MESSAGE && bounded.message.ends_with("ä..."));
        assert_eq!(bounded.annotations, [("b".to_owned(), "y".to_owned())]);
        assert_eq!(bounded.grace_seconds, 1);
    }

    #[test]
    fn names_that_would_change_the_path_are_told_apart() {
        assert!(intent("u").has_plain_names());
        for name in ["", "..", "a/b", "a?b", "A", "a%2f"] {
            assert!(!Intent { name: name.to_owned(), ..intent("u") }.has_plain_names(), "{name}");
            assert!(!Intent { namespace: name.to_owned(), ..intent("u") }.has_plain_names(), "{name}");
        }
        assert!(!intent("").has_plain_names());
    }
}
