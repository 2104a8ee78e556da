//! Usage in the format of the kubelet's Summary API (`/stats/summary`). Every field may be missing.

use serde::Deserialize;

use super::json_defaults::{list, or_default};
use crate::units::Moment;

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Summary {
    #[serde(deserialize_with = "or_default")]
    pub node: NodeStats,
    #[serde(deserialize_with = "list")]
    pub pods: Vec<PodStats>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStats {
    #[serde(deserialize_with = "or_default")]
    pub node_name: String,
    /// System daemons, and all pods together under the name `pods`.
    #[serde(deserialize_with = "list")]
    pub system_containers: Vec<SystemContainerStats>,
    pub memory: Option<MemoryStats>,
    /// The filesystem that holds the kubelet's root directory.
    pub fs: Option<FsStats>,
    pub runtime: Option<RuntimeStats>,
    pub rlimit: Option<RlimitStats>,
    pub swap: Option<SwapStats>,
}

/// The field `memory` of the node, or of a system container.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryStats {
    pub time: Option<Timestamp>,
    /// Limit minus working set.
    pub available_bytes: Option<u64>,
    /// Usage minus inactive file memory.
    pub working_set_bytes: Option<u64>,
}

/// The field `memory` of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodMemory {
    pub time: Option<Timestamp>,
    /// Usage minus inactive file memory.
    pub working_set_bytes: Option<u64>,
    /// Anonymous memory.
    pub rss_bytes: Option<u64>,
}

/// The field `memory` of a container.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryUsage {
    /// Usage minus inactive file memory.
    pub working_set_bytes: Option<u64>,
    /// Anonymous memory.
    pub rss_bytes: Option<u64>,
}

/// The field `fs` of the node, and the filesystems of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FsStats {
    pub time: Option<Timestamp>,
    pub available_bytes: Option<u64>,
    pub capacity_bytes: Option<u64>,
    pub inodes_free: Option<u64>,
    pub inodes: Option<u64>,
}

/// The usage of a filesystem by a container, volume or pod. The free space and capacity, which the Summary API repeats here, are
/// not parsed, because a decision reads thousands of these objects.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FsUsage {
    pub used_bytes: Option<u64>,
    pub inodes_used: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RuntimeStats {
    pub image_fs: Option<FsStats>,
    pub container_fs: Option<FsStats>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct RlimitStats {
    pub time: Option<Timestamp>,
    /// The largest number of process ids at a time.
    #[serde(rename = "maxpid")]
    pub max_pid: Option<i64>,
    #[serde(rename = "curproc")]
    pub running: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SwapStats {
    pub swap_available_bytes: Option<u64>,
    pub swap_usage_bytes: Option<u64>,
}

/// The cgroup of a system daemon, or of all pods.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct SystemContainerStats {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub memory: Option<MemoryStats>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStats {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub memory: Option<MemoryUsage>,
    pub rootfs: Option<FsUsage>,
    pub logs: Option<FsUsage>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStats {
    #[serde(deserialize_with = "or_default")]
    pub pod_ref: PodReference,
    #[serde(deserialize_with = "list")]
    pub containers: Vec<ContainerStats>,
    pub memory: Option<PodMemory>,
    #[serde(rename = "volume", deserialize_with = "list")]
    pub volumes: Vec<VolumeStats>,
    /// The usage of the node's disks by the whole pod.
    #[serde(rename = "ephemeral-storage")]
    pub ephemeral_storage: Option<FsUsage>,
    #[serde(rename = "process_stats")]
    pub process_stats: Option<ProcessStats>,
}

/// The field `podRef`. The statistics belong to the pod of this UID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct PodReference {
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeStats {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub used_bytes: Option<u64>,
    pub inodes_used: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ProcessStats {
    pub process_count: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub Moment);

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = jiff::Timestamp::deserialize(deserializer)?;
        Ok(Self(Moment(time.as_nanosecond())))
    }
}
