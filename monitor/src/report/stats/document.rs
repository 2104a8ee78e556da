//! The document, in the field names of the kubelet's Summary API (`stats/v1alpha1`, Kubernetes 1.36). Unknown fields are absent.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// A time in seconds, serialized as the API does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = Timestamp::from_second(self.0.as_second()).unwrap_or(self.0);
        serializer.collect_str(&seconds)
    }
}

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Document {
    /// The node.
    pub node: Node,
    /// Its pods.
    pub pods: Vec<Pod>,
}

/// `node`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Name of the node.
    pub node_name: String,
    /// All pods together, under the name `pods`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_containers: Vec<Container>,
    /// Boot time of the node.
    pub start_time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The filesystem of the kubelet's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit: Option<Rlimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
}

/// `cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    pub time: Time,
    /// Average CPU usage in billionths of a core since the previous document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_nano_cores: Option<u64>,
    /// CPU time in nanoseconds since the cgroup was created.
    pub usage_core_nano_seconds: u64,
}

/// `memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    pub time: Time,
    /// Limit minus working set; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    pub usage_bytes: u64,
    /// Usage minus inactive file memory.
    pub working_set_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_faults: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub major_page_faults: Option<u64>,
}

/// A filesystem, or the usage of a filesystem by a container, pod or volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fs {
    /// Time of the measurement. Directory walks may be minutes old.
    pub time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<u64>,
}

/// `runtime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// The filesystem of images. `used` counts images alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<Fs>,
    /// The filesystem of writable layers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<Fs>,
}

/// `rlimit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rlimit {
    pub time: Time,
    /// Maximum number of process ids.
    #[serde(rename = "maxpid")]
    pub max_pid: i64,
    /// Current number of threads.
    #[serde(rename = "curproc")]
    pub running: i64,
}

/// `swap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    pub time: Time,
    pub swap_available_bytes: u64,
    pub swap_usage_bytes: u64,
}

/// A container, or a group of cgroups.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    /// Creation time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Usage by the writable layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Fs>,
}

impl Container {
    /// Returns a container without any figures.
    pub fn named(name: String) -> Self {
        Self { name, start_time: None, cpu: None, memory: None, rootfs: None, logs: None }
    }
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    pub pod_ref: PodRef,
    /// Creation time of the pod's first sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    pub containers: Vec<Container>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Total usage of the node's disks by the pod.
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Fs>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub process_stats: Option<ProcessStats>,
}

/// `podRef`. Name and namespace are absent until the API server or the runtime has reported them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub uid: String,
}

/// Usage of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Volume {
    pub name: String,
    #[serde(flatten)]
    pub fs: Fs,
}

/// `process_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProcessStats {
    /// Processes and threads.
    pub process_count: u64,
}
