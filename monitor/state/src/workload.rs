//! Workloads: who they are and what they use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identity of a workload. The cgroup is always known, the rest where the API server or the container runtime has told it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Name {
    /// The path of the cgroup, without the cgroup file system's mount point.
    pub workload: String,
    /// The name to show: `namespace/pod`, `namespace/pod/container` for a container that is a workload of its own, the unit's name, the
    /// UID of a pod without a known name, the id of such a container, or the path.
    pub display: String,
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub container: Option<String>,
    /// `kind/name` of the controller, for example `ReplicaSet/report-5d4f`.
    pub owner: Option<String>,
    pub uid: Option<String>,
}

/// The part of a [`Name`] that a record keeps beside the path: the names as they were at the time of the event.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    pub namespace: Option<String>,
    pub pod: Option<String>,
    pub container: Option<String>,
    /// `kind/name` of the controller.
    pub owner: Option<String>,
    pub uid: Option<String>,
}

impl Name {
    /// Returns `namespace/pod`, if both are known.
    #[must_use]
    pub fn full_pod(&self) -> Option<String> {
        full_pod(self.namespace.as_ref(), self.pod.as_ref())
    }

    /// Returns what is known beside the path, if anything is.
    #[must_use]
    pub fn identity(self) -> Option<Identity> {
        let Self { workload: _, display: _, namespace, pod, container, owner, uid } = self;
        let identity = Identity { namespace, pod, container, owner, uid };
        (identity != Identity::default()).then_some(identity)
    }
}

impl Identity {
    /// Returns `namespace/pod`, if both are known.
    #[must_use]
    pub fn full_pod(&self) -> Option<String> {
        full_pod(self.namespace.as_ref(), self.pod.as_ref())
    }
}

fn full_pod(namespace: Option<&String>, pod: Option<&String>) -> Option<String> {
    Some(format!("{}/{}", namespace?, pod?))
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadState {
    #[serde(flatten)]
    pub name: Name,
    /// `Guaranteed`, `Burstable` or `BestEffort`.
    pub qos_class: String,
    pub priority: Option<i32>,
    /// The working set.
    pub memory_bytes: Option<u64>,
    /// The change of the working set.
    pub memory_bytes_per_second: Option<f64>,
    pub memory_request_bytes: Option<u64>,
    /// Reclaim stalls of the workload's tasks since the agent has seen it.
    pub stalls: Option<u64>,
    pub stall_seconds: Option<f64>,
    pub oom_kills: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub disk_inodes: Option<u64>,
    pub pids: Option<u64>,
    /// Why the workload is never evicted.
    pub exempt: Option<String>,
}
