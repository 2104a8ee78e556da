//! The owners of a pod, and the names of its containers.

use super::object::{ContainerStatus, Owner, Pod};

impl Pod {
    pub fn controller(&self) -> Option<&Owner> {
        self.metadata.owners.iter().find(|owner| owner.controller)
    }

    /// Returns `kind/name` of the controller.
    pub fn owner(&self) -> Option<String> {
        self.controller().map(|owner| format!("{}/{}", owner.kind, owner.name))
    }

    /// Returns whether a `DaemonSet` would recreate the pod. Users can write owners on their own pods, but gain nothing: a
    /// controller that does not exist recreates nothing, and the garbage collector deletes its pods; a real controller releases a
    /// pod that is not its own.
    pub fn is_of_daemon_set(&self) -> bool {
        self.controller().is_some_and(|owner| owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/"))
    }

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
    fn a_container_of_any_kind_is_found_by_its_id() {
        let json = r#"{"status": {"containerStatuses": [{"name": "app", "containerID": "containerd://01"}, {"name": "new"}],
            "initContainerStatuses": [{"name": "proxy", "containerID": "cri-o://02"}]}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        let names = ["01", "02", "03", ""].map(|id| pod.container_name(id));
        assert_eq!(names, [Some("app"), Some("proxy"), None, None]);
    }

    #[test]
    fn the_controller_is_found_among_the_owners() {
        let json = r#"{"metadata": {"ownerReferences": [{"kind": "Node", "name": "n"},
            {"kind": "DaemonSet", "name": "d", "controller": true, "blockOwnerDeletion": true, "uid": "x"}]}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        assert_eq!(pod.owner().as_deref(), Some("DaemonSet/d"));
    }

    #[test]
    fn only_pods_of_a_daemon_set_belong_to_it() {
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
