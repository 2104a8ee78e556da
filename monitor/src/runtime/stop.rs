//! Stopping a pod: its containers with their grace period, all at once, then its sandboxes. And removing what is left of it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::JoinSet;

use super::client::{CallError, Client};
use super::snapshot::{self, Sandbox};
use super::{cri, logs};
use crate::node::Monotonic;
use crate::workloads::path::PodUid;

/// What is to be done with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodDeed {
    /// Stop it.
    Stop {
        /// Between SIGTERM and SIGKILL; zero: SIGKILL at once.
        grace: Duration,
    },
    /// Remove what is left of it once it has ended: its containers with their writable layers and logs, and its sandboxes.
    Remove,
}

/// Hears how many containers were stopped, or why not. Called on the runtime's thread, and dropped uncalled when that ends.
pub type Done = Box<dyn FnOnce(&Result<usize, StopError>) + Send>;

/// An order about a pod.
pub struct PodOrder {
    /// Which.
    pub uid: PodUid,
    /// What to do with it.
    pub deed: PodDeed,
    /// Who wants to know.
    pub done: Done,
}

impl fmt::Debug for PodOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, deed, done: _ } = self;
        f.debug_struct("PodOrder").field("uid", uid).field("deed", deed).finish_non_exhaustive()
    }
}

impl PodOrder {
    /// It is done, or cannot be.
    pub(super) fn end(self, result: Result<usize, StopError>, took: Duration) -> Stopped {
        let Self { uid, deed, done } = self;
        done(&result);
        Stopped { uid, deed, result, took }
    }
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The runtime has none of this UID.
    #[error("the runtime knows no pod of this UID")]
    Unknown,
    /// It comes from a file on the node.
    #[error("it is a static pod")]
    Static,
    /// It has not ended, and only what has is removed.
    #[error("it still runs")]
    Running,
    /// There is nobody to ask.
    #[error("the container runtime cannot be asked: {0}")]
    Down(String),
    /// The runtime failed.
    #[error(transparent)]
    Failed(#[from] CallError),
}

/// How an order about a pod ended.
#[derive(Debug)]
pub struct Stopped {
    /// The pod.
    pub uid: PodUid,
    /// What was to be done with it.
    pub deed: PodDeed,
    /// How many of its containers were stopped; none when it was removed.
    pub result: Result<usize, StopError>,
    /// How long it took.
    pub took: Duration,
}

/// Carries the order out.
pub(super) async fn stop(client: Client, log_root: PathBuf, order: PodOrder) -> Stopped {
    let begun = Monotonic::now();
    let result = match sandboxes_of(&client, &order.uid).await {
        Ok(sandboxes) => match order.deed {
            PodDeed::Stop { grace } => stop_all(&client, &sandboxes, grace).await,
            PodDeed::Remove => remove_all(&client, &sandboxes, &log_root).await.map(|()| 0),
        },
        Err(error) => Err(error),
    };
    order.end(result, Monotonic::now().since(begun))
}

/// Asked anew: the pod is known by its UID alone, and what was seen before may be gone.
async fn sandboxes_of(client: &Client, uid: &PodUid) -> Result<Vec<Sandbox>, StopError> {
    let sandboxes = client.sandboxes().await?.into_iter().filter_map(snapshot::sandbox);
    let sandboxes: Vec<Sandbox> = sandboxes.filter(|sandbox| sandbox.pod.uid == *uid).collect();
    if sandboxes.is_empty() {
        return Err(StopError::Unknown);
    }
    if sandboxes.iter().any(|sandbox| sandbox.is_static) {
        return Err(StopError::Static);
    }
    Ok(sandboxes)
}

async fn containers_in(client: &Client, sandboxes: &[Sandbox]) -> Result<Vec<cri::Container>, CallError> {
    let mut containers = client.containers(None).await?;
    containers.retain(|container| sandboxes.iter().any(|sandbox| sandbox.id == container.pod_sandbox_id));
    Ok(containers)
}

async fn stop_all(client: &Client, sandboxes: &[Sandbox], grace: Duration) -> Result<usize, StopError> {
    let mut stopping = JoinSet::new();
    for container in containers_in(client, sandboxes).await? {
        if container.state == cri::CONTAINER_RUNNING {
            let client = client.clone();
            stopping.spawn(async move { client.stop_container(&container.id, grace).await });
        }
    }
    let mut stopped = 0;
    let mut failed = None;
    while let Some(ended) = stopping.join_next().await {
        match ended {
            Ok(Ok(())) => stopped += 1,
            Ok(Err(error)) if error.is_missing() => {}
            Ok(Err(error)) => failed = Some(error),
            // Not with this set: it is neither aborted nor does stopping panic.
            Err(_) => {}
        }
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    for sandbox in sandboxes.iter().filter(|sandbox| sandbox.is_ready) {
        missing_is_fine(client.stop_sandbox(&sandbox.id).await)?;
    }
    Ok(stopped)
}

async fn remove_all(client: &Client, sandboxes: &[Sandbox], log_root: &Path) -> Result<(), StopError> {
    let containers = containers_in(client, sandboxes).await?;
    if containers.iter().any(|container| container.state == cri::CONTAINER_RUNNING) {
        return Err(StopError::Running);
    }
    let mut left = Vec::new();
    for container in containers {
        match client.container(&container.id).await {
            Ok(status) => left.extend(status.and_then(|status| snapshot::details(status).log)),
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error.into()),
        }
    }
    for sandbox in sandboxes {
        missing_is_fine(client.stop_sandbox(&sandbox.id).await)?;
        missing_is_fine(client.remove_sandbox(&sandbox.id).await)?;
    }
    for log in left {
        if let Err(error) = logs::remove(log_root, &log) {
            tracing::debug!(%error, log = %log.display(), "the log of a removed container is left");
        }
    }
    Ok(())
}

fn missing_is_fine(result: Result<(), CallError>) -> Result<(), CallError> {
    result.or_else(|error| if error.is_missing() { Ok(()) } else { Err(error) })
}
