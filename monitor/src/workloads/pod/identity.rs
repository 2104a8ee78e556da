//! The name of a pod, and the reasons why it is exempt.

use std::cmp::Ordering;
use std::{fmt, iter};

use serde::{Serialize, Serializer};

use super::object::{Metadata, Pod, shorten};
use crate::units::named_enum;
use crate::workloads::cgroup_path::PodUid;

/// The lowest system-critical priority (`system-cluster-critical`).
const SYSTEM_CRITICAL: i32 = 2_000_000_000;
const CLUSTER_CRITICAL_CLASS: &str = "system-cluster-critical";
const NODE_CRITICAL_CLASS: &str = "system-node-critical";
const SOURCE: &str = "kubernetes.io/config.source";
/// Set on a pod whose eviction another controller carries out in the background. KubeVirt sets it on the pod of a virtual machine that
/// migrates, and takes it away when the machine is not to leave the node any more.
pub const EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Limit of annotations that are kept beside those that the configuration names. A later configuration may name some of them
/// while the API server is unreachable.
const MAX_OTHERS: usize = 32;

/// Returns whether no container of a pod in this phase runs or will run.
pub fn has_ended(phase: &str) -> bool {
    matches!(phase, "Failed" | "Succeeded")
}

impl Metadata {
    /// Keeps the annotations that always affect decisions, those named by `keys`, and a limited number of the others.
    pub fn kept(mut annotations: Vec<(String, String)>, keys: &[String]) -> Vec<(String, String)> {
        let mut others = 0;
        annotations.retain_mut(|(key, value)| {
            shorten(value);
            Self::decides(key, keys) || {
                others += 1;
                others <= MAX_OTHERS
            }
        });
        annotations.shrink_to_fit();
        annotations
    }

    /// Returns whether an annotation affects decisions, given the keys that the configuration names.
    fn decides(key: &str, keys: &[String]) -> bool {
        [SOURCE, MIRROR, EVICTION_IN_PROGRESS].contains(&key) || keys.iter().any(|named| named == key)
    }

    /// Returns whether both agree in all annotations that affect decisions.
    fn decides_as(&self, other: &Self, keys: &[String]) -> bool {
        let Self { name, namespace, uid, annotations, owners, deletion } = self;
        let deciding = |(key, _): &&(String, String)| Self::decides(key, keys);
        *name == other.name
            && *namespace == other.namespace
            && *uid == other.uid
            && *owners == other.owners
            && *deletion == other.deletion
            && annotations.iter().filter(deciding).eq(other.annotations.iter().filter(deciding))
    }
}

/// Returns the priority of one of the two classes that every cluster has.
pub fn system_priority(class: &str) -> Option<i32> {
    match class {
        CLUSTER_CRITICAL_CLASS => Some(SYSTEM_CRITICAL),
        NODE_CRITICAL_CLASS => Some(SYSTEM_CRITICAL + 1000),
        _ => None,
    }
}

named_enum! {
    /// The reason why a pod is exempt from eviction (`eviction-semantics.md` §7).
    pub enum Exemption {
        /// A pod that was created from a file on the node, not by the API server.
        StaticPod = "static pod",
        /// The API server's object for a static pod.
        MirrorPod = "mirror pod",
        /// A pod that the system needs to run.
        CriticalPriority = "critical priority",
    }
}

/// The name `namespace/name`. It is ordered as that string, without building the string.
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
            // Comparing the parts is much faster than building the strings.
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
    pub fn qualified_name(&self) -> FullName<'_> {
        FullName { namespace: &self.metadata.namespace, name: &self.metadata.name }
    }

    pub fn full_name(&self) -> String {
        [&self.metadata.namespace, "/", &self.metadata.name].concat()
    }

    /// Returns whether the pod has not terminated.
    pub fn is_active(&self) -> bool {
        !has_ended(&self.status.phase)
    }

    pub fn priority(&self) -> i32 {
        self.spec.priority.unwrap_or(0)
    }

    pub fn exemption(&self) -> Option<Exemption> {
        // A mirror pod carries the annotations of its static pod, so this check comes first.
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

    /// Returns the UID of the static pod if this is its mirror pod.
    pub fn mirrored_uid(&self) -> Option<&str> {
        self.annotation(MIRROR)
    }

    /// Removes the annotation that marks a static pod unless the UID confirms the mark, because anyone who may create pods can
    /// write annotations. The API server's pods never come from another source: a real static pod either has the kubelet's hash
    /// as its UID, or appears as a mirror pod. Users can write the mirror annotation too (`ValidatePodSpecificAnnotations`,
    /// Kubernetes 1.36, requires only a node name, and forbids adding it later), but such a pod never runs, because the kubelet
    /// deletes it as an orphan.
    #[must_use]
    pub fn without_forged_source(mut self) -> Self {
        if !PodUid::is_hash(&self.metadata.uid) {
            self.metadata.annotations.retain(|(key, _)| key != SOURCE);
        }
        self
    }

    pub fn is_critical(&self) -> bool {
        self.exemption().is_some()
    }

    /// Returns whether the pod is critical to this node. The kernel's OOM killer chooses such a pod last.
    pub fn is_node_critical(&self) -> bool {
        self.spec.priority_class_name == NODE_CRITICAL_CLASS && self.is_critical()
    }

    /// Returns whether both pods agree, except in annotations that do not affect decisions while `keys` are named. Tools write
    /// such annotations all the time.
    pub fn decides_as(&self, other: &Self, keys: &[String]) -> bool {
        let Self { metadata, spec, status } = self;
        metadata.decides_as(&other.metadata, keys) && *spec == other.spec && *status == other.status
    }

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
        // A hyphen sorts before the slash, letters after it.
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
    fn an_annotation_does_not_make_a_pod_static() {
        let of = |uid: &str, key: &str| {
            let json = format!(
                r#"{{"metadata": {{"uid": "{uid}", "annotations": {{"kubernetes.io/config.{key}": "file"}}}}}}"#
            );
            serde_json::from_str::<Pod>(&json).unwrap().without_forged_source().exemption()
        };
        let uid = "0b8bd9ec-5a1f-4ee0-9a9b-3d6bb6d9a1c2";
        assert_eq!(of(uid, "source"), None);
        assert_eq!(of(uid, "mirror"), Some(Exemption::MirrorPod));
        // The kubelet's own list has static pods with this UID and source.
        assert_eq!(of("00112233445566778899aabbccddeeff", "source"), Some(Exemption::StaticPod));
    }

    #[test]
    fn the_number_of_kept_annotations_is_bounded() {
        let all: Vec<(String, String)> = (0..1000).map(|index| (format!("k{index}"), "ä".repeat(200))).collect();
        let mut all = [all, vec![(MIRROR.to_owned(), "hash".to_owned())]].concat();
        all.push(("example.com/keep".to_owned(), "yes".to_owned()));
        let kept = Metadata::kept(all, &["example.com/keep".to_owned(), "k999".to_owned()]);
        assert_eq!(kept.len(), MAX_OTHERS + 3);
        assert!(kept.contains(&("example.com/keep".to_owned(), "yes".to_owned())));
        assert!(kept.contains(&("k999".to_owned(), "ä".repeat(128))));
    }

    /// Kubernetes 1.16 has removed the annotation (kubernetes/kubernetes#80342; cloudnativelabs/kube-router#815, kubernetes/kops#12398).
    /// OpenShift 3's chapters still write it, with different values.
    #[test]
    fn the_annotation_of_critical_pods_protects_only_by_choice() {
        let key = "scheduler.alpha.kubernetes.io/critical-pod";
        for value in ["", "true", "false"] {
            let json = format!(r#"{{"metadata":{{"annotations":{{"{key}":"{value}"}}}},"spec":{{"priority":0}}}}"#);
            let pod: Pod = serde_json::from_str(&json).unwrap();
            let mut protect = crate::config::KubernetesOptions::default().protect;
            assert!(!pod.is_critical() && pod.protection(&protect).is_none(), "{json}");
            protect.annotations.push(key.to_owned());
            assert_eq!(pod.protection(&protect), Some(crate::workloads::Protection::Annotation), "{json}");
        }
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
            // The name of the class without the number of its priority has no effect.
            (r#"{"spec":{"priorityClassName":"system-node-critical"}}"#, None),
            (r#"{"spec":{"priority":null},"metadata":{"annotations":null}}"#, None),
        ] {
            assert_eq!(exemption(json), expected, "{json}");
        }
    }
}
