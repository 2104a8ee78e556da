//! The sandboxes, containers and images of a runtime at one moment, converted from its messages.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cri::{self, Texts};
use crate::units::{Bytes, Monotonic, named_enum};
use crate::workloads::cgroup_path::PodUid;

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Nanoseconds since 1970, by the wall clock, which runtimes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// Converts a time of the runtime, where zero means no time.
    fn given(nanos: i64) -> Option<Self> {
        (nanos > 0).then_some(Self(nanos))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    pub uid: PodUid,
}

/// The namespaces and network that a pod's containers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    pub pod: PodRef,
    /// The labels of the pod, without those that name the pod.
    pub labels: Arc<Texts>,
    /// Number of the pod's earlier sandboxes.
    pub attempt: u32,
    /// Whether the sandbox runs. A dead sandbox never runs again.
    pub is_ready: bool,
    pub created: Option<UnixNanos>,
    /// Whether the pod comes from a file on the node, or is the mirror pod of such a pod. Such a pod is never stopped.
    pub is_static: bool,
    pub dead_since: Option<Monotonic>,
}

named_enum! {
    /// A container's state, by its name in output.
    pub enum ContainerState {
        Created = "created",
        Running = "running",
        Exited = "exited",
        /// The runtime does not know its state.
        Unknown = "unknown",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub sandbox: String,
    pub pod: Option<PodRef>,
    pub name: String,
    /// Number of earlier containers of this name.
    pub attempt: u32,
    pub state: ContainerState,
    pub created: Option<UnixNanos>,
    /// The grace period of the pod, if the kubelet has annotated it.
    pub grace: Option<Duration>,
    /// Names, digests and ids of its image.
    pub images: Vec<String>,
    pub dead_since: Option<Monotonic>,
    /// The details from a call about this container; `None` before the call.
    pub details: Option<Details>,
}

/// The facts that do not change while a container is in one state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    pub started: Option<UnixNanos>,
    pub finished: Option<UnixNanos>,
    pub exit_code: i32,
    /// The reason: `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    pub log: Option<PathBuf>,
    pub limits: Limits,
    pub mounted_images: Vec<String>,
}

/// Limits of a container, as far as the runtime knows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub memory: Option<Bytes>,
    pub cpu_millis: Option<u64>,
    pub cpu_request_millis: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    /// Names with a tag, then names with a digest.
    pub names: Vec<String>,
    /// The size, including layers that other images share.
    pub size: Bytes,
    /// Whether the runtime has pinned the image, or sandboxes use it.
    pub is_pinned: bool,
    /// Whether a container uses the image, dead or alive.
    pub is_used: bool,
    /// When the image was first seen; `None` if it existed at the first observation.
    pub first_seen: Option<Monotonic>,
    pub last_used: Option<Monotonic>,
}

impl Image {
    /// Returns the first name of the image, or its id.
    pub fn name(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }
}

/// The directories of a runtime and their usage. They are seldom mount points.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stores {
    pub image: Option<PathBuf>,
    /// The directory of writable layers, if the runtime distinguishes it.
    pub container: Option<PathBuf>,
    /// The usage of images, as the runtime counts it.
    pub image_used: Option<Bytes>,
    pub image_inodes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub at: Monotonic,
    /// Name and version: `containerd 1.6.20`.
    pub runtime: String,
    /// All sandboxes, including dead ones.
    pub sandboxes: Vec<Sandbox>,
    /// All containers, including dead ones.
    pub containers: Vec<Container>,
    pub images: Vec<Image>,
    pub stores: Stores,
}

impl Snapshot {
    pub fn containers_of<'s>(&'s self, uid: &'s PodUid) -> impl Iterator<Item = &'s Container> {
        self.containers.iter().filter(move |container| container.pod.as_ref().is_some_and(|pod| pod.uid == *uid))
    }

    /// Returns the container of this id, which the last part of its cgroup's path contains.
    pub fn container(&self, id: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.id == id)
    }

    /// Returns the newest sandbox of a pod.
    pub fn sandbox_of(&self, uid: &PodUid) -> Option<&Sandbox> {
        self.sandboxes.iter().filter(|sandbox| sandbox.pod.uid == *uid).max_by_key(|sandbox| sandbox.attempt)
    }

    pub fn grace_of(&self, uid: &PodUid) -> Option<Duration> {
        self.containers_of(uid).find_map(|container| container.grace)
    }
}

/// Converts a sandbox of a list; `None` if it has no id or UID.
pub(super) fn sandbox(message: cri::PodSandbox) -> Option<Sandbox> {
    let cri::PodSandbox { id, metadata, state, created_at, mut labels, annotations } = message;
    let cri::PodSandboxMetadata { name, uid, namespace, attempt } = metadata?;
    if id.is_empty() || uid.is_empty() {
        return None;
    }
    let is_static =
        annotations.contains_key(CONFIG_MIRROR) || annotations.get(CONFIG_SOURCE).is_some_and(|source| source != "api");
    Some(Sandbox {
        id,
        pod: PodRef { namespace, name, uid: PodUid(uid) },
        labels: Arc::new({
            labels.retain(|key, _| ![POD_NAMESPACE, POD_NAME, POD_UID].contains(&key.as_str()));
            labels
        }),
        attempt,
        is_ready: state == cri::SANDBOX_READY,
        created: UnixNanos::given(created_at),
        is_static,
        dead_since: None,
    })
}

/// Converts a container of a list; `None` if it has no id.
pub(super) fn container(message: cri::Container, sandboxes: &[Sandbox]) -> Option<Container> {
    let cri::Container {
        id,
        pod_sandbox_id,
        metadata,
        image,
        image_ref,
        state,
        created_at,
        mut labels,
        annotations,
        image_id,
    } = message;
    if id.is_empty() {
        return None;
    }
    let of_sandbox = sandboxes.iter().find(|sandbox| sandbox.id == pod_sandbox_id).map(|sandbox| sandbox.pod.clone());
    let mut label = |name: &str| labels.remove(name).unwrap_or_default();
    let of_labels = PodRef { namespace: label(POD_NAMESPACE), name: label(POD_NAME), uid: PodUid(label(POD_UID)) };
    let cri::ContainerMetadata { name, attempt } = metadata.unwrap_or_default();
    let grace = annotations.get(POD_GRACE).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let mut images = vec![image.unwrap_or_default(), image_ref, image_id];
    images.retain(|image| !image.is_empty());
    images.dedup();
    Some(Container {
        id,
        sandbox: pod_sandbox_id,
        pod: of_sandbox.or_else(|| Some(of_labels).filter(|pod| !pod.uid.0.is_empty())),
        name,
        attempt,
        state: container_state(state),
        created: UnixNanos::given(created_at),
        grace,
        images,
        dead_since: None,
        details: None,
    })
}

pub(super) fn container_state(state: i32) -> ContainerState {
    match state {
        cri::CONTAINER_CREATED => ContainerState::Created,
        cri::CONTAINER_RUNNING => ContainerState::Running,
        cri::CONTAINER_EXITED => ContainerState::Exited,
        _ => ContainerState::Unknown,
    }
}

pub(super) fn details(message: cri::ContainerStatus) -> Details {
    let cri::ContainerStatus { state: _, started_at, finished_at, exit_code, reason, mounts, log_path, resources } =
        message;
    let linux = resources.and_then(|resources| resources.linux).unwrap_or_default();
    let above_zero = |number: i64| u64::try_from(number).ok().filter(|number| *number > 0);
    let cpu_millis = above_zero(linux.cpu_quota)
        .zip(above_zero(linux.cpu_period))
        .map(|(quota, period)| quota.saturating_mul(1000) / period);
    Details {
        started: UnixNanos::given(started_at),
        finished: UnixNanos::given(finished_at),
        exit_code,
        reason,
        log: Some(PathBuf::from(log_path)).filter(|path| path.is_absolute()),
        limits: Limits {
            memory: above_zero(linux.memory_limit_in_bytes).map(Bytes),
            cpu_millis,
            // Without a request the kubelet writes 2, the minimum.
            cpu_request_millis: above_zero(linux.cpu_shares)
                .filter(|shares| *shares > 2)
                .map(|shares| shares.saturating_mul(1000) / 1024),
        },
        mounted_images: mounts.into_iter().filter_map(|mount| mount.image).collect(),
    }
}

pub(super) fn stores(message: cri::ImageFsInfoResponse) -> Stores {
    let cri::ImageFsInfoResponse { image_filesystems, container_filesystems } = message;
    let path = |usage: &cri::FilesystemUsage| usage.fs_id.as_ref().map(PathBuf::from).filter(|path| path.is_absolute());
    let image = image_filesystems.first();
    Stores {
        image: image.and_then(path),
        container: container_filesystems.first().and_then(path),
        image_used: image.and_then(|usage| usage.used_bytes).map(Bytes),
        image_inodes: image.and_then(|usage| usage.inodes_used),
    }
}

#[cfg(test)]
#[path = "runtime_snapshot_tests.rs"]
mod tests;
