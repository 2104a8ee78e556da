//! Pods as the API prints them (`v1.Pod`), as far as a decision looks at them.

mod identity;
mod list;
mod qos;
mod resource_name;
mod resources;

use serde::Deserialize;

use super::lenient::{entries, is_present, list, or_default};
use crate::config::Quantity;

pub use identity::{Exemption, FullName};
pub use list::Pods;
pub use resource_name::ResourceName;

/// A `v1.Pod`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Unique within the namespace, at any one time.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// The namespace.
    #[serde(deserialize_with = "or_default")]
    pub namespace: String,
    /// Unique for ever.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    /// The annotations that are looked at.
    #[serde(deserialize_with = "identity::annotations")]
    pub annotations: Vec<(String, String)>,
}

/// `spec`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// The node it runs on, when it does.
    #[serde(deserialize_with = "or_default")]
    pub node_name: String,
    /// Containers.
    #[serde(deserialize_with = "list")]
    pub containers: Vec<Container>,
    /// Containers that run before the others, or beside them (`restartPolicy: Always`).
    #[serde(deserialize_with = "list")]
    pub init_containers: Vec<Container>,
    /// Volumes.
    #[serde(deserialize_with = "list")]
    pub volumes: Vec<Volume>,
    /// Tolerations.
    #[serde(deserialize_with = "list")]
    pub tolerations: Vec<Toleration>,
    /// Priority; none is zero.
    pub priority: Option<i32>,
    /// Priority class.
    #[serde(deserialize_with = "or_default")]
    pub priority_class_name: String,
    /// How long it may take to stop, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
    /// What the pod costs beside its containers.
    #[serde(deserialize_with = "or_default")]
    pub overhead: ResourceList,
    /// Resources of the pod as a whole.
    pub resources: Option<Resources>,
    /// False: it has a user namespace of its own.
    pub host_users: Option<bool>,
}

/// A container of any kind.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its name, unique within the pod.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// What it asked for.
    #[serde(deserialize_with = "or_default")]
    pub resources: Resources,
    /// `Always` makes an init container a sidecar.
    #[serde(deserialize_with = "or_default")]
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
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// Promised.
    #[serde(deserialize_with = "or_default")]
    pub requests: ResourceList,
    /// Allowed.
    #[serde(deserialize_with = "or_default")]
    pub limits: ResourceList,
}

/// Amounts by the name of the resource, in the order written.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(transparent)]
pub struct ResourceList(#[serde(deserialize_with = "entries")] pub Vec<(ResourceName, Quantity)>);

/// A volume.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume {
    /// Its name, unique within the pod.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// A directory that lives as long as the pod.
    pub empty_dir: Option<EmptyDir>,
    /// A directory of the node.
    #[serde(deserialize_with = "is_present")]
    pub host_path: bool,
    /// Files from a `ConfigMap`.
    #[serde(deserialize_with = "is_present")]
    pub config_map: bool,
    /// A git repository.
    #[serde(deserialize_with = "is_present")]
    pub git_repo: bool,
}

/// `emptyDir`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EmptyDir {
    /// Empty: on the node's filesystem. `Memory`: tmpfs.
    #[serde(deserialize_with = "or_default")]
    pub medium: String,
    /// How much it may hold.
    pub size_limit: Option<Quantity>,
}

/// A toleration of a taint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Toleration {
    /// The taint's key; empty: all.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// `Exists` or `Equal`, which empty means too.
    #[serde(deserialize_with = "or_default")]
    pub operator: String,
    /// The taint's value.
    #[serde(deserialize_with = "or_default")]
    pub value: String,
    /// The taint's effect; empty: all.
    #[serde(deserialize_with = "or_default")]
    pub effect: String,
    /// How long a `NoExecute` taint is tolerated; without it for ever.
    pub toleration_seconds: Option<i64>,
}

/// `status`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    #[serde(deserialize_with = "or_default")]
    pub phase: String,
    /// QoS class, where the API server or the kubelet has set it.
    #[serde(deserialize_with = "or_default")]
    pub qos_class: String,
}
