//! Finds out whether an admission policy limits the agent's token to its own node, as config/kubernetes/own-node does.

use std::time::Duration;

use kube::api::PostParams;
use serde::de::IgnoredAny;
use serde_json::json;

use super::api_call::{Failure, TIMEOUT, call};
use super::api_client::{Access, Context};
use super::backoff::{Backoff, spread};
use super::lease::leases;

/// The name of the policy in config/kubernetes/own-node. A refusal names the policy that refuses.
const POLICY: &str = "node-pressure-monitor-own-node";
/// The name of a Lease that is no node's.
const NO_NODE: &str = "own-node-policy-check.node-pressure-monitor";
/// A policy that was created together with the agent takes the API servers some seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
/// The agents of all nodes may start at the same time.
const SPREAD: Duration = Duration::from_secs(30);

/// The consequence of a missing policy, and the remedy.
pub const MISSING: &str = "no admission policy limits the agent to its own node: an attacker on this node can change all nodes and end all \
                           pods with the agent's token; apply config/kubernetes/own-node, which needs Kubernetes 1.30";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnNodePolicy {
    InForce,
    Missing,
    /// Why the answer does not tell.
    Unknown(String),
}

/// Asks the API server whether the policy is in force for the identity of `access`.
pub async fn look(access: &Access) -> OwnNodePolicy {
    match access.client().await {
        Ok(client) => of_answer(&try_foreign_lease(&client).await),
        Err(reason) => OwnNodePolicy::Unknown(reason),
    }
}

/// Looks once, and logs a warning if the policy is missing. Waits while the API server does not answer.
pub(super) async fn warn_if_missing(context: &Context) {
    tokio::time::sleep(SETTLED_AFTER + spread(SPREAD)).await;
    let mut backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(300));
    let answer = loop {
        match try_foreign_lease(&context.client).await {
            Err(failure @ Failure::Later { .. }) => tokio::time::sleep(backoff.next_wait(failure.retry_after())).await,
            answer => break answer,
        }
    };
    match of_answer(&answer) {
        OwnNodePolicy::InForce => tracing::debug!(event = "own_node_policy", "the agent is limited to its own node"),
        OwnNodePolicy::Missing => tracing::warn!(event = "own_node_policy_missing", "{MISSING}"),
        OwnNodePolicy::Unknown(reason) => {
            tracing::debug!(
                event = "own_node_policy",
                reason,
                "whether the agent is limited to its own node is not known"
            );
        }
    }
}

/// Sends a request that the policy must refuse: the creation of a Lease that is not of the agent's node, as a dry run.
///
/// A dry run passes authorization, validation and admission, and is never stored. The agent's role grants the creation of Leases already,
/// while reading policies would need a right at the cluster scope. A PATCH of another node would need that node's name: without an object
/// the API server answers 404 before admission.
async fn try_foreign_lease(client: &kube::Client) -> Result<(), Failure> {
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NO_NODE}, "spec": {}});
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let request = leases(client).create(&dry_run, lease.to_string().into_bytes());
    call::<IgnoredAny>(client, request, TIMEOUT).await.map(drop)
}

fn of_answer(answer: &Result<(), Failure>) -> OwnNodePolicy {
    match answer {
        // A Lease of this name exists, which the API server notices after admission.
        Ok(()) | Err(Failure::Conflict(_)) => OwnNodePolicy::Missing,
        Err(Failure::Forbidden(message)) if message.contains(POLICY) => OwnNodePolicy::InForce,
        // Among them a role without the verb, a quota, and a webhook that refuses dry runs.
        Err(failure) => OwnNodePolicy::Unknown(failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_policys_own_refusal_shows_that_it_is_in_force() {
        let denied = "leases.coordination.k8s.io \"x\" is forbidden: ValidatingAdmissionPolicy 'node-pressure-monitor-own-node' with \
                      binding 'node-pressure-monitor-own-node' denied request: the agent on a may not touch the Lease of another node";
        let forbidden = |message: &str| of_answer(&Err(Failure::Forbidden(message.to_owned())));
        assert_eq!(forbidden(denied), OwnNodePolicy::InForce);
        for other in [
            "leases.coordination.k8s.io is forbidden: User \"system:serviceaccount:node-pressure-monitor:node-pressure-monitor\" cannot \
             create resource \"leases\"",
            "leases.coordination.k8s.io \"x\" is forbidden: exceeded quota: all",
            "Unauthorized",
        ] {
            assert!(matches!(forbidden(other), OwnNodePolicy::Unknown(_)), "{other}");
        }
    }

    #[test]
    fn an_accepted_dry_run_shows_that_the_policy_is_missing() {
        let exists = Failure::Conflict("leases.coordination.k8s.io \"x\" already exists".to_owned());
        for answer in [Ok(()), Err(exists)] {
            assert_eq!(of_answer(&answer), OwnNodePolicy::Missing);
        }
        let away = Failure::Later { reason: "no answer".to_owned(), after: None };
        assert_eq!(of_answer(&Err(away)), OwnNodePolicy::Unknown("no answer".to_owned()));
    }
}
