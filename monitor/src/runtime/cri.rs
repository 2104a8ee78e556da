//! Messages of the Container Runtime Interface, `runtime.v1` (Kubernetes 1.23, containerd 1.6, CRI-O 1.20), as far as they are read or
//! sent. What is left out is passed over when decoding, which keeps the lists of a busy node small. Field numbers are those of
//! kubernetes/cri-api.
//!
//! Written by hand: the one crate that has all of them generated has not followed tonic for two years.

use std::collections::BTreeMap;

use prost::Message;

/// Text by name: labels, annotations, verbose answers.
pub type Texts = BTreeMap<String, String>;

/// A request without anything in it, and an answer that says no more than that it is done.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

/// Of `Version`.
#[derive(Clone, PartialEq, Message)]
pub struct VersionResponse {
    /// Name of the runtime: `containerd`, `cri-o`.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// The version of the interface that it speaks: `v1`.
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

/// Of `Status`.
#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {
    /// Whether to tell more than is specified.
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

/// Of `Status`.
#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    /// What is not specified, as JSON.
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: Texts,
}

/// Who a sandbox is.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMetadata {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// UID of the pod.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Namespace of the pod.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// Which of the pod's sandboxes, counted from zero.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// The value of `PodSandbox::state` that means that it runs.
pub const SANDBOX_READY: i32 = 0;

/// A sandbox in a list.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Whose it is.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// `SANDBOX_READY` or something else.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// The pod's labels, and the kubelet's own.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: Texts,
    /// The pod's, as the kubelet knows them.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: Texts,
}

/// Of `ListPodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxResponse {
    /// All of them, dead ones too.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

/// Of `StopPodSandbox` and `RemovePodSandbox`.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxRequest {
    /// Which.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// Of `PodSandboxStatus` and `ContainerStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct ItemStatusRequest {
    /// Which.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Whether to tell more than is specified.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// Of `PodSandboxStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusResponse {
    /// The sandbox; of its fields those that it shares with one in a list.
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandboxStatus>,
    /// What is not specified, as JSON.
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: Texts,
}

/// A sandbox asked for alone.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatus {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// `SANDBOX_READY` or something else.
    #[prost(int32, tag = "3")]
    pub state: i32,
}

/// Who a container is.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerMetadata {
    /// Its name within the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How often it was made before.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

/// What an image is called by who uses it.
#[derive(Clone, PartialEq, Message)]
pub struct ImageSpec {
    /// A name, a digest or an id.
    #[prost(string, tag = "1")]
    pub image: String,
}

/// `ContainerState`: made, not started yet.
pub const CONTAINER_CREATED: i32 = 0;
/// `ContainerState`.
pub const CONTAINER_RUNNING: i32 = 1;
/// `ContainerState`: it ran, and never will again.
pub const CONTAINER_EXITED: i32 = 2;

/// A container in a list.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The sandbox that it is in.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its name.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<ContainerMetadata>,
    /// The image as it was asked for.
    #[prost(message, optional, tag = "4")]
    pub image: Option<ImageSpec>,
    /// The image as it was found.
    #[prost(string, tag = "5")]
    pub image_ref: String,
    /// One of the states above.
    #[prost(int32, tag = "6")]
    pub state: i32,
    /// Nanoseconds since 1970.
    #[prost(int64, tag = "7")]
    pub created_at: i64,
    /// The kubelet's say which pod it is of, also when its sandbox is gone.
    #[prost(btree_map = "string, string", tag = "8")]
    pub labels: Texts,
    /// The kubelet's say how long it may take to stop.
    #[prost(btree_map = "string, string", tag = "9")]
    pub annotations: Texts,
    /// Id of the image (Kubernetes 1.30); empty before.
    #[prost(string, tag = "10")]
    pub image_id: String,
}

/// A list of those with this id.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerFilter {
    /// Empty: all.
    #[prost(string, tag = "3")]
    pub pod_sandbox_id: String,
}

/// Of `ListContainers`.
#[derive(Clone, PartialEq, Message)]
pub struct ListContainersRequest {
    /// None: all.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<ContainerFilter>,
}

/// Of `ListContainers`.
#[derive(Clone, PartialEq, Message)]
pub struct ListContainersResponse {
    /// All of them, dead ones too.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<Container>,
}

/// A directory or an image inside a container.
#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    /// The image, when it is one (Kubernetes 1.31).
    #[prost(message, optional, tag = "9")]
    pub image: Option<ImageSpec>,
}

/// Limits on Linux.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct LinuxContainerResources {
    /// Microseconds.
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    /// Microseconds in each period; not above zero: no limit.
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    /// 1024 stand for one CPU requested.
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
    /// Bytes; zero: no limit.
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
}

/// Limits.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ContainerResources {
    /// On Linux.
    #[prost(message, optional, tag = "1")]
    pub linux: Option<LinuxContainerResources>,
}

/// A container asked for alone.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatus {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// One of the states above.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// Nanoseconds since 1970; zero: not yet.
    #[prost(int64, tag = "5")]
    pub started_at: i64,
    /// Nanoseconds since 1970; zero: not yet.
    #[prost(int64, tag = "6")]
    pub finished_at: i64,
    /// How it ended.
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
    /// How it ended, in a word.
    #[prost(string, tag = "10")]
    pub reason: String,
    /// Images among them are in use.
    #[prost(message, repeated, tag = "14")]
    pub mounts: Vec<Mount>,
    /// Where its output is kept.
    #[prost(string, tag = "15")]
    pub log_path: String,
    /// Its limits (Kubernetes 1.25, containerd 1.7).
    #[prost(message, optional, tag = "16")]
    pub resources: Option<ContainerResources>,
}

/// Of `ContainerStatus`.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatusResponse {
    /// The container.
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
}

/// Of `StopContainer`.
#[derive(Clone, PartialEq, Message)]
pub struct StopContainerRequest {
    /// Which.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Seconds between SIGTERM and SIGKILL; zero: SIGKILL at once.
    #[prost(int64, tag = "2")]
    pub timeout: i64,
}

/// Of `RemoveContainer`.
#[derive(Clone, PartialEq, Message)]
pub struct RemoveContainerRequest {
    /// Which.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// An image in a list.
#[derive(Clone, PartialEq, Message)]
pub struct Image {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Names with a tag.
    #[prost(string, repeated, tag = "2")]
    pub repo_tags: Vec<String>,
    /// Names with a digest.
    #[prost(string, repeated, tag = "3")]
    pub repo_digests: Vec<String>,
    /// Bytes; layers that it shares with others are counted too, and may be counted packed.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// Not to be collected (Kubernetes 1.23, containerd 1.7).
    #[prost(bool, tag = "8")]
    pub pinned: bool,
}

/// Of `ListImages`.
#[derive(Clone, PartialEq, Message)]
pub struct ListImagesResponse {
    /// All of them.
    #[prost(message, repeated, tag = "1")]
    pub images: Vec<Image>,
}

/// Of `RemoveImage`.
#[derive(Clone, PartialEq, Message)]
pub struct RemoveImageRequest {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub image: Option<ImageSpec>,
}

/// A number that may be missing.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// Which filesystem.
#[derive(Clone, PartialEq, Message)]
pub struct FilesystemIdentifier {
    /// A directory on it: the runtime's own, hardly ever a mount point.
    #[prost(string, tag = "1")]
    pub mountpoint: String,
}

/// What is used of a filesystem.
#[derive(Clone, PartialEq, Message)]
pub struct FilesystemUsage {
    /// Which.
    #[prost(message, optional, tag = "2")]
    pub fs_id: Option<FilesystemIdentifier>,
    /// Bytes used by the runtime alone.
    #[prost(message, optional, tag = "3")]
    pub used_bytes: Option<UInt64Value>,
    /// Inodes used by the runtime alone.
    #[prost(message, optional, tag = "4")]
    pub inodes_used: Option<UInt64Value>,
}

/// Of `ImageFsInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct ImageFsInfoResponse {
    /// Where images are.
    #[prost(message, repeated, tag = "1")]
    pub image_filesystems: Vec<FilesystemUsage>,
    /// Where writable layers are, if told (Kubernetes 1.29).
    #[prost(message, repeated, tag = "2")]
    pub container_filesystems: Vec<FilesystemUsage>,
}

/// Which container statistics are of.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerAttributes {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
}

/// Statistics of one container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStats {
    /// Which.
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<ContainerAttributes>,
    /// Its writable layer.
    #[prost(message, optional, tag = "4")]
    pub writable_layer: Option<FilesystemUsage>,
}

/// Of `ListContainerStats`.
#[derive(Clone, PartialEq, Message)]
pub struct ListContainerStatsResponse {
    /// Of those that the runtime has any of.
    #[prost(message, repeated, tag = "1")]
    pub stats: Vec<ContainerStats>,
}
