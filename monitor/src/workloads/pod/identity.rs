//! Who a pod is, and whether it may be evicted at all.

use std::cmp::Ordering;
use std::{fmt, iter};

use serde::{Deserializer, Serialize, Serializer};

use super::{Metadata, Pod};
use crate::workloads::PodUid;
use crate::workloads::lenient::entries;

/// The lowest priority of what the system needs to run (`system-cluster-critical`).
const SYSTEM_CRITICAL: i32 = 2_000_000_000;
const NODE_CRITICAL_CLASS: &str = "system-node-critical";
const SOURCE: &str = "kubernetes.io/config.source";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Longer values are cut: what is looked for is short, and what tools leave on a pod is not.
const LONGEST_VALUE: usize = 256;
/// Annotations kept of a pod beside those that the configuration names, so that those which it names next are known already when the API server
/// is away by then.
const MOST_OTHERS: usize = 32;

/// Reads the annotations: all of them, for which of them protect is the operator's choice, and may change.
///
/// # Errors
/// When they are neither null nor a map to text.
pub fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    let mut all: Vec<(String, String)> = entries(deserializer)?;
    all.iter_mut().for_each(|(_, value)| shorten(value));
    Ok(all)
}

/// Cuts a value that is too long.
fn shorten(value: &mut String) {
    let short = shortened(value);
    if short.len() < value.len() {
        *value = short.to_owned();
    }
}

/// What is kept of a value.
pub fn shortened(value: &str) -> &str {
    value.get(..value.floor_char_boundary(LONGEST_VALUE)).unwrap_or(value)
}

impl Metadata {
    /// Of all annotations, those with these keys and those that are always looked at, and a bounded number of the others.
    #[must_use]
    pub fn kept(mut annotations: Vec<(String, String)>, keys: &[String]) -> Vec<(String, String)> {
        let mut others = 0;
        annotations.retain_mut(|(key, value)| {
            shorten(value);
            Self::decides(key, keys) || {
                others += 1;
                others <= MOST_OTHERS
            }
        });
        annotations.shrink_to_fit();
        annotations
    }

    /// Whether something is decided by an annotation: by some whatever the configuration says, by these keys because it names them.
    fn decides(key: &str, keys: &[String]) -> bool {
        [SOURCE, MIRROR].contains(&key) || keys.iter().any(|named| named == key)
    }

    /// Whether everything that is decided by is the same.
    fn decides_as(&self, other: &Self, keys: &[String]) -> bool {
        let Self { name, namespace, uid, annotations, owners, is_being_deleted } = self;
        let deciding = |(key, _): &&(String, String)| Self::decides(key, keys);
        *name == other.name
            && *namespace == other.namespace
            && *uid == other.uid
            && *owners == other.owners
            && *is_being_deleted == other.is_being_deleted
            && annotations.iter().filter(deciding).eq(other.annotations.iter().filter(deciding))
    }
}

/// Why a pod is never evicted (`eviction-semantics.md` §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exemption {
    /// It comes from a file on the node, not from the API server.
    StaticPod,
    /// It stands for such a pod at the API server.
    MirrorPod,
    /// The system needs it to run.
    CriticalPriority,
}

impl fmt::Display for Exemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::StaticPod => "static pod",
            Self::MirrorPod => "mirror pod",
            Self::CriticalPriority => "critical priority",
        })
    }
}

/// `namespace/name`, ordered as that text is, which is put together only to be printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FullName<'a> {
    namespace: &'a str,
    name: &'a str,
}

impl FullName<'_> {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.namespace.bytes().chain(iter::once(b'/')).chain(self.name.bytes())
    }
}

impl Ord for FullName<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        if self.namespace.len() == other.namespace.len() {
            // Part by part, which is much quicker.
            (self.namespace, self.name).cmp(&(other.namespace, other.name))
        } else {
            self.bytes().cmp(other.bytes())
        }
    }
}

impl PartialOrd for FullName<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for FullName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for FullName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Pod {
    /// `namespace/name`, to compare by.
    #[must_use]
    pub fn qualified_name(&self) -> FullName<'_> {
        FullName { namespace: &self.metadata.namespace, name: &self.metadata.name }
    }

    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        [&self.metadata.namespace, "/", &self.metadata.name].concat()
    }

    /// Tells whether it has not ended.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !matches!(self.status.phase.as_str(), "Failed" | "Succeeded")
    }

    /// Its priority; none is zero.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.spec.priority.unwrap_or(0)
    }

    /// Why it is never evicted, if so.
    #[must_use]
    pub fn exemption(&self) -> Option<Exemption> {
        // A mirror carries the annotations of the pod that it stands for.
        if self.annotation(MIRROR).is_some() {
            Some(Exemption::MirrorPod)
        } else if self.annotation(SOURCE).is_some_and(|source| source != "api") {
            Some(Exemption::StaticPod)
        } else if self.priority() >= SYSTEM_CRITICAL {
            Some(Exemption::CriticalPriority)
        } else {
            None
        }
    }

    /// The UID of the static pod that it stands for, when it is the mirror of one.
    #[must_use]
    pub fn mirrored_uid(&self) -> Option<&str> {
        self.annotation(MIRROR)
    }

    /// As the API server tells of it. Whoever may create pods writes their annotations, and the API server keeps no pods that come from
    /// elsewhere: such a one is known by its UID, which the API server gives out and the kubelet's hash is none of, or stands behind a mirror.
    /// The mark of a mirror can be written by others too (`ValidatePodSpecificAnnotations`, Kubernetes 1.36, asks for a node's name alone, and
    /// lets nobody add it later), but such a pod never runs: the kubelet takes it for an orphan, and deletes it.
    #[must_use]
    pub fn of_the_api_server(mut self) -> Self {
        if !PodUid::is_hash(&self.metadata.uid) {
            self.metadata.annotations.retain(|(key, _)| key != SOURCE);
        }
        self
    }

    /// Tells whether it is never evicted.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.exemption().is_some()
    }

    /// Tells whether it is critical to this very node: the kernel's OOM killer is to take it last.
    #[must_use]
    pub fn is_node_critical(&self) -> bool {
        self.spec.priority_class_name == NODE_CRITICAL_CLASS && self.is_critical()
    }

    /// Whether this and the other differ in nothing but annotations by which, while these keys are named, nothing is decided: tools
    /// write such all the time.
    #[must_use]
    pub fn decides_as(&self, other: &Self, keys: &[String]) -> bool {
        let Self { metadata, spec, status } = self;
        metadata.decides_as(&other.metadata, keys) && *spec == other.spec && *status == other.status
    }

    /// The value of an annotation, as far as it is kept.
    #[must_use]
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.metadata.annotations.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemption(json: &str) -> Option<Exemption> {
        serde_json::from_str::<Pod>(json).unwrap().exemption()
    }

    #[test]
    fn names_are_ordered_as_their_text_is() {
        // A hyphen comes before the slash, letters after it.
        let parts = ["", "-", "0", "a", "a-", "a-b", "a0", "aa", "b"];
        let names = parts.iter().flat_map(|namespace| parts.map(|name| FullName { namespace, name }));
        let names: Vec<FullName<'_>> = names.collect();
        for a in &names {
            for b in &names {
                assert_eq!(a.cmp(b), a.to_string().cmp(&b.to_string()), "{a} {b}");
            }
        }
    }

    #[test]
    fn nobody_makes_his_pod_a_static_one_by_writing_so() {
        let of = |uid: &str, key: &str| {
            let json = format!(
                r#"{{"metadata": {{"uid": "{uid}", "annotations": {{"kubernetes.io/config.{key}": "file"}}}}}}"#
            );
            serde_json::from_str::<Pod>(&json).unwrap().of_the_api_server().exemption()
        };
        let uid = "0b8bd9ec-5a1f-4ee0-9a9b-3d6bb6d9a1c2";
        assert_eq!(of(uid, "source"), None);
        assert_eq!(of(uid, "mirror"), Some(Exemption::MirrorPod));
        // As the kubelet's own list has it.
        assert_eq!(of("00112233445566778899aabbccddeeff", "source"), Some(Exemption::StaticPod));
    }

    #[test]
    fn so_much_is_kept_of_annotations() {
        let all: Vec<(String, String)> = (0..1000).map(|index| (format!("k{index}"), "ä".repeat(200))).collect();
        let mut all = [all, vec![(MIRROR.to_owned(), "hash".to_owned())]].concat();
        all.push(("example.com/keep".to_owned(), "yes".to_owned()));
        let kept = Metadata::kept(all, &["example.com/keep".to_owned(), "k999".to_owned()]);
        assert_eq!(kept.len(), MOST_OTHERS + 3);
        assert!(kept.contains(&("example.com/keep".to_owned(), "yes".to_owned())));
        assert!(kept.contains(&("k999".to_owned(), "ä".repeat(128))));
    }

    #[test]
    fn static_mirror_and_system_pods_are_exempt() {
        for (json, expected) in [
            (r#"{"metadata":{"annotations":{"kubernetes.io/config.source":"file"}}}"#, Some(Exemption::StaticPod)),
            (r#"{"metadata":{"annotations":{"kubernetes.io/config.source":""}}}"#, Some(Exemption::StaticPod)),
            (r#"{"metadata":{"annotations":{"kubernetes.io/config.source":"api"}}}"#, None),
            (r#"{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}}}"#, Some(Exemption::MirrorPod)),
            (r#"{"metadata":{"annotations":{"kubernetes.io/config.mirror":null}}}"#, Some(Exemption::MirrorPod)),
            (r#"{"spec":{"priority":2000000000}}"#, Some(Exemption::CriticalPriority)),
            (r#"{"spec":{"priority":1999999999}}"#, None),
            // The class alone, without the number that it stands for, says nothing.
            (r#"{"spec":{"priorityClassName":"system-node-critical"}}"#, None),
            (r#"{"spec":{"priority":null},"metadata":{"annotations":null}}"#, None),
        ] {
            assert_eq!(exemption(json), expected, "{json}");
        }
    }
}
