//! Whose a pod is.

use serde::{Deserialize, Serialize};

use super::{ContainerStatus, Pod};
use crate::workloads::lenient::or_default;

/// One of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
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

    /// Whether it belongs to an object of that kind.
    #[must_use]
    pub fn is_owned_by(&self, kind: &str) -> bool {
        self.metadata.owners.iter().any(|owner| owner.kind == kind)
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
        assert!(pod.is_owned_by("Node") && !pod.is_owned_by("Job"));
    }
}
