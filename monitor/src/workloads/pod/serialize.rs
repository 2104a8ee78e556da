//! Serializes pods as the API prints them, so that they can be read back.

use serde::{Serialize, Serializer};

/// A field that is read by presence must be omitted when it is false.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
pub fn is_false(value: &bool) -> bool {
    !value
}

pub fn map<S: Serializer, K: Serialize, T: Serialize>(entries: &[(K, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(key, value)| (key, value)))
}

#[cfg(test)]
mod tests {
    use crate::workloads::Pod;

    #[test]
    fn a_serialized_pod_reads_back() {
        let json = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "deletionTimestamp": "2026-11-21T00:00:00Z",
                "annotations": {"kubernetes.io/config.source": "api"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": true}]},
            "spec": {"priority": -5, "hostUsers": false, "overhead": {"memory": "1Mi"}, "resources": {"limits": {"hugepages-2Mi": "0"}},
                "containers": [{"name": "c", "resources": {"requests": {"memory": "1E3", "cpu": "100m"}}}],
                "initContainers": [{"name": "i", "restartPolicy": "Always"}],
                "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                "volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}}, {"name": "b", "hostPath": {"path": "/"}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "d", "configMap": {}}, {"name": "e", "gitRepo": {}}]},
            "status": {"phase": "Running", "qosClass": "Burstable",
                "containerStatuses": [{"name": "c", "containerID": "containerd://0123"}]}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        let written = serde_json::to_string(&pod).unwrap();
        assert_eq!(serde_json::from_str::<Pod>(&written).unwrap(), pod);
        // Empty fields are omitted.
        assert_eq!(serde_json::to_string(&Pod::default()).unwrap(), r#"{"metadata":{},"spec":{},"status":{}}"#);
    }
}
