//! The decision to evict a pod, as the ledger stores it and the API requests are made from it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::kubernetes_options::EvictionMethod;
use crate::units::Monotonic;

/// Bytes; longer messages are cut, so that the ledger stays small.
const LONGEST_MESSAGE: usize = 4096;
/// Bytes; longer annotations are left out, so that the ledger stays small.
const LONGEST_ANNOTATION: usize = 4096;
/// Seconds that the kubelet, too, gives a pod at a hard threshold.
const HARD_GRACE_SECONDS: i64 = 1;

/// A pod to evict. The JSON names are those of ledgers written by earlier versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// A pod of the same name with another UID is another pod.
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// Never [`EvictionMethod::Off`].
    pub method: EvictionMethod,
    /// The agent kills the pod's processes itself, now or at the end of its grace period, and the API server only follows. Otherwise
    /// the API server is asked first, and the pod is spared when it refuses or does not answer.
    pub is_certain: bool,
    /// Seconds between SIGTERM and SIGKILL; at least 1, since 0 deletes the object before the kubelet has stopped the pod.
    pub grace_seconds: i64,
    /// As in metrics.
    pub cause: String,
    /// For the pod's condition and the event.
    pub message: String,
    /// Of the event.
    #[serde(default)]
    pub annotations: Vec<(String, String)>,
    /// Whether the pod's status gets the condition `DisruptionTarget`.
    #[serde(rename = "isMarked")]
    pub wants_mark: bool,
    #[serde(rename = "isTold")]
    pub wants_event: bool,
    /// The agent removes what the kubelet keeps of the pod on the disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frees_disk: bool,
    /// The node's condition, by its standard name, whose taint keeps a replacement away from this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    pub decided_at: Timestamp,
    /// The same time on a clock that does not jump; counts from boot.
    pub decided_mono_ns: u64,
}

/// The requests of an eviction that are done, as far as their answers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The removal was requested; the answer may be missing.
    pub asked: bool,
    pub marked: bool,
    /// The pod is terminating, deleted or failed.
    pub removed: bool,
}

impl Intent {
    /// Returns the intent with sizes that the ledger can hold and a grace period that the API server accepts.
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

    /// Returns whether the names are plain DNS names, which need no escaping in a path.
    pub fn has_plain_names(&self) -> bool {
        let is_plain = |name: &str| {
            let of_dns = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
            !name.is_empty() && name != "." && name != ".." && name.len() <= 253 && name.chars().all(of_dns)
        };
        is_plain(&self.namespace) && is_plain(&self.name) && !self.uid.is_empty() && self.uid.len() <= 128
    }

    /// Returns `namespace/name`.
    pub fn pod(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns whether the agent kills the pod at once, without the grace period of the pod or of a soft threshold.
    pub const fn is_hard(&self) -> bool {
        self.is_certain && self.grace_seconds <= HARD_GRACE_SECONDS
    }

    pub fn grace(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.grace_seconds.unsigned_abs())
    }

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
            frees_disk: false,
            condition: None,
            decided_at: Timestamp::UNIX_EPOCH,
            decided_mono_ns: 0,
        }
    }

    #[test]
    fn large_values_are_cut_and_grace_is_at_least_one() {
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
    fn names_that_would_change_the_path_are_not_plain() {
        assert!(intent("u").has_plain_names());
        for name in ["", "..", "a/b", "a?b", "A", "a%2f"] {
            assert!(!Intent { name: name.to_owned(), ..intent("u") }.has_plain_names(), "{name}");
            assert!(!Intent { namespace: name.to_owned(), ..intent("u") }.has_plain_names(), "{name}");
        }
        assert!(!intent("").has_plain_names());
    }
}
