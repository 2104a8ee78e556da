//! Whether the node is in maintenance: then its pods are drained in an order that the administrator or an operator has chosen. Pure.
//!
//! The deletion of a machine does not show here: its marks are on its `Machine`, and its node is cordoned when it is drained.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::workloads::json_defaults::{entries_of, is_present, list, or_default};

/// Taints by which controllers announce that pods are drained from the node. `UpdateInProgress` is none: OpenShift's machine config operator
/// sets it on the nodes that have yet to wait for their turn, leaves it while the pool is paused, and takes it away when the update of the
/// node begins (openshift/machine-config-operator#2686).
const TAINTS: [(&str, &str); 4] = [
    ("node.kubernetes.io/out-of-service", "marked as out of service"),
    ("node.cloudprovider.kubernetes.io/shutdown", "shut down by its cloud provider"),
    ("ToBeDeletedByClusterAutoscaler", "drained by the cluster autoscaler"),
    ("karpenter.sh/disrupted", "drained by Karpenter"),
];

/// Set by the node lifecycle controller together with `spec.unschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

// OpenShift's machine config daemon: the node's configuration, the one that it shall have, and the progress.
const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
const CONFIG_STATE: &str = "machineconfiguration.openshift.io/state";
// `drain-…` or `uncordon-…`: the request to the machine config controller, and the last one that it has carried out.
const DESIRED_DRAIN: &str = "machineconfiguration.openshift.io/desiredDrain";
const APPLIED_DRAIN: &str = "machineconfiguration.openshift.io/lastAppliedDrain";
/// kured, while it holds its lock.
const REBOOT: &str = "weave.works/kured-reboot-in-progress";

/// The annotations that [`NodeMarks::maintenance`] reads.
const ANNOTATIONS: [&str; 6] = [CURRENT_CONFIG, DESIRED_CONFIG, CONFIG_STATE, DESIRED_DRAIN, APPLIED_DRAIN, REBOOT];

/// The fields of a `v1.Node` that identify it or show maintenance.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeMarks {
    #[serde(deserialize_with = "or_default")]
    pub(super) metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    pub(super) status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(deserialize_with = "or_default")]
    pub(super) node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeInfo {
    #[serde(deserialize_with = "or_default")]
    pub(super) kubelet_version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(deserialize_with = "or_default")]
    pub(super) uid: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_version: String,
    #[serde(deserialize_with = "is_present")]
    deletion_timestamp: bool,
    #[serde(deserialize_with = "annotations")]
    annotations: Vec<(String, String)>,
    #[serde(deserialize_with = "labels")]
    pub(super) labels: BTreeMap<String, String>,
}

fn labels<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    Ok(entries_of(deserializer, |_: &String| true)?.into_iter().collect())
}

fn annotations<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    entries_of(deserializer, |key: &String| ANNOTATIONS.contains(&key.as_str()))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    unschedulable: bool,
    #[serde(deserialize_with = "list")]
    taints: Vec<Taint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Taint {
    #[serde(deserialize_with = "or_default")]
    key: String,
}

impl NodeMarks {
    /// Returns why the node is in maintenance; of several reasons the most specific.
    pub(super) fn maintenance(&self) -> Option<String> {
        let annotation = |key: &str| {
            let found = self.metadata.annotations.iter().find(|(known, _)| known == key);
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let is_tainted = |key: &str| self.spec.taints.iter().any(|taint| taint.key == key);
        let is_updating = || match (annotation(CONFIG_STATE), annotation(CURRENT_CONFIG), annotation(DESIRED_CONFIG)) {
            (Some("Working"), ..) => true,
            // Stuck until an administrator repairs it: nothing is under way.
            (Some("Degraded" | "Unreconcilable"), ..) => false,
            (_, Some(current), Some(desired)) => current != desired,
            _ => false,
        };
        let drain = || annotation(DESIRED_DRAIN).filter(|desired| annotation(APPLIED_DRAIN) != Some(desired));
        let text = if self.metadata.deletion_timestamp {
            Some("its object is being deleted")
        } else if is_updating() {
            Some("its machine configuration is being updated")
        } else if drain().is_some_and(|desired| desired.starts_with("drain-")) {
            Some("drained for a new machine configuration")
        } else if annotation(REBOOT).is_some() {
            Some("about to be rebooted by kured")
        } else {
            // A drained node is cordoned, too: "cordoned" is the least specific.
            let drained = TAINTS.iter().find(|(key, _)| is_tainted(key)).map(|(_, text)| *text);
            drained.or((self.spec.unschedulable || is_tainted(UNSCHEDULABLE)).then_some("cordoned"))
        };
        text.map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spec: Spec) -> Option<String> {
        NodeMarks { spec, ..NodeMarks::default() }.maintenance()
    }

    fn with(annotations: &[(&str, &str)]) -> Option<String> {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeMarks { metadata: Metadata { annotations, ..Metadata::default() }, ..NodeMarks::default() }.maintenance()
    }

    #[test]
    fn other_marks_are_no_maintenance() {
        let pressure = ["node.kubernetes.io/memory-pressure", "node-role.kubernetes.io/control-plane"];
        let taints = Vec::from(pressure.map(|key| Taint { key: key.to_owned() }));
        assert_eq!(of(Spec { taints, ..Spec::default() }), None);
        assert_eq!(with(&[(CURRENT_CONFIG, "a"), (DESIRED_CONFIG, "a"), (CONFIG_STATE, "Done")]), None);
        assert_eq!(with(&[(DESIRED_DRAIN, "uncordon-a"), (APPLIED_DRAIN, "drain-a")]), None);
        assert_eq!(with(&[(DESIRED_DRAIN, "drain-a"), (APPLIED_DRAIN, "drain-a")]), None);
        assert_eq!(with(&[(REBOOT, "")]), None);
    }

    /// openshift/machine-config-operator#2686; okd-project/okd#1980, where the taint stays on three masters for days.
    #[test]
    fn a_node_that_waits_for_its_update_is_not_in_maintenance() {
        let marks = |unschedulable: bool, annotations: &str| -> Option<String> {
            let json = format!(
                r#"{{"metadata": {{"annotations": {{{annotations}}}}}, "spec": {{"unschedulable": {unschedulable},
                    "taints": [{{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}}]}}}}"#
            );
            serde_json::from_str::<NodeMarks>(&json).unwrap().maintenance()
        };
        let config = |current: &str, desired: &str, state: &str| {
            format!(r#""{CURRENT_CONFIG}": "{current}", "{DESIRED_CONFIG}": "{desired}", "{CONFIG_STATE}": "{state}""#)
        };
        for (unschedulable, annotations, expected) in [
            // It waits, or its pool is paused: what it shall have is what it has.
            (false, config("rendered-1", "rendered-1", "Done"), None),
            (false, String::new(), None),
            (false, config("rendered-1", "rendered-2", "Degraded"), None),
            // Its turn has come.
            (false, config("rendered-1", "rendered-2", "Done"), Some("its machine configuration is being updated")),
            (true, config("rendered-1", "rendered-2", "Working"), Some("its machine configuration is being updated")),
            (true, config("rendered-1", "rendered-1", "Done"), Some("cordoned")),
        ] {
            assert_eq!(marks(unschedulable, &annotations).as_deref(), expected, "{unschedulable} {annotations}");
        }
    }

    #[test]
    fn cordoned_drained_and_updated_nodes_are_in_maintenance() {
        assert_eq!(of(Spec { unschedulable: true, ..Spec::default() }).as_deref(), Some("cordoned"));
        let metadata = Metadata { deletion_timestamp: true, ..Metadata::default() };
        let deleted = NodeMarks { metadata, ..NodeMarks::default() };
        assert_eq!(deleted.maintenance().unwrap(), "its object is being deleted");
        let tainted = |keys: &[&str]| keys.iter().map(|key| Taint { key: (*key).to_owned() }).collect();
        for (key, text) in TAINTS.into_iter().chain([(UNSCHEDULABLE, "cordoned")]) {
            // A drained node is cordoned, too: the more specific reason counts.
            for (is_unschedulable, taints) in [(false, tainted(&[key])), (true, tainted(&[UNSCHEDULABLE, key]))] {
                let spec = Spec { taints, unschedulable: is_unschedulable };
                assert_eq!(of(spec).as_deref(), Some(text), "{key}");
            }
        }
        for (annotations, text) in [
            (
                vec![(CURRENT_CONFIG, "a"), (DESIRED_CONFIG, "b"), (CONFIG_STATE, "Done")],
                "configuration is being updated",
            ),
            (
                vec![(CURRENT_CONFIG, "a"), (DESIRED_CONFIG, "a"), (CONFIG_STATE, "Working")],
                "configuration is being updated",
            ),
            (vec![(DESIRED_DRAIN, "drain-b"), (APPLIED_DRAIN, "uncordon-a")], "drained for"),
            (vec![(REBOOT, "2026-11-21T00:00:00Z")], "rebooted"),
        ] {
            let reason = with(&annotations);
            assert!(reason.as_deref().is_some_and(|reason| reason.contains(text)), "{annotations:?}: {reason:?}");
        }
    }

    #[test]
    fn a_stuck_update_is_no_maintenance() {
        assert_eq!(with(&[(CURRENT_CONFIG, "a"), (DESIRED_CONFIG, "b"), (CONFIG_STATE, "Degraded")]), None);
    }
}
