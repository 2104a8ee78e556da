//! The document itself, in the field names of the kubelet's Summary API (`stats/v1alpha1`, Kubernetes 1.36). What is not known is absent.

use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// A time, to the second, as the API writes it.
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
    /// Its name.
    pub node_name: String,
    /// All pods together, under the name `pods`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_containers: Vec<Container>,
    /// When it was booted.
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
    /// Billionths of a core, since the document was last asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_nano_cores: Option<u64>,
    /// Since it was made.
    pub usage_core_nano_seconds: u64,
}

/// `memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    pub time: Time,
    /// Limit minus working set; absent where there is no limit.
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

/// A filesystem, or what somebody uses of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fs {
    /// When it was measured: the age of a figure that directories are walked for.
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
    /// Where images are; used is what images take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_fs: Option<Fs>,
    /// Where writable layers are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container_fs: Option<Fs>,
}

/// `rlimit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Rlimit {
    pub time: Time,
    /// Most process ids at a time.
    #[serde(rename = "maxpid")]
    pub max_pid: i64,
    /// Threads at the moment.
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
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Its writable layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Fs>,
}

impl Container {
    /// One of which nothing is known yet.
    #[must_use]
    pub fn named(name: String) -> Self {
        Self { name, start_time: None, cpu: None, memory: None, rootfs: None, logs: None }
    }
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    pub pod_ref: PodRef,
    /// When its first sandbox was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    pub containers: Vec<Container>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// All that it keeps on the node's disks.
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Fs>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub process_stats: Option<ProcessStats>,
}

/// `podRef`. Name and namespace are absent while neither the API server nor the runtime has told them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PodRef {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub uid: String,
}

/// What a volume holds.
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
