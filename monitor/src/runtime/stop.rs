//! Stopping a pod: its containers with their grace period, all at once, then its sandboxes.

use std::time::Duration;

use tokio::task::JoinSet;

use super::client::{CallError, Client};
use super::cri;
use super::snapshot::{self, Sandbox};
use crate::node::Monotonic;
use crate::workloads::path::PodUid;

/// An order to stop a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopOrder {
    /// Which.
    pub uid: PodUid,
    /// Between SIGTERM and SIGKILL; zero: SIGKILL at once.
    pub grace: Duration,
    /// Remove it as well, with its writable layers. Where there is a kubelet, that is for it to do.
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

/// Carries the order out.
pub(super) async fn stop(client: Client, order: StopOrder) -> Stopped {
    let begun = Monotonic::now();
    let result = try_stop(&client, &order).await;
    Stopped { remove: order.remove, uid: order.uid, result, took: Monotonic::now().since(begun) }
}

async fn try_stop(client: &Client, order: &StopOrder) -> Result<usize, StopError> {
    // Asked anew: the pod is known by its UID alone, and what was seen before may be gone.
    let sandboxes = client.sandboxes().await?;
    let of_pod = |sandbox: &Sandbox| sandbox.pod.uid == order.uid;
    let sandboxes: Vec<Sandbox> = sandboxes.into_iter().filter_map(snapshot::sandbox).filter(of_pod).collect();
    if sandboxes.is_empty() {
        return Err(StopError::Unknown);
    }
    if sandboxes.iter().any(|sandbox| sandbox.is_static) {
        return Err(StopError::Static);
    }
    let containers = client.containers(None).await?;
    let running = containers.into_iter().filter(|container| {
        container.state == cri::CONTAINER_RUNNING && sandboxes.iter().any(|it| it.id == container.pod_sandbox_id)
    });
    let mut stopping = JoinSet::new();
    for container in running {
        let (client, grace) = (client.clone(), order.grace);
        stopping.spawn(async move { client.stop_container(&container.id, grace).await });
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
    for sandbox in &sandboxes {
        if sandbox.is_ready {
            missing_is_fine(client.stop_sandbox(&sandbox.id).await)?;
        }
        if order.remove {
            missing_is_fine(client.remove_sandbox(&sandbox.id).await)?;
        }
    }
    Ok(stopped)
}

fn missing_is_fine(result: Result<(), CallError>) -> Result<(), CallError> {
    result.or_else(|error| if error.is_missing() { Ok(()) } else { Err(error) })
}
