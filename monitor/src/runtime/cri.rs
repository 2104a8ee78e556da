//! Messages of the Container Runtime Interface, `runtime.v1` (Kubernetes 1.23, containerd 1.6, CRI-O 1.20), with the fields that the agent
//! needs. Decoding skips other fields, which keeps the lists of a busy node small. Field numbers are those of kubernetes/cri-api.
//!
//! Written by hand: the only crate with all of them generated has not followed tonic for two years.

use std::collections::BTreeMap;

use prost::Message;

/// Labels, annotations, or the JSON of verbose answers.
pub type Texts = BTreeMap<String, String>;

/// A request or answer without needed fields.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct VersionResponse {
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// Version of the interface: `v1`.
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// Number of the pod's earlier sandboxes.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// The value of `PodSandbox::state` of a running sandbox.
pub const SANDBOX_READY: i32 = 0;

#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// `SANDBOX_READY` or something else.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// The pod's, and the kubelet's own.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: Texts,
    /// The pod's, as the kubelet knows them.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxResponse {
    /// Dead ones, too.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

/// For `StopPodSandbox` and `RemovePodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// For `PodSandboxStatus` and `ContainerStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct ItemStatusRequest {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandboxStatus>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: Texts,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatus {
    #[prost(string, tag = "1")]
    pub id: String,
    /// `SANDBOX_READY` or something else.
    #[prost(int32, tag = "3")]
    pub state: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Number of earlier containers of this name.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageSpec {
    /// Name, digest or id.
    #[prost(string, tag = "1")]
    pub image: String,
}

// Values of `ContainerState`.
pub const CONTAINER_CREATED: i32 = 0;
pub const CONTAINER_RUNNING: i32 = 1;
pub const CONTAINER_EXITED: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<ContainerMetadata>,
    /// As requested.
    #[prost(message, optional, tag = "4")]
    pub image: Option<ImageSpec>,
    /// As resolved.
    #[prost(string, tag = "5")]
    pub image_ref: String,
    #[prost(int32, tag = "6")]
    pub state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "7")]
    pub created_at: i64,
    /// The kubelet's name the pod, also when the sandbox was removed.
    #[prost(btree_map = "string, string", tag = "8")]
    pub labels: Texts,
    /// The kubelet's contain the grace period.
    #[prost(btree_map = "string, string", tag = "9")]
    pub annotations: Texts,
    /// Empty before Kubernetes 1.30.
    #[prost(string, tag = "10")]
    pub image_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerFilter {
    /// Empty: any.
    #[prost(string, tag = "3")]
    pub pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListContainersRequest {
    /// None: all.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<ContainerFilter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListContainersResponse {
    /// Dead ones, too.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<Container>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    /// Of an image volume; since Kubernetes 1.31.
    #[prost(message, optional, tag = "9")]
    pub image: Option<ImageSpec>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct LinuxContainerResources {
    /// Microseconds.
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    /// Microseconds in each period; 0 or less: no limit.
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    /// 1024 are one requested CPU.
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
    /// Bytes; 0: no limit.
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ContainerResources {
    #[prost(message, optional, tag = "1")]
    pub linux: Option<LinuxContainerResources>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// Nanoseconds since 1970; 0: not yet.
    #[prost(int64, tag = "5")]
    pub started_at: i64,
    /// Nanoseconds since 1970; 0: not yet.
    #[prost(int64, tag = "6")]
    pub finished_at: i64,
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
    #[prost(string, tag = "10")]
    pub reason: String,
    #[prost(message, repeated, tag = "14")]
    pub mounts: Vec<Mount>,
    #[prost(string, tag = "15")]
    pub log_path: String,
    /// Since Kubernetes 1.25, containerd 1.7.
    #[prost(message, optional, tag = "16")]
    pub resources: Option<ContainerResources>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StopContainerRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Seconds between SIGTERM and SIGKILL; 0: SIGKILL at once.
    #[prost(int64, tag = "2")]
    pub timeout: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct RemoveContainerRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Image {
    #[prost(string, tag = "1")]
    pub id: String,
    /// Names with a tag.
    #[prost(string, repeated, tag = "2")]
    pub repo_tags: Vec<String>,
    /// Names with a digest.
    #[prost(string, repeated, tag = "3")]
    pub repo_digests: Vec<String>,
    /// Bytes, with layers shared with other images; compressed in some runtimes.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// Excluded from garbage collection; since Kubernetes 1.23, containerd 1.7.
    #[prost(bool, tag = "8")]
    pub pinned: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListImagesResponse {
    #[prost(message, repeated, tag = "1")]
    pub images: Vec<Image>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RemoveImageRequest {
    #[prost(message, optional, tag = "1")]
    pub image: Option<ImageSpec>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct FilesystemIdentifier {
    /// A directory of the runtime, seldom a mount point.
    #[prost(string, tag = "1")]
    pub mountpoint: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct FilesystemUsage {
    #[prost(message, optional, tag = "2")]
    pub fs_id: Option<FilesystemIdentifier>,
    /// By the runtime alone.
    #[prost(message, optional, tag = "3")]
    pub used_bytes: Option<UInt64Value>,
    /// By the runtime alone.
    #[prost(message, optional, tag = "4")]
    pub inodes_used: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ImageFsInfoResponse {
    #[prost(message, repeated, tag = "1")]
    pub image_filesystems: Vec<FilesystemUsage>,
    /// Of writable layers; since Kubernetes 1.29.
    #[prost(message, repeated, tag = "2")]
    pub container_filesystems: Vec<FilesystemUsage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerAttributes {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerStats {
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<ContainerAttributes>,
    #[prost(message, optional, tag = "4")]
    pub writable_layer: Option<FilesystemUsage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListContainerStatsResponse {
    #[prost(message, repeated, tag = "1")]
    pub stats: Vec<ContainerStats>,
}
