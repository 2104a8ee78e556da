//! The node's Lease: the agent's heartbeat. It is small and has no watchers; the Node object, which every watcher of nodes gets, is written
//! when something changes.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, VersionMatch};
use kube::core::Request;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::config::KubernetesOptions;
use crate::units::Degradations;

use super::api_call::{Failure, STOP_TIMEOUT, TIMEOUT, call};
use super::api_client::Context;
use super::api_time;
use super::backoff::{Backoff, jittered, spread};
use super::node_digest::NodeDigest;

/// Name among the missing capabilities.
const CAPABILITY: &str = "heartbeat";
/// Heartbeats until the sweeper counts the agent as dead.
const MISSED: u64 = 3;
/// The time after which a node without a Lease counts as one without an agent.
pub(super) const WITHOUT_LEASE: Duration = Duration::from_secs(180);
/// The longest promise that is believed, in seconds.
const LONGEST: u64 = 3 * 86_400;
const API: &str = "/apis/coordination.k8s.io/v1";
/// The label that all Leases of agents have.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "node-pressure-monitor");

/// The Leases in the namespace of the connection: in a pod that of its service account.
pub(super) fn leases(client: &kube::Client) -> Request {
    Request::new(format!("{API}/namespaces/{}/leases", client.default_namespace()))
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Leases of the agents cannot be listed: {failure}; it needs list on leases in the namespace {namespace}")]
pub struct ListError {
    failure: String,
    namespace: String,
}

/// Lists the Leases with the agents' label from the API server's cache, in the namespace of the client.
pub(super) async fn list<T: DeserializeOwned>(client: &kube::Client, timeout: Duration) -> Result<Vec<T>, ListError> {
    #[derive(Deserialize)]
    struct List<T> {
        items: Option<Vec<T>>,
    }
    let from_cache = ListParams {
        label_selector: Some(format!("{}={}", LABEL.0, LABEL.1)),
        resource_version: Some("0".to_owned()),
        version_match: Some(VersionMatch::NotOlderThan),
        ..ListParams::default()
    };
    let listed: Result<List<T>, Failure> = call(client, leases(client).list(&from_cache), timeout).await;
    let namespace = || client.default_namespace().to_owned();
    let refused = |failure: Failure| ListError { failure: failure.to_string(), namespace: namespace() };
    listed.map(|list| list.items.unwrap_or_default()).map_err(refused)
}

/// The heartbeat of a Lease.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    pub(super) renew_time: Option<String>,
}

impl Spec {
    pub(super) fn renewed(&self) -> Option<Timestamp> {
        self.renew_time.as_deref().and_then(api_time::parse)
    }

    /// Returns for how long the agent counts as alive after a renewal.
    pub(super) fn duration(&self) -> Duration {
        self.lease_duration_seconds.map_or(WITHOUT_LEASE, |seconds| Duration::from_secs(seconds.clamp(1, LONGEST)))
    }

    /// Returns whether the agent is dead by the clock.
    pub(super) fn is_over(&self, wall: Timestamp) -> bool {
        self.renewed().is_none_or(|at| api_time::has_passed(at, self.duration(), wall))
    }
}

/// The time of the heartbeat within its interval. A rollout, an outage of the API server and a new configuration make many agents renew in
/// the same seconds. The renewal after that comes after a random part of the interval, so that the heartbeats spread over all of it.
#[derive(Debug, Clone, Copy, Default)]
struct Phase {
    is_random: bool,
}

impl Phase {
    /// Returns the wait after a successful renewal, at most the promised heartbeat.
    fn after_renewal(&mut self, heartbeat: Duration) -> Duration {
        if std::mem::replace(&mut self.is_random, true) {
            heartbeat.mul_f64(0.9) + jittered(heartbeat / 10)
        } else {
            spread(heartbeat)
        }
    }
}

/// Renews the Lease for ever.
pub(super) async fn keep(
    context: &Context,
    digest: watch::Receiver<NodeDigest>,
    mut options: watch::Receiver<KubernetesOptions>,
) {
    let leases = leases(&context.client);
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    let mut phase = Phase::default();
    let mut degradations = Degradations::default();
    loop {
        let heartbeat = options.borrow_and_update().heartbeat;
        let lease = lease(context, &digest.borrow().clone(), heartbeat);
        let renewed = renew(context, &leases, &lease).await;
        let reason = renewed.as_ref().err().and_then(|failure| reason(failure, context.client.default_namespace()));
        context.reporter.set_capability(&mut degradations, CAPABILITY, reason);
        let wait = match renewed {
            Ok(()) => {
                backoff.reset();
                phase.after_renewal(heartbeat)
            }
            Err(failure) => {
                phase = Phase::default();
                backoff.next_wait(failure.retry_after()).min(heartbeat)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            changed = options.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
                phase = Phase::default();
            }
        }
    }
}

/// Removes the Lease of an agent that stops.
pub(super) async fn remove(context: &Context) {
    let request = leases(&context.client).delete(&context.node_name, &DeleteParams::default());
    match call::<IgnoredAny>(&context.client, request, STOP_TIMEOUT).await {
        Ok(_) | Err(Failure::NotFound(_)) => {}
        Err(failure) => tracing::warn!(event = "lease_left", reason = %failure, "the node's Lease is left behind"),
    }
}

async fn renew(context: &Context, leases: &Request, lease: &Value) -> Result<(), Failure> {
    let patch = leases.patch(&context.node_name, &PatchParams::default(), &Patch::Merge(lease));
    match call::<IgnoredAny>(&context.client, patch, TIMEOUT).await {
        Err(Failure::NotFound(_)) => {
            // In a patch null removes an annotation.
            let mut lease = lease.clone();
            if let Some(annotations) = lease.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                annotations.retain(|_, value| !value.is_null());
            }
            let create = leases.create(&PostParams::default(), lease.to_string().into_bytes());
            call::<IgnoredAny>(&context.client, create, TIMEOUT).await.map(drop)
        }
        renewed => renewed.map(drop),
    }
}

/// Returns the Lease, as a whole object and as a patch.
fn lease(context: &Context, digest: &NodeDigest, heartbeat: Duration) -> Value {
    let name = &*context.node_name;
    let uid = context.reporter.with(|view| view.node.uid.clone());
    let mut metadata = json!({"name": name, "labels": {LABEL.0: LABEL.1}});
    // Before the first digest those of an earlier agent stay.
    if *digest != NodeDigest::default() {
        metadata["annotations"] = digest.annotations().into();
    }
    if !uid.is_empty() {
        // The control plane removes the Lease with its node.
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
    }
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": heartbeat.as_secs().max(1).saturating_mul(MISSED),
            "renewTime": api_time::format_in_micros(Timestamp::now()),
        },
    })
}

/// Returns the degradation; none: the pods' reflector reports that the API server does not answer.
fn reason(failure: &Failure, namespace: &str) -> Option<String> {
    let fix = match failure {
        Failure::Later { .. } | Failure::Conflict(_) => return None,
        Failure::NotFound(_) => format!("create the namespace {namespace}"),
        Failure::Forbidden(_) | Failure::Invalid(_) => {
            format!("grant create, patch and delete on leases in the namespace {namespace}")
        }
    };
    Some(format!("{failure}; the sweeper takes this agent for dead; {fix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_started_at_once_spread_over_the_interval() {
        const AGENTS: u32 = 600;
        let heartbeat = Duration::from_secs(60);
        // The agents' renewals within each sixth of the third minute.
        let mut sixths = [0_u32; 6];
        for _ in 0..AGENTS {
            let (mut phase, mut at) = (Phase::default(), Duration::ZERO);
            while at < 3 * heartbeat {
                if at >= 2 * heartbeat {
                    sixths[usize::try_from((at - 2 * heartbeat).as_secs() / 10).unwrap()] += 1;
                }
                let wait = phase.after_renewal(heartbeat);
                assert!(wait <= heartbeat, "the promised heartbeat is kept: {wait:?}");
                at += wait;
            }
        }
        assert!(sixths.iter().all(|renewals| (AGENTS / 12..AGENTS / 3).contains(renewals)), "{sixths:?}");
    }

    #[test]
    fn the_wait_is_random_only_once() {
        let heartbeat = Duration::from_secs(60);
        let mut phase = Phase::default();
        phase.after_renewal(heartbeat);
        assert!((0..20).all(|_| phase.after_renewal(heartbeat) >= heartbeat.mul_f64(0.9)));
    }
}
