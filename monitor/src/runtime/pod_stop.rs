//! Stops a pod: all containers at once with their grace period, then the sandboxes. Removes the objects if the order asks for it.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::cri_client::{CallError, Client};
use super::find::Found;
use super::logs::Root;
use super::runtime_orders::{StopError, StopOrder, Stopped};
use super::runtime_snapshot::{self as snapshot, Sandbox};
use super::{cri, logs};
use crate::units::Monotonic;
use crate::workloads::cgroup_path::PodUid;

/// Time between two looks at a pod that the kubelet removes.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct StopTask {
    pub(super) order: StopOrder,
    pub(super) stopped: Stopped,
    /// The sandboxes that were stopped or removed.
    pub(super) sandboxes: Vec<String>,
}

/// Carries out the order. Removes only sandboxes that do not run, and those in `had`.
pub(super) async fn stop(found: Found, logs: Root, order: StopOrder, had: Vec<String>) -> StopTask {
    let begun = Monotonic::now();
    let mut touched = Vec::new();
    let result = try_stop(&found, &logs, &order, &had, &mut touched).await;
    let stopped = Stopped { remove: order.remove, uid: order.uid.clone(), result, took: Monotonic::now().since(begun) };
    StopTask { order, stopped, sandboxes: touched }
}

async fn try_stop(
    found: &Found,
    logs: &Root,
    order: &StopOrder,
    had: &[String],
    touched: &mut Vec<String>,
) -> Result<usize, StopError> {
    let client = &found.client;
    if order.remove && is_removed_within(client, &order.uid, order.patience).await? {
        found.free_removed().await?;
        return Ok(0);
    }
    let mut sandboxes = sandboxes_of(client, &order.uid).await?;
    if order.remove {
        sandboxes.retain(|sandbox| !sandbox.is_ready || had.contains(&sandbox.id));
    }
    touched.extend(sandboxes.iter().map(|sandbox| sandbox.id.clone()));
    let stopped = match stop_all(client, &sandboxes, order.grace).await {
        // The runtime cannot stop a container that was killed meanwhile (`ttrpc: closed`), but removes it with its sandbox.
        Err(StopError::Failed(error)) if order.remove && error.is_refusal() => 0,
        stopped => stopped?,
    };
    if order.remove && !sandboxes.is_empty() {
        remove_all(client, &sandboxes, logs).await?;
        found.free_removed().await?;
    }
    Ok(stopped)
}

/// Waits until the kubelet has removed the pod's containers. An empty sandbox has no writable layer.
async fn is_removed_within(client: &Client, uid: &PodUid, patience: Duration) -> Result<bool, StopError> {
    let begun = Monotonic::now();
    while Monotonic::now().since(begun) < patience {
        match sandboxes_of(client, uid).await {
            Ok(sandboxes) if containers_in(client, &sandboxes).await?.is_empty() => return Ok(true),
            Err(StopError::Unknown) => return Ok(true),
            found => drop(found?),
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(false)
}

/// Lists the pod's sandboxes again, because an earlier snapshot may be outdated.
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
            // This cannot happen, because no task is aborted or panics.
            Err(_) => {}
        }
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    for sandbox in sandboxes.iter().filter(|sandbox| sandbox.is_ready) {
        ignore_missing(client.stop_sandbox(&sandbox.id).await)?;
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
        ignore_missing(client.remove_sandbox(&sandbox.id).await)?;
    }
    for log in left {
        if let Err(error) = logs::remove(log_root, &log) {
            tracing::debug!(%error, log = %log.display(), "the log of a removed container cannot be removed");
        }
    }
    Ok(())
}

fn ignore_missing(result: Result<(), CallError>) -> Result<(), CallError> {
    result.or_else(|error| if error.is_missing() { Ok(()) } else { Err(error) })
}
