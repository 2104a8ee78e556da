//! The API's object `v1.Pod`, with the fields that a decision reads.

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::claimed_memory::ClaimStatus;
use super::deletion::Deletion;
use super::resource_name::ResourceName;
use crate::units::Quantity;
use crate::workloads::json_defaults::{entries, is_present, list, or_default, time};

/// Limit of an annotation's value. Values that affect decisions are short; values that tools write may be long.
const MAX_VALUE_BYTES: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Pod {
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub spec: Spec,
    #[serde(deserialize_with = "or_default")]
    pub status: Status,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The UID. Unlike the name, it is never reused.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(deserialize_with = "annotations", serialize_with = "map", skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<(String, String)>,
    #[serde(rename = "ownerReferences", deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    #[serde(rename = "deletionTimestamp", skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them if `restartPolicy` is `Always`.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub overhead: ResourceList,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// False if the pod has its own user namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
    /// The pod is in the node's namespace of System V IPC, and has the node's `/dev/shm`.
    #[serde(rename = "hostIPC", deserialize_with = "or_default", skip_serializing_if = "is_false")]
    pub host_ipc: bool,
}

/// A container of any kind; the API's arrays of containers differ only in when they run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub restart_policy: String,
}

impl Container {
    /// Returns whether an init container runs beside the containers after it.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub requests: ResourceList,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub limits: ResourceList,
}

/// Quantities by resource, in their written order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ResourceList(
    #[serde(deserialize_with = "entries", serialize_with = "map")] pub Vec<(ResourceName, Quantity)>,
);

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    #[serde(deserialize_with = "host_path", skip_serializing_if = "Option::is_none")]
    pub host_path: Option<HostPath>,
    #[serde(deserialize_with = "is_present", skip_serializing_if = "is_false")]
    pub config_map: bool,
    #[serde(deserialize_with = "is_present", skip_serializing_if = "is_false")]
    pub git_repo: bool,
    #[serde(deserialize_with = "is_present", skip_serializing_if = "is_false")]
    pub persistent_volume_claim: bool,
}

/// A file or directory of the node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct HostPath {
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EmptyDir {
    /// The medium: `Memory` is a tmpfs, an empty string is the node's filesystem.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub medium: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// The key. An empty key matches all keys.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The operator: `Exists` or `Equal`. An empty string is `Equal`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The effect. An empty string matches all effects.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// How long a `NoExecute` taint is tolerated; `None` means for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub phase: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub qos_class: String,
    /// When the kubelet acknowledged the pod; `None` before that, and if the time cannot be read.
    #[serde(deserialize_with = "time", skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
    /// The requests that the kubelet has allocated to the pod as a whole.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub allocated_resources: ResourceList,
    /// The requests and limits of the pod as a whole that are in force.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
    /// The condition `PodResizePending`, if there is one.
    #[serde(deserialize_with = "resize_conditions", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What the pod's claims have of the node's own resources.
    #[serde(
        rename = "nodeAllocatableResourceClaimStatuses",
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub claims: Vec<ClaimStatus>,
}

/// The type of the condition that a pod has while the kubelet has not accepted its resize (1.33).
pub const RESIZE_PENDING: &str = "PodResizePending";

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Condition {
    #[serde(rename = "type", deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// `Deferred` or `Infeasible`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The name of the runtime and the id: `containerd://0123…`.
    #[serde(rename = "containerID", deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
    /// The requests that the kubelet has allocated to the container.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub allocated_resources: ResourceList,
    /// The requests and limits of the container that are in force.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Resources::is_empty")]
    pub resources: Resources,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whether this owner recreates the pod.
    #[serde(deserialize_with = "or_default")]
    pub controller: bool,
}

impl Resources {
    fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.limits.is_empty()
    }
}

impl ResourceList {
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.iter().find(|(known, _)| known.as_str() == name).map(|(_, quantity)| quantity)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the list names a resource that can be requested for the pod as a whole; local storage cannot.
    pub(super) fn names_pod_level(&self) -> bool {
        self.0.iter().any(|(name, _)| match name {
            ResourceName::Cpu | ResourceName::Memory => true,
            ResourceName::EphemeralStorage => false,
            ResourceName::Other(name) => name.starts_with("hugepages-"),
        })
    }
}

/// Reads a volume's hostPath. One that cannot be read is there all the same.
fn host_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HostPath>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Wire {
        Readable { path: String },
        Other(IgnoredAny),
    }
    Ok(Option::<Wire>::deserialize(deserializer)?.map(|wire| match wire {
        Wire::Readable { path } => HostPath { path },
        Wire::Other(_) => HostPath::default(),
    }))
}

/// Reads the conditions about a resize; a pod has many others.
fn resize_conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Condition>, D::Error> {
    let all: Vec<Condition> = list(deserializer)?;
    Ok(all.into_iter().filter(|condition| condition.kind == RESIZE_PENDING).collect())
}

/// Reads all annotations, because the operator chooses which of them protect a pod, and may change that later.
fn annotations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    let mut all: Vec<(String, String)> = entries(deserializer)?;
    all.iter_mut().for_each(|(_, value)| shorten(value));
    Ok(all)
}

pub fn shorten(value: &mut String) {
    value.truncate(shortened(value).len());
}

/// Returns the part of a value that is kept.
pub fn shortened(value: &str) -> &str {
    value.get(..value.floor_char_boundary(MAX_VALUE_BYTES)).unwrap_or(value)
}

/// Returns whether a field is false. A field that is read by its presence must then be omitted.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_false(value: &bool) -> bool {
    !value
}

fn map<S: Serializer, K: Serialize, T: Serialize>(entries: &[(K, T)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(entries.iter().map(|(key, value)| (key, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serialized_pod_reads_back() {
        let json = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "deletionTimestamp": "2026-11-21T00:00:00Z",
                "annotations": {"kubernetes.io/config.source": "api"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "controller": true}]},
            "spec": {"priority": -5, "hostUsers": false, "hostIPC": true, "overhead": {"memory": "1Mi"}, "resources": {"limits": {"hugepages-2Mi": "0"}},
                "containers": [{"name": "c", "resources": {"requests": {"memory": "1E3", "cpu": "100m"}}}],
                "initContainers": [{"name": "i", "restartPolicy": "Always"}],
                "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                "volumes": [{"name": "a", "emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}}, {"name": "b", "hostPath": {"path": "/"}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "d", "configMap": {}}, {"name": "e", "gitRepo": {}}]},
            "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-11-20T08:00:00Z",
                "containerStatuses": [{"name": "c", "containerID": "containerd://0123", "allocatedResources": {"memory": "1E3"},
                    "resources": {"limits": {"memory": "2E3"}}}],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodResizePending", "reason": "Deferred"}],
                "nodeAllocatableResourceClaimStatuses": [{"containers": ["c"], "mapping": [{"name": "memory", "quantity": "1Gi"}]}]}}"#;
        let pod: Pod = serde_json::from_str(json).unwrap();
        let written = serde_json::to_string(&pod).unwrap();
        assert_eq!(serde_json::from_str::<Pod>(&written).unwrap(), pod);
        // Empty fields are omitted.
        assert_eq!(serde_json::to_string(&Pod::default()).unwrap(), r#"{"metadata":{},"spec":{},"status":{}}"#);
    }
}
