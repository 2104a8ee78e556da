//! Messages of the Container Runtime Interface, `runtime.v1` (Kubernetes 1.23, containerd 1.6, CRI-O 1.20), with the fields that the agent
//! needs. Decoding skips other fields, which keeps the lists of a busy node small. Field numbers are those of kubernetes/cri-api.
//!
//! If only field 1 of a message is needed, the message has the type of that field, which prost encodes the same way: `String` for
//! `ImageSpec`, `FilesystemIdentifier`, `ContainerAttributes` and requests that only name an object; `bool` for `StatusRequest`;
//! `u64` for `UInt64Value`. A message without a needed field is `()`.
//!
//! The messages are written by hand, because the only crate with generated ones has not followed tonic for two years.

use std::collections::BTreeMap;
use std::fmt::Debug;

use prost::Message;

/// Labels, annotations, or the JSON of verbose answers.
pub type Texts = BTreeMap<String, String>;

/// The value of `PodSandbox::state` of a running sandbox.
pub const SANDBOX_READY: i32 = 0;

// Values of `ContainerState`.
pub const CONTAINER_CREATED: i32 = 0;
pub const CONTAINER_RUNNING: i32 = 1;
pub const CONTAINER_EXITED: i32 = 2;

/// The answer to each call that lists objects. A list includes dead objects.
#[derive(Clone, PartialEq, Message)]
pub struct List<T: Message + Default + Debug> {
    #[prost(message, repeated, tag = 1)]
    pub items: Vec<T>,
}

/// Declares messages. Each field is followed by its kind and number, as in `#[prost]`.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = ($($prost:tt)+),)+ })+) => { $(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Message)]
        pub struct $name {
            $($(#[$field_doc])* #[prost($($prost)+)] pub $field: $type,)+
        }
    )+ };
}

messages! {
    VersionResponse {
        runtime_name: String = (string, tag = 2),
        runtime_version: String = (string, tag = 3),
        /// The version of the interface: `v1`.
        runtime_api_version: String = (string, tag = 4),
    }

    StatusResponse {
        info: Texts = (btree_map = "string, string", tag = 2),
    }

    PodSandboxMetadata {
        name: String = (string, tag = 1),
        uid: String = (string, tag = 2),
        namespace: String = (string, tag = 3),
        /// The number of the pod's earlier sandboxes.
        attempt: u32 = (uint32, tag = 4),
    }

    PodSandbox {
        id: String = (string, tag = 1),
        metadata: Option<PodSandboxMetadata> = (message, optional, tag = 2),
        /// `SANDBOX_READY` or another value.
        state: i32 = (int32, tag = 3),
        /// Nanoseconds since 1970.
        created_at: i64 = (int64, tag = 4),
        /// The labels of the pod, and the kubelet's own.
        labels: Texts = (btree_map = "string, string", tag = 5),
        /// The annotations of the pod, as the kubelet knows them.
        annotations: Texts = (btree_map = "string, string", tag = 6),
    }

    PodSandboxStatusRequest {
        id: String = (string, tag = 1),
        verbose: bool = (bool, tag = 2),
    }

    PodSandboxStatusResponse {
        status: Option<PodSandboxStatus> = (message, optional, tag = 1),
        info: Texts = (btree_map = "string, string", tag = 2),
    }

    PodSandboxStatus {
        /// `SANDBOX_READY` or another value.
        state: i32 = (int32, tag = 3),
    }

    ContainerMetadata {
        name: String = (string, tag = 1),
        /// The number of earlier containers of this name.
        attempt: u32 = (uint32, tag = 2),
    }

    Container {
        id: String = (string, tag = 1),
        pod_sandbox_id: String = (string, tag = 2),
        metadata: Option<ContainerMetadata> = (message, optional, tag = 3),
        /// The image as requested.
        image: Option<String> = (message, optional, tag = 4),
        /// The image as resolved.
        image_ref: String = (string, tag = 5),
        state: i32 = (int32, tag = 6),
        /// Nanoseconds since 1970.
        created_at: i64 = (int64, tag = 7),
        /// The kubelet's labels name the pod, even if the sandbox was removed.
        labels: Texts = (btree_map = "string, string", tag = 8),
        /// The kubelet's annotations contain the grace period.
        annotations: Texts = (btree_map = "string, string", tag = 9),
        /// Empty before Kubernetes 1.30.
        image_id: String = (string, tag = 10),
    }

    ContainerFilter {
        /// Empty selects any sandbox.
        pod_sandbox_id: String = (string, tag = 3),
    }

    ListContainersRequest {
        /// `None` selects all containers.
        filter: Option<ContainerFilter> = (message, optional, tag = 1),
    }

    Mount {
        /// The image of an image volume; since Kubernetes 1.31.
        image: Option<String> = (message, optional, tag = 9),
    }

    LinuxContainerResources {
        /// Microseconds.
        cpu_period: i64 = (int64, tag = 1),
        /// Microseconds in each period; 0 or less: no limit.
        cpu_quota: i64 = (int64, tag = 2),
        /// 1024 are one requested CPU.
        cpu_shares: i64 = (int64, tag = 3),
        /// Bytes; 0: no limit.
        memory_limit_in_bytes: i64 = (int64, tag = 4),
    }

    ContainerResources {
        linux: Option<LinuxContainerResources> = (message, optional, tag = 1),
    }

    ContainerStatus {
        state: i32 = (int32, tag = 3),
        /// Nanoseconds since 1970; 0: not yet.
        started_at: i64 = (int64, tag = 5),
        /// Nanoseconds since 1970; 0: not yet.
        finished_at: i64 = (int64, tag = 6),
        exit_code: i32 = (int32, tag = 7),
        reason: String = (string, tag = 10),
        mounts: Vec<Mount> = (message, repeated, tag = 14),
        log_path: String = (string, tag = 15),
        /// Since Kubernetes 1.25, containerd 1.7.
        resources: Option<ContainerResources> = (message, optional, tag = 16),
    }

    ContainerStatusResponse {
        status: Option<ContainerStatus> = (message, optional, tag = 1),
    }

    StopContainerRequest {
        container_id: String = (string, tag = 1),
        /// Seconds between SIGTERM and SIGKILL; 0: SIGKILL at once.
        timeout: i64 = (int64, tag = 2),
    }

    Image {
        id: String = (string, tag = 1),
        /// Names with a tag.
        repo_tags: Vec<String> = (string, repeated, tag = 2),
        /// Names with a digest.
        repo_digests: Vec<String> = (string, repeated, tag = 3),
        /// Bytes, including layers shared with other images. In some runtimes this is the compressed size.
        size: u64 = (uint64, tag = 4),
        /// Excluded from garbage collection; since Kubernetes 1.23, containerd 1.7.
        pinned: bool = (bool, tag = 8),
    }

    RemoveImageRequest {
        image: Option<String> = (message, optional, tag = 1),
    }

    FilesystemUsage {
        fs_id: Option<String> = (message, optional, tag = 2),
        /// Bytes, as the runtime counts them.
        used_bytes: Option<u64> = (message, optional, tag = 3),
        /// Inodes, as the runtime counts them.
        inodes_used: Option<u64> = (message, optional, tag = 4),
    }

    ImageFsInfoResponse {
        image_filesystems: Vec<FilesystemUsage> = (message, repeated, tag = 1),
        /// The filesystems of writable layers; since Kubernetes 1.29.
        container_filesystems: Vec<FilesystemUsage> = (message, repeated, tag = 2),
    }

    ContainerStats {
        attributes: Option<String> = (message, optional, tag = 1),
        writable_layer: Option<FilesystemUsage> = (message, optional, tag = 4),
    }
}
