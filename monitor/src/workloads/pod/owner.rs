//! Whose a pod is.

use serde::{Deserialize, Serialize};

use super::{ContainerStatus, Pod};
use crate::workloads::lenient::or_default;

/// One of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// Whose kind it is: `apps/v1`, `batch/v1`, …
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `ReplicaSet`, `DaemonSet`, `Job`, …
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its name.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// It is the one that makes the pod anew.
    #[serde(deserialize_with = "or_default")]
    pub controller: bool,
}

impl Pod {
    /// Who would make it anew.
    #[must_use]
    pub fn controller(&self) -> Option<&Owner> {
        self.metadata.owners.iter().find(|owner| owner.controller)
    }

    /// Whether a `DaemonSet` would make it anew. Anybody may name owners on a pod of his own; a controller that is not one lets go of the pod, or
    /// the garbage collector takes it, and anything else that is called so makes nothing anew.
    #[must_use]
    pub fn is_of_daemon_set(&self) -> bool {
        self.controller().is_some_and(|owner| owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/"))
    }

    /// The name of the container that the runtime knows by that id.
    #[must_use]
    pub fn container_name(&self, id: &str) -> Option<&str> {
        let status = &self.status;
        let all = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
        let is_it = |container: &&ContainerStatus| {
            container.container_id.rsplit_once("://").is_some_and(|(_, known)| known == id)
        };
        all.into_iter().flatten().find(is_it).map(|container| container.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_id_of_any_kind() {
        let json = r#"{"status": {"containerStatuses": [{"name": "app", "containerID": "containerd://01"}, {"name": "new"}],
            "initContainerStatuses": [{"name": "proxy", "containerID": "cri-o://02"}]}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        let names = ["01", "02", "03", ""].map(|id| pod.container_name(id));
        assert_eq!(names, [Some("app"), Some("proxy"), None, None]);
    }

    #[test]
    fn who_makes_it_anew() {
        let json = r#"{"metadata": {"ownerReferences": [{"kind": "Node", "name": "n"},
            {"kind": "DaemonSet", "name": "d", "controller": true, "blockOwnerDeletion": true, "uid": "x"}]}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        assert_eq!(pod.controller().map(|owner| owner.name.as_str()), Some("d"));
    }

    #[test]
    fn only_a_daemon_sets_own_pod_is_of_one() {
        for (owner, holds) in [
            (r#""apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true"#, true),
            (r#""apiVersion": "apps/v1", "kind": "DaemonSet""#, false),
            (r#""apiVersion": "example.com/v1", "kind": "DaemonSet", "controller": true"#, false),
            (r#""apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true"#, false),
        ] {
            let json = format!(r#"{{"metadata": {{"ownerReferences": [{{{owner}}}]}}}}"#);
            assert_eq!(serde_json::from_str::<Pod>(&json).unwrap().is_of_daemon_set(), holds, "{owner}");
        }
    }
}
