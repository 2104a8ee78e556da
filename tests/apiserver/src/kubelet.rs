//! A stand-in for the kubelet: stops the terminating pods of its node, then deletes their objects.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Preconditions, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use tokio::task::JoinHandle;

/// Time between two attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(100);

/// Stops a pod; may block until the pod's processes have exited.
pub type Stop = Arc<dyn Fn(&Pod) + Send + Sync>;

/// The kubelet's part in deletions, until it is dropped.
#[derive(Debug)]
pub struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// Starts with pods that take this long to stop, at most their grace period.
    #[must_use]
    pub fn start(client: Client, node: &str, pods_take: Duration) -> Self {
        Self::with(client, node, pods_take, Arc::new(|_| {}))
    }

    /// Starts with a `stop` that kills the pod after this time.
    #[must_use]
    pub fn with(client: Client, node: &str, pods_take: Duration, stop: Stop) -> Self {
        let own = format!("spec.nodeName={node}");
        Self(tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            loop {
                // An error ends one connection; the loop connects again.
                let _away = follow(&client, &own, pods_take, &stop, &mut seen).await;
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn follow(
    client: &Client,
    own: &str,
    pods_take: Duration,
    stop: &Stop,
    seen: &mut BTreeSet<String>,
) -> kube::Result<()> {
    let pods: Api<Pod> = Api::all(client.clone());
    let list = pods.list(&ListParams::default().fields(own)).await?;
    let version = list.metadata.resource_version.clone().unwrap_or_default();
    for pod in list {
        consider(client, pod, pods_take, stop, seen);
    }
    let watch = pods.watch(&WatchParams::default().fields(own), &version).await?;
    pin_mut!(watch);
    while let Some(event) = watch.next().await {
        match event? {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => consider(client, pod, pods_take, stop, seen),
            WatchEvent::Deleted(pod) => {
                seen.remove(&pod.uid().unwrap_or_default());
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return Ok(()),
        }
    }
    Ok(())
}

fn consider(client: &Client, pod: Pod, pods_take: Duration, stop: &Stop, seen: &mut BTreeSet<String>) {
    let uid = pod.uid().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_none() || !seen.insert(uid) {
        return;
    }
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
    let time = pods_take.min(Duration::from_secs(grace.unwrap_or_default()));
    tokio::spawn(end(client.clone(), pod, time, Arc::clone(stop)));
}

async fn end(client: Client, pod: Pod, time: Duration, stop: Stop) {
    tokio::time::sleep(time).await;
    let (namespace, name, uid) = (pod.namespace().unwrap_or_default(), pod.name_any(), pod.uid());
    let Ok(()) = tokio::task::spawn_blocking(move || stop(&pod)).await else { return };
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let now = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    loop {
        match pods.delete(&name, &now).await {
            // The server refused: the pod is deleted, or another pod has its name.
            Ok(_) | Err(kube::Error::Api(_)) => return,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
