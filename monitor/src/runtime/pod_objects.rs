//! The objects of one pod at the runtime, as the steps of its removal read them.

use std::path::PathBuf;

use super::cri;
use super::cri_client::{CallError, Client};
use super::runtime_orders::StopError;
use super::runtime_snapshot::{self as snapshot, Sandbox};
use crate::workloads::cgroup_path::PodUid;

/// Lists the pod's sandboxes again, because an earlier snapshot may be outdated.
pub(super) async fn sandboxes_of(client: &Client, uid: &PodUid) -> Result<Vec<Sandbox>, StopError> {
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

pub(super) async fn containers_in(client: &Client, sandboxes: &[Sandbox]) -> Result<Vec<cri::Container>, CallError> {
    let mut containers = client.containers(None).await?;
    containers.retain(|container| sandboxes.iter().any(|sandbox| sandbox.id == container.pod_sandbox_id));
    Ok(containers)
}

/// Returns the log of a container that is about to be removed.
pub(super) async fn log_of(client: &Client, container: &str) -> Result<Option<PathBuf>, CallError> {
    match client.container(container).await {
        Ok(status) => Ok(status.and_then(|status| snapshot::details(status).log)),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn ignore_missing(result: Result<(), CallError>) -> Result<(), CallError> {
    result.or_else(|error| if error.is_missing() { Ok(()) } else { Err(error) })
}
