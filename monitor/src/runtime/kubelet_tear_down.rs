//! Removal of the rest of a pod that the kubelet tears down: waits for the kubelet, and spares containers that it has started again.
//!
//! A kubelet that finds a pod's phase Failed stops the sandbox, and keeps it with the newest container of each name until the pod is
//! deleted (`kuberuntime_gc.go`, 1.36). Their writable layers stay on the disk.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::cri;
use super::cri_client::{CallError, Client};
use super::logs::{self, Root};
use super::pod_objects::{containers_in, ignore_missing, log_of, sandboxes_of};
use super::runtime_orders::StopError;
use super::runtime_snapshot::Sandbox;
use crate::workloads::cgroup_path::PodUid;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long the sandboxes have been stopped when the kubelet has read how the containers ended.
const SETTLED: Duration = Duration::from_secs(2);

/// Waits until the kubelet has stopped the pod's sandboxes, at most for `patience`. A runtime that does not answer is asked again.
pub(super) async fn wait(client: &Client, uid: &PodUid, patience: Duration) {
    let deadline = Instant::now() + patience;
    let mut stopped_since = None;
    while Instant::now() < deadline {
        match sandboxes_of(client, uid).await {
            Ok(sandboxes) if sandboxes.iter().all(|sandbox| !sandbox.is_ready) => {
                if stopped_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED {
                    return;
                }
            }
            Err(StopError::Unknown | StopError::Static) => return,
            Ok(_) | Err(_) => stopped_since = None,
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Takes sandboxes out of `sandboxes` that run and in which not all containers have exited: the kubelet, which did not know of the eviction
/// in time, has started the pod again. Only the exited containers in them are removed.
pub(super) async fn spare_running(
    client: &Client,
    sandboxes: &mut Vec<Sandbox>,
    log_root: &Root,
) -> Result<(), StopError> {
    let containers = containers_in(client, sandboxes).await?;
    let is_over = |container: &&cri::Container| container.state == cri::CONTAINER_EXITED;
    let is_spared = |sandbox: &mut Sandbox| {
        let mut of_it = containers.iter().filter(|container| container.pod_sandbox_id == sandbox.id).peekable();
        // A new sandbox has no container yet.
        sandbox.is_ready && (of_it.peek().is_none() || !of_it.all(|container| is_over(&container)))
    };
    let spared: Vec<Sandbox> = sandboxes.extract_if(.., is_spared).collect();
    let is_in_spared = |container: &&cri::Container| spared.iter().any(|it| it.id == container.pod_sandbox_id);
    for container in containers.iter().filter(is_over).filter(is_in_spared) {
        remove(client, &container.id, log_root).await?;
    }
    Ok(())
}

async fn remove(client: &Client, container: &str, log_root: &Root) -> Result<(), CallError> {
    let log = log_of(client, container).await?;
    ignore_missing(client.remove_container(container).await)?;
    if let Some(log) = log {
        logs::remove_or_note(log_root, &log);
    }
    Ok(())
}
