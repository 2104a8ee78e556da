//! Pods as the API prints them (`v1.Pod`), as far as a decision looks at them.

mod bounds;
mod identity;
mod list;
mod owner;
mod protected;
mod qos;
mod resource_name;
mod resources;
mod write;

use serde::{Deserialize, Serialize};

use super::lenient::{entries, is_present, list, or_default};
use crate::units::Quantity;

pub use identity::{Exemption, FullName};
pub use list::Pods;
pub use owner::Owner;
pub use resource_name::ResourceName;

/// A `v1.Pod`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Pod {
    /// Who it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: Metadata,
    /// What was asked for.
    #[serde(deserialize_with = "or_default")]
    pub spec: Spec,
    /// What became of it.
    #[serde(deserialize_with = "or_default")]
    pub status: Status,
}

/// `metadata`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Unique within the namespace, at any one time.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unique for ever.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Annotations, long values cut.
    #[serde(
        deserialize_with = "identity::annotations",
        serialize_with = "write::map",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub annotations: Vec<(String, String)>,
    /// Who would make it anew, or what it belongs to.
    #[serde(rename = "ownerReferences", deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// It was deleted, and is on its way out.
    #[serde(rename = "deletionTimestamp", deserialize_with = "is_present", skip_serializing_if = "write::is_false")]
    pub is_being_deleted: bool,
}

/// `spec`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// The node it runs on, when it does.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// Containers.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them (`restartPolicy: Always`).
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// Volumes.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Tolerations.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Priority; none is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Priority class.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub priority_class_name: String,
    /// How long it may take to stop, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period_seconds: Option<i64>,
    /// What the pod costs beside its containers.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub overhead: ResourceList,
    /// Resources of the pod as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// False: it has a user namespace of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_users: Option<bool>,
}

/// A container of any kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its name, unique within the pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it asked for.
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
    /// `Always` makes an init container a sidecar.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub restart_policy: String,
}

impl Container {
    /// Tells of an init container whether it runs beside the containers that come after it.
    #[must_use]
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

/// `resources`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Resources {
    /// Promised.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub requests: ResourceList,
    /// Allowed.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub limits: ResourceList,
}

/// Amounts by the name of the resource, in the order written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ResourceList(
    #[serde(deserialize_with = "entries", serialize_with = "write::map")] pub Vec<(ResourceName, Quantity)>,
);

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Its name, unique within the pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// A directory that lives as long as the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_dir: Option<EmptyDir>,
    /// A directory of the node.
    #[serde(deserialize_with = "is_present", skip_serializing_if = "write::is_false")]
    pub host_path: bool,
    /// Files from a `ConfigMap`.
    #[serde(deserialize_with = "is_present", skip_serializing_if = "write::is_false")]
    pub config_map: bool,
    /// A git repository.
    #[serde(deserialize_with = "is_present", skip_serializing_if = "write::is_false")]
    pub git_repo: bool,
    /// Storage that outlives the pod.
    #[serde(deserialize_with = "is_present", skip_serializing_if = "write::is_false")]
    pub persistent_volume_claim: bool,
}

/// `emptyDir`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EmptyDir {
    /// Empty: on the node's filesystem. `Memory`: tmpfs.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub medium: String,
    /// How much it may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_limit: Option<Quantity>,
}

/// A toleration of a taint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key; empty: all.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Exists` or `Equal`, which empty means too.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// The taint's value.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The taint's effect; empty: all.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// For how long a `NoExecute` taint is tolerated; none: for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// `status`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// QoS class, where the API server or the kubelet has set it.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub qos_class: String,
    /// Containers, as far as the kubelet has reported them.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
    /// Containers that run before the others, or beside them.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Containers that somebody added for debugging.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub ephemeral_container_statuses: Vec<ContainerStatus>,
}

/// What the kubelet has reported of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Its name, unique within the pod.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The runtime's id, after the runtime's name: `containerd://0123…`.
    #[serde(rename = "containerID", deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub container_id: String,
}
