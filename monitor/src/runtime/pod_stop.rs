//! Stops a pod: all containers at once with their grace period, then the sandboxes. Removes the objects if the order asks for it.

use std::time::Duration;

use tokio::task::JoinSet;

use super::cri_client::Client;
use super::find::Found;
use super::logs::Root;
use super::pod_objects::{containers_in, ignore_missing, log_of, sandboxes_of};
use super::runtime_orders::{StopError, StopOrder, Stopped, TearDown};
use super::runtime_snapshot::Sandbox;
use super::{cri, kubelet_tear_down, logs};
use crate::units::Monotonic;

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
    if let Some(wait) = &order.wait {
        kubelet_tear_down::wait(wait).await;
    }
    let mut sandboxes = sandboxes_of(client, &order.uid).await?;
    if order.remove {
        match order.by {
            TearDown::Kubelet => kubelet_tear_down::spare_running(client, &mut sandboxes, logs).await?,
            TearDown::Runtime => sandboxes.retain(|sandbox| !sandbox.is_ready || had.contains(&sandbox.id)),
        }
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
        left.extend(log_of(client, &container.id).await?);
    }
    for sandbox in sandboxes {
        ignore_missing(client.remove_sandbox(&sandbox.id).await)?;
    }
    left.iter().for_each(|log| logs::remove_or_note(log_root, log));
    Ok(())
}
