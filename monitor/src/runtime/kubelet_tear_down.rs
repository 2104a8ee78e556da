//! Removal of the rest of a pod that the kubelet tears down: waits for the kubelet, and spares containers that it has started again.
//!
//! A kubelet that finds a pod's phase Failed stops the sandbox, and keeps it with the newest container of each name until the pod is
//! deleted (`kuberuntime_gc.go`, 1.36). Their writable layers stay on the disk.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::cri;
use super::cri_client::{CallError, Client};
use super::logs::{self, Root};
use super::pod_objects::{containers_in, ignore_missing, log_of};
use super::runtime_orders::{KubeletWait, StopError};
use super::runtime_snapshot::Sandbox;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Waits until the kubelet is through with the pod. That a sandbox does not run is not enough: its process may have been killed with the pod, and
/// the kubelet still be stopping the containers.
pub(super) async fn wait(KubeletWait { cgroup, at_most }: &KubeletWait) {
    let deadline = Instant::now() + *at_most;
    // A cgroup that cannot be looked at may be there.
    while cgroup.try_exists().unwrap_or(true) && Instant::now() < deadline {
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
