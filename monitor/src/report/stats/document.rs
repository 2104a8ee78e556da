//! The document, in the field names of the kubelet's Summary API (`stats/v1alpha1`, Kubernetes 1.36). Unknown fields are absent.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// A time in seconds, serialized as the API does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = Timestamp::from_second(self.0.as_second()).unwrap_or(self.0);
        serializer.collect_str(&seconds)
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Document {
    pub node: Node,
    pub pods: Vec<Pod>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub node_name: String,
    /// All pods together, under the name `pods`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_containers: Vec<Container>,
    pub start_time: Time,
    pub cpu: Option<Cpu>,
    pub memory: Option<Memory>,
    /// The filesystem of the kubelet's directory.
    pub fs: Option<Fs>,
    pub runtime: Option<Runtime>,
    pub rlimit: Option<Rlimit>,
    pub swap: Option<Swap>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    pub time: Time,
    /// Average CPU usage in billionths of a core since the previous document.
    pub usage_nano_cores: Option<u64>,
    /// CPU time in nanoseconds since the cgroup was created.
    pub usage_core_nano_seconds: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    pub time: Time,
    /// Limit minus working set; absent without a limit.
    pub available_bytes: Option<u64>,
    pub usage_bytes: u64,
    /// Usage minus inactive file memory.
    pub working_set_bytes: u64,
    pub rss_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
}

/// A filesystem, or the usage of a filesystem by a container, pod or volume.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fs {
    /// Time of the measurement. Directory walks may be minutes old.
    pub time: Time,
    pub available_bytes: Option<u64>,
    pub capacity_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    pub inodes_free: Option<u64>,
    pub inodes: Option<u64>,
    pub inodes_used: Option<u64>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// The filesystem of images. `used` counts images alone.
    pub image_fs: Option<Fs>,
    pub container_fs: Option<Fs>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Rlimit {
    pub time: Time,
    /// Maximum number of process ids.
    #[serde(rename = "maxpid")]
    pub max_pid: i64,
    /// Current number of threads.
    #[serde(rename = "curproc")]
    pub running: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    pub time: Time,
    pub swap_available_bytes: u64,
    pub swap_usage_bytes: u64,
}

/// A container, or a group of cgroups.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    pub name: String,
    pub start_time: Option<Time>,
    pub cpu: Option<Cpu>,
    pub memory: Option<Memory>,
    /// Usage by the writable layer.
    pub rootfs: Option<Fs>,
    pub logs: Option<Fs>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    pub pod_ref: PodRef,
    /// Creation time of the pod's first sandbox.
    pub start_time: Option<Time>,
    pub containers: Vec<Container>,
    pub cpu: Option<Cpu>,
    pub memory: Option<Memory>,
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Total usage of the node's disks by the pod.
    #[serde(rename = "ephemeral-storage")]
    pub ephemeral_storage: Option<Fs>,
    #[serde(rename = "process_stats")]
    pub process_stats: Option<ProcessStats>,
}

/// `podRef`. Name and namespace are absent until the API server or the runtime has reported them.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct PodRef {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub uid: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Volume {
    pub name: String,
    #[serde(flatten)]
    pub fs: Fs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ProcessStats {
    /// Processes of the listed containers, each counted once however many threads it has.
    pub process_count: u64,
}
