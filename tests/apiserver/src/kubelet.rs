//! A stand-in for the kubelet's part in the end of a pod.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, Preconditions, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;

/// Time between two attempts to reach the server.
const PAUSE: Duration = Duration::from_millis(100);

/// The kubelet of a node, until it is dropped.
#[derive(Debug)]
pub struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// Stops the terminating pods of the node, which takes this long, at most their grace period. Then it deletes their objects.
    #[must_use]
    pub fn start(client: Client, node: &str, pods_take: Duration) -> Self {
        let of_node = Some(format!("spec.nodeName={node}"));
        Self::doing(Api::all(client.clone()), of_node, move |pod| {
            let is_meant = pod.metadata.deletion_timestamp.is_some();
            if is_meant {
                tokio::spawn(end(client.clone(), pod, pods_take));
            }
            is_meant
        })
    }

    /// Notes in the status of a namespace's failed pods that it knows of their phase, as the kubelet does. Stops no pod.
    #[must_use]
    pub fn only_noting_failed(client: Client, namespace: &str) -> Self {
        Self::doing(Api::namespaced(client.clone(), namespace), None, move |pod| {
            let is_meant = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Failed"));
            if is_meant {
                tokio::spawn(note_failed(client.clone(), pod));
            }
            is_meant
        })
    }

    /// Calls `act` for every selected pod that changes, until it has acted.
    fn doing(pods: Api<Pod>, selector: Option<String>, act: impl Fn(Pod) -> bool + Send + Sync + 'static) -> Self {
        Self(tokio::spawn(async move {
            let mut done = BTreeSet::new();
            loop {
                // An error ends one connection; the loop connects again.
                let _away = follow(&pods, selector.as_ref(), &act, &mut done).await;
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
    pods: &Api<Pod>,
    selector: Option<&String>,
    act: &impl Fn(Pod) -> bool,
    done: &mut BTreeSet<String>,
) -> kube::Result<()> {
    let wanted = ListParams { field_selector: selector.cloned(), ..ListParams::default() };
    let list = pods.list(&wanted).await?;
    let version = list.metadata.resource_version.clone().unwrap_or_default();
    let mut consider = |pod: Pod| {
        let uid = pod.uid().unwrap_or_default();
        if !done.contains(&uid) && act(pod) {
            done.insert(uid);
        }
    };
    list.into_iter().for_each(&mut consider);
    let wanted = WatchParams { field_selector: selector.cloned(), ..WatchParams::default() };
    let watch = pods.watch(&wanted, &version).await?;
    pin_mut!(watch);
    while let Some(event) = watch.next().await {
        match event? {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => consider(pod),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return Ok(()),
        }
    }
    Ok(())
}

async fn end(client: Client, pod: Pod, pods_take: Duration) {
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
    tokio::time::sleep(pods_take.min(Duration::from_secs(grace.unwrap_or_default()))).await;
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
    let preconditions = Some(Preconditions { uid: pod.uid(), resource_version: None });
    let now = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
    while is_unanswered(&pods.delete(&pod.name_any(), &now).await) {
        tokio::time::sleep(PAUSE).await;
    }
}

async fn note_failed(client: Client, pod: Pod) {
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
    let ready = json!({"type": "Ready", "status": "False", "reason": "PodFailed"});
    let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [ready]}}));
    while is_unanswered(&pods.patch_status(&pod.name_any(), &PatchParams::default(), &patch).await) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// A server that refuses has answered: the pod is deleted, or another has its name.
fn is_unanswered<T>(result: &kube::Result<T>) -> bool {
    !matches!(result, Ok(_) | Err(kube::Error::Api(_)))
}
