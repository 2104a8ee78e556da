//! Usage as the kubelet's Summary API prints it (`/stats/summary`). Every field may be missing.

use serde::Deserialize;

use super::lenient::{list, or_default};
use crate::units::Moment;

/// The whole document.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// The node.
    #[serde(deserialize_with = "or_default")]
    pub node: NodeStats,
    /// Its pods.
    #[serde(deserialize_with = "list")]
    pub pods: Vec<PodStats>,
}

/// `node`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStats {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub node_name: String,
    /// Daemons, and all pods together under the name `pods`.
    #[serde(deserialize_with = "list")]
    pub system_containers: Vec<SystemContainerStats>,
    /// Memory.
    pub memory: Option<MemoryStats>,
    /// The filesystem of the kubelet's root directory.
    pub fs: Option<FsStats>,
    /// The container runtime's filesystems.
    pub runtime: Option<RuntimeStats>,
    /// Process ids.
    pub rlimit: Option<RlimitStats>,
    /// Swap space.
    pub swap: Option<SwapStats>,
}

/// `memory` of the node, or of a system container.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryStats {
    /// When it was measured.
    pub time: Option<Timestamp>,
    /// Limit minus working set.
    pub available_bytes: Option<u64>,
    /// Usage minus inactive file memory.
    pub working_set_bytes: Option<u64>,
}

/// `memory` of a pod or a container.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryUsage {
    /// Usage minus inactive file memory.
    pub working_set_bytes: Option<u64>,
}

/// A filesystem of the node.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FsStats {
    /// When it was measured.
    pub time: Option<Timestamp>,
    /// Bytes free.
    pub available_bytes: Option<u64>,
    /// Bytes in all.
    pub capacity_bytes: Option<u64>,
    /// Inodes free.
    pub inodes_free: Option<u64>,
    /// Inodes in all.
    pub inodes: Option<u64>,
}

/// What somebody uses of a filesystem. Of the filesystem itself, which is said there too, nothing is kept: a pass goes through
/// thousands of these.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FsUsage {
    /// Bytes used.
    pub used_bytes: Option<u64>,
    /// Inodes used.
    pub inodes_used: Option<u64>,
}

/// `runtime`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RuntimeStats {
    /// Where images are.
    pub image_fs: Option<FsStats>,
    /// Where writable layers are.
    pub container_fs: Option<FsStats>,
}

/// `rlimit`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct RlimitStats {
    /// When it was measured.
    pub time: Option<Timestamp>,
    /// Most process ids at a time.
    #[serde(rename = "maxpid")]
    pub max_pid: Option<i64>,
    /// Threads at the moment.
    #[serde(rename = "curproc")]
    pub running: Option<i64>,
}

/// `swap`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SwapStats {
    /// Bytes free.
    pub swap_available_bytes: Option<u64>,
    /// Bytes used.
    pub swap_usage_bytes: Option<u64>,
}

/// A daemon's cgroup, or that of all pods.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct SystemContainerStats {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Memory.
    pub memory: Option<MemoryStats>,
}

/// A container.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStats {
    /// Its name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Memory.
    pub memory: Option<MemoryUsage>,
    /// Its writable layer.
    pub rootfs: Option<FsUsage>,
    /// Its logs.
    pub logs: Option<FsUsage>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStats {
    /// Which pod.
    #[serde(deserialize_with = "or_default")]
    pub pod_ref: PodReference,
    /// Its containers.
    #[serde(deserialize_with = "list")]
    pub containers: Vec<ContainerStats>,
    /// Memory of the pod's cgroup.
    pub memory: Option<MemoryUsage>,
    /// Volumes.
    #[serde(rename = "volume", deserialize_with = "list")]
    pub volumes: Vec<VolumeStats>,
    /// All that it keeps on the node's disks.
    #[serde(rename = "ephemeral-storage")]
    pub ephemeral_storage: Option<FsUsage>,
    /// Processes.
    #[serde(rename = "process_stats")]
    pub process_stats: Option<ProcessStats>,
}

/// `podRef`. Statistics belong to the pod of this UID.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct PodReference {
    /// UID.
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
}

/// What a volume holds.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VolumeStats {
    /// Its name in the pod.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// Bytes used.
    pub used_bytes: Option<u64>,
    /// Inodes used.
    pub inodes_used: Option<u64>,
}

/// `process_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ProcessStats {
    /// Processes and threads.
    pub process_count: Option<u64>,
}

/// A date and time as the API writes it (RFC 3339).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub Moment);

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time = jiff::Timestamp::deserialize(deserializer)?;
        Ok(Self(Moment(time.as_nanosecond())))
    }
}
