//! Stopping a pod: its containers with their grace period, all at once, then its sandboxes. And removing what is left of it.

use std::time::Duration;

use tokio::task::JoinSet;

use super::cri_client::{CallError, Client};
use super::find::Found;
use super::logs::Root;
use super::runtime_snapshot::{self as snapshot, Sandbox};
use super::{cri, logs};
use crate::units::Monotonic;
use crate::workloads::cgroup_path::PodUid;

/// An order to stop a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopOrder {
    /// Which.
    pub uid: PodUid,
    /// Between SIGTERM and SIGKILL; zero: SIGKILL at once.
    pub grace: Duration,
    /// Remove what is left of it, with its writable layers and logs: sandboxes that do not run, and those that it had when it was last told
    /// to stop. One that the kubelet has made since is left alone. While the runtime is away that is owed, and made good when it is back,
    /// which another [`Stopped`] tells of.
    pub remove: bool,
}

/// Why a pod was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The runtime has none of this UID.
    #[error("the runtime knows no pod of this UID")]
    Unknown,
    /// It comes from a file on the node.
    #[error("it is a static pod")]
    Static,
    /// There is nobody to stop it.
    #[error("the container runtime cannot be asked: {0}")]
    Down(String),
    /// The runtime failed.
    #[error(transparent)]
    Failed(#[from] CallError),
}

/// How an order to stop a pod ended.
#[derive(Debug)]
pub struct Stopped {
    /// The pod.
    pub uid: PodUid,
    /// Whether it was to be removed as well.
    pub remove: bool,
    /// How many of its containers were stopped.
    pub result: Result<usize, StopError>,
    /// How long it took.
    pub took: Duration,
}

/// How an order ended, and what there is to remember of it.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) order: StopOrder,
    pub(super) stopped: Stopped,
    /// The sandboxes that were dealt with.
    pub(super) sandboxes: Vec<String>,
}

/// Carries the order out. A removal only touches sandboxes that do not run, and those in `had`.
pub(super) async fn stop(found: Found, logs: Root, order: StopOrder, had: Vec<String>) -> Ended {
    let begun = Monotonic::now();
    let mut touched = Vec::new();
    let result = try_stop(&found, &logs, &order, &had, &mut touched).await;
    let stopped = Stopped { remove: order.remove, uid: order.uid.clone(), result, took: Monotonic::now().since(begun) };
    Ended { order, stopped, sandboxes: touched }
}

async fn try_stop(
    found: &Found,
    logs: &Root,
    order: &StopOrder,
    had: &[String],
    touched: &mut Vec<String>,
) -> Result<usize, StopError> {
    let client = &found.client;
    let mut sandboxes = sandboxes_of(client, &order.uid).await?;
    if order.remove {
        sandboxes.retain(|sandbox| !sandbox.is_ready || had.contains(&sandbox.id));
    }
    touched.extend(sandboxes.iter().map(|sandbox| sandbox.id.clone()));
    let stopped = match stop_all(client, &sandboxes, order.grace).await {
        // What was killed meanwhile cannot be stopped (`ttrpc: closed`), and goes with its sandbox all the same.
        Err(StopError::Failed(error)) if order.remove && error.is_refusal() => 0,
        stopped => stopped?,
    };
    if order.remove && !sandboxes.is_empty() {
        remove_all(client, &sandboxes, logs).await?;
        found.give_back().await?;
    }
    Ok(stopped)
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

async fn remove_all(client: &Client, sandboxes: &[Sandbox], log_root: &Root) -> Result<(), StopError> {
    let mut left = Vec::new();
    for container in containers_in(client, sandboxes).await? {
        match client.container(&container.id).await {
            Ok(status) => left.extend(status.and_then(|status| snapshot::details(status).log)),
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error.into()),
        }
    }
    for sandbox in sandboxes {
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
