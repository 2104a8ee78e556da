//! The agents of a cluster, as their Leases tell about their nodes. One list, answered by the API server's cache.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use kube::api::{GetParams, ListParams};
use serde::{Deserialize, Serialize};

use super::api_call::{Failure, call};
use super::api_client::Access;
use super::lease;
use super::node_digest::{Counts, NearestThreshold, PREFIX};
use crate::workloads::pod::has_ended;

/// A list of ten thousand Leases has some ten megabytes.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// One agent and its node. Fields that a Lease lacks, or has in an unknown form, are absent.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct FleetNode {
    pub node: String,
    pub version: Option<String>,
    /// `enforce` or `observe`.
    pub mode: Option<String>,
    pub pool: Option<String>,
    pub config_hash: Option<String>,
    pub config_since: Option<String>,
    /// A newer file than the one in force was refused.
    pub config_refused: bool,
    /// Why the node is in maintenance.
    pub maintenance: Option<String>,
    pub nearest: Option<NearestThreshold>,
    /// The day (UTC) of the counts.
    pub day: Option<Date>,
    #[serde(flatten)]
    pub counts: Counts,
    pub namespaces: BTreeMap<String, Counts>,
    /// Time and summary.
    pub last_incident: Option<String>,
    /// The last heartbeat, by the node's clock.
    pub renewed: Option<Timestamp>,
    /// The heartbeat is later than the agent promises.
    pub is_silent: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Lease {
    metadata: Metadata,
    spec: Option<lease::Spec>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    annotations: Option<BTreeMap<String, String>>,
}

/// Lists the agents whose Leases are in the namespace of `access`.
pub async fn list(access: &Access, now: Timestamp) -> Result<Vec<FleetNode>, String> {
    let client = access.client().await?;
    let leases = lease::list(&client, TIMEOUT).await.map_err(|error| error.to_string())?;
    Ok(leases.into_iter().map(|lease| fleet_node(lease, now)).collect())
}

/// The running pod of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPod {
    pub name: String,
    pub node: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodList {
    items: Vec<Pod>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    node_name: String,
}

/// The fields of a pod's status that tell its life.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default)]
pub struct PodStatus {
    pub phase: String,
    pub reason: String,
    pub message: String,
    conditions: Option<Vec<PodCondition>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    pub reason: String,
    pub message: String,
}

impl PodStatus {
    /// Returns whether no container of the pod runs or will run.
    pub fn has_ended(&self) -> bool {
        has_ended(&self.phase)
    }

    /// Returns the condition `DisruptionTarget` if it is true: a component has ended the pod, or is about to.
    pub fn disruption(&self) -> Option<&PodCondition> {
        self.conditions.iter().flatten().find(|it| it.kind == "DisruptionTarget" && it.status == "True")
    }
}

/// A pod as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAtServer {
    /// `None` until it is scheduled.
    pub node: Option<String>,
    pub status: PodStatus,
}

/// The labels of the agents' pods, as `config/kubernetes/base/daemon-set.yaml` has them.
const AGENTS: &str = "app.kubernetes.io/name=node-pressure-monitor,app.kubernetes.io/component=agent";

/// Lists the running pods of the agents in the namespace of `access`: of all nodes, or of one.
pub async fn agent_pods(access: &Access, node: Option<&str>) -> Result<Vec<AgentPod>, String> {
    let client = access.client().await?;
    let of_agents = ListParams {
        label_selector: Some(AGENTS.to_owned()),
        field_selector: node.map(|node| format!("spec.nodeName={node}")),
        ..ListParams::default()
    };
    let path = format!("/api/v1/namespaces/{}/pods", client.default_namespace());
    let request = kube::core::Request::new(path).list(&of_agents);
    let list: PodList = call(&client, request, TIMEOUT).await.map_err(|failure| failure.to_string())?;
    let running = list.items.into_iter().filter(|pod| pod.status.phase == "Running");
    Ok(running.map(|pod| AgentPod { name: pod.metadata.name, node: pod.spec.node_name }).collect())
}

/// Returns a pod; `None` if there is no such pod.
pub async fn pod(access: &Access, namespace: &str, pod: &str) -> Result<Option<PodAtServer>, String> {
    let request =
        kube::core::Request::new(format!("/api/v1/namespaces/{namespace}/pods")).get(pod, &GetParams::default());
    match call::<Pod>(&access.client().await?, request, TIMEOUT).await {
        Ok(Pod { spec, status, .. }) => {
            Ok(Some(PodAtServer { node: Some(spec.node_name).filter(|node| !node.is_empty()), status }))
        }
        Err(Failure::NotFound(_)) => Ok(None),
        Err(failure) => Err(failure.to_string()),
    }
}

impl FleetNode {
    /// Returns the time of the node's last incident, if it is known.
    pub fn last_incident_at(&self) -> Option<Timestamp> {
        self.last_incident.as_deref()?.split(' ').next()?.parse().ok()
    }
}

fn fleet_node(lease: Lease, now: Timestamp) -> FleetNode {
    let spec = lease.spec.unwrap_or_default();
    let mut annotations = lease.metadata.annotations.unwrap_or_default();
    let mut take = |name: &str| annotations.remove(&format!("{PREFIX}{name}"));
    let counts = Counts { evictions: number(take("evictions")), oom_kills: number(take("oom-kills")) };
    FleetNode {
        node: lease.metadata.name,
        version: take("version"),
        mode: take("mode"),
        pool: take("pool"),
        config_hash: take("config-hash"),
        config_since: take("config-since"),
        config_refused: take("config-refused").is_some_and(|refused| refused == "true"),
        maintenance: take("maintenance"),
        nearest: take("nearest-threshold").and_then(|json| serde_json::from_str(&json).ok()),
        day: take("day").and_then(|day| day.parse().ok()),
        counts,
        namespaces: take("namespaces").and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default(),
        last_incident: take("last-incident"),
        renewed: spec.renewed(),
        is_silent: spec.is_over(now),
    }
}

fn number(text: Option<String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_read_as_the_agent_writes_it() {
        let digest = super::super::NodeDigest {
            mode: "enforce",
            pool: Some("batch".into()),
            maintenance: Some("cordoned".to_owned()),
            nearest: Some(NearestThreshold {
                threshold: "memory.available<100Mi".to_owned(),
                available: 300,
                value: 100,
                seconds: Some(41.5),
            }),
            ..super::super::NodeDigest::default()
        };
        let mut annotations = digest.annotations();
        annotations.retain(|_, value| !value.is_null());
        let lease = json!({
            "metadata": {"name": "worker-1", "annotations": annotations},
            "spec": {"leaseDurationSeconds": 180, "renewTime": "2026-01-01T00:00:00.000000Z"},
        });
        let at = |time: &str| fleet_node(serde_json::from_value(lease.clone()).unwrap(), time.parse().unwrap());
        let node = at("2026-01-01T00:02:59Z");
        assert_eq!((node.mode.as_deref(), node.pool.as_deref()), (Some("enforce"), Some("batch")));
        assert_eq!(node.maintenance.as_deref(), Some("cordoned"));
        assert_eq!((node.nearest, node.is_silent), (digest.nearest, false));
        assert!(at("2026-01-01T00:03:00Z").is_silent);
    }

    #[test]
    fn only_a_true_disruption_counts() {
        let status = |json| serde_json::from_value::<PodStatus>(json).unwrap();
        let condition = |kind, status| json!({"type": kind, "status": status, "reason": "TerminationByKubelet"});
        for (json, ended, disruption) in [
            (json!({"phase": "Running", "conditions": null}), false, None),
            (json!({"phase": "Failed", "conditions": [condition("DisruptionTarget", "False")]}), true, None),
            (
                json!({"phase": "Failed", "conditions": [condition("Ready", "True"), condition("DisruptionTarget", "True")]}),
                true,
                Some("TerminationByKubelet"),
            ),
        ] {
            let status = status(json);
            assert_eq!((status.has_ended(), status.disruption().map(|it| it.reason.as_str())), (ended, disruption));
        }
    }

    #[test]
    fn a_foreign_lease_is_unknown_rather_than_an_error() {
        let lease = json!({
            "metadata": {"name": "n", "annotations": {
                "node-pressure-monitor/evictions": "-1",
                "node-pressure-monitor/nearest-threshold": "{\"threshold\": 1}",
                "node-pressure-monitor/namespaces": "[]",
                "node-pressure-monitor/day": "yesterday",
            }},
            "spec": {"renewTime": "soon"},
        });
        let node = fleet_node(serde_json::from_value(lease).unwrap(), Timestamp::UNIX_EPOCH);
        assert_eq!(node, FleetNode { node: "n".to_owned(), is_silent: true, ..FleetNode::default() });
    }
}
