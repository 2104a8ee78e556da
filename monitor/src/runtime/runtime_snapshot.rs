//! What a runtime has, at one moment: sandboxes, containers, images. Plain values; the runtime's messages go no further than here.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::cri::{self, Texts};
use crate::units::Bytes;
use crate::units::Monotonic;
use crate::workloads::cgroup_path::PodUid;

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Nanoseconds since 1970: a runtime's clock is the wall's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixNanos(pub i64);

impl UnixNanos {
    /// Zero is how the interface says that there is none.
    fn given(nanos: i64) -> Option<Self> {
        (nanos > 0).then_some(Self(nanos))
    }
}

/// Which pod something is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: PodUid,
}

/// A sandbox: what the containers of a pod share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub pod: PodRef,
    /// The pod's labels, without those that say again whose it is.
    pub labels: Arc<Texts>,
    /// Which of the pod's, counted from zero.
    pub attempt: u32,
    /// It runs. One that does not never will again.
    pub is_ready: bool,
    /// When it was made.
    pub created: Option<UnixNanos>,
    /// The pod comes from a file on the node, or stands for one that does: never to be stopped.
    pub is_static: bool,
    /// Since when it does not run, as far as is known.
    pub dead_since: Option<Monotonic>,
}

/// What a container does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerState {
    /// Made, not started yet.
    Created,
    /// It runs.
    Running,
    /// It ran, and never will again.
    Exited,
    /// The runtime has lost track of it.
    Unknown,
}

impl ContainerState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Created, Self::Running, Self::Exited, Self::Unknown];

    /// Returns the name used in output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
        }
    }
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// The sandbox that it is in.
    pub sandbox: String,
    /// The pod that it is of.
    pub pod: Option<PodRef>,
    /// Its name within the pod.
    pub name: String,
    /// How often it was made before.
    pub attempt: u32,
    /// What it does.
    pub state: ContainerState,
    /// When it was made.
    pub created: Option<UnixNanos>,
    /// How long the pod may take to stop, when the kubelet has noted that.
    pub grace: Option<Duration>,
    /// All that its image is called by: names, digests, ids.
    pub images: Vec<String>,
    /// Since when it is dead, as far as is known.
    pub dead_since: Option<Monotonic>,
    /// What the runtime tells of it when asked for it alone; it may not have been asked yet.
    pub details: Option<Details>,
}

/// What does not change as long as a container is in the same state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// When it was started.
    pub started: Option<UnixNanos>,
    /// When it ended.
    pub finished: Option<UnixNanos>,
    /// How it ended.
    pub exit_code: i32,
    /// How it ended, in a word: `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    /// Where its output is kept.
    pub log: Option<PathBuf>,
    /// Its limits, where the runtime knows them.
    pub limits: Limits,
    /// Images that are mounted into it.
    pub mounted_images: Vec<String>,
}

/// Limits of a container; none where the runtime knows none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Memory.
    pub memory: Option<Bytes>,
    /// Thousandths of a CPU.
    pub cpu_millis: Option<u64>,
    /// Thousandths of a CPU that were requested.
    pub cpu_request_millis: Option<u64>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its id.
    pub id: String,
    /// Names with a tag, then names with a digest.
    pub names: Vec<String>,
    /// As the runtime counts; layers that it shares with others are counted too.
    pub size: Bytes,
    /// The runtime asks for it to be kept, or sandboxes are made of it.
    pub is_pinned: bool,
    /// A container uses it, dead or alive.
    pub is_used: bool,
    /// When it was first seen; nothing for what was there at the first look: that is longer than anybody knows.
    pub first_seen: Option<Monotonic>,
    /// When a container was last seen to use it.
    pub last_used: Option<Monotonic>,
}

impl Image {
    /// What to call it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.names.first().unwrap_or(&self.id)
    }
}

/// Where a runtime keeps things. A directory on the filesystem, hardly ever its mount point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stores {
    /// Images.
    pub image: Option<PathBuf>,
    /// Writable layers, where it tells them apart.
    pub container: Option<PathBuf>,
    /// What images take, by its own count.
    pub image_used: Option<Bytes>,
    /// The same in inodes.
    pub image_inodes: Option<u64>,
}

/// All that a runtime has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was asked.
    pub at: Monotonic,
    /// Which runtime: `containerd 1.6.20`.
    pub runtime: String,
    /// Sandboxes, dead ones too.
    pub sandboxes: Vec<Sandbox>,
    /// Containers, dead ones too.
    pub containers: Vec<Container>,
    /// Images.
    pub images: Vec<Image>,
    /// Where it keeps them.
    pub stores: Stores,
}

impl Snapshot {
    /// The containers of a pod.
    pub fn containers_of<'s>(&'s self, uid: &'s PodUid) -> impl Iterator<Item = &'s Container> {
        self.containers.iter().filter(move |container| container.pod.as_ref().is_some_and(|pod| pod.uid == *uid))
    }

    /// The container of this id: the last part of its cgroup's path names it.
    #[must_use]
    pub fn container(&self, id: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.id == id)
    }

    /// The latest sandbox of a pod.
    #[must_use]
    pub fn sandbox_of(&self, uid: &PodUid) -> Option<&Sandbox> {
        self.sandboxes.iter().filter(|sandbox| sandbox.pod.uid == *uid).max_by_key(|sandbox| sandbox.attempt)
    }

    /// How long the pod asks to be given to stop.
    #[must_use]
    pub fn grace_of(&self, uid: &PodUid) -> Option<Duration> {
        self.containers_of(uid).find_map(|container| container.grace)
    }
}

/// A sandbox of a list; `None` for one that cannot be told apart from others.
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

/// A container of a list, among these sandboxes; `None` for one that cannot be told apart from others.
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
    let mut images = vec![image.unwrap_or_default().image, image_ref, image_id];
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
    let cri::ContainerStatus {
        id: _,
        state: _,
        started_at,
        finished_at,
        exit_code,
        reason,
        mounts,
        log_path,
        resources,
    } = message;
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
            // The kubelet writes 2, the least there is, for no request.
            cpu_request_millis: above_zero(linux.cpu_shares)
                .filter(|shares| *shares > 2)
                .map(|shares| shares.saturating_mul(1000) / 1024),
        },
        mounted_images: mounts.into_iter().filter_map(|mount| mount.image).map(|image| image.image).collect(),
    }
}

pub(super) fn stores(message: cri::ImageFsInfoResponse) -> Stores {
    let cri::ImageFsInfoResponse { image_filesystems, container_filesystems } = message;
    let path = |usage: &cri::FilesystemUsage| {
        usage.fs_id.as_ref().map(|id| PathBuf::from(&id.mountpoint)).filter(|path| path.is_absolute())
    };
    let image = image_filesystems.first();
    Stores {
        image: image.and_then(path),
        container: container_filesystems.first().and_then(path),
        image_used: image.and_then(|usage| usage.used_bytes).map(|bytes| Bytes(bytes.value)),
        image_inodes: image.and_then(|usage| usage.inodes_used).map(|inodes| inodes.value),
    }
}

#[cfg(test)]
#[path = "runtime_snapshot_tests.rs"]
mod tests;
