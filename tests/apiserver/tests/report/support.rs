//! The cluster room without an agent.

use std::time::Duration;

use node_pressure_apiserver::Record;
use node_pressure_apiserver::stage::{Stage, lease_path};
use node_pressure_monitor::cluster::status::{Effect, WantedCondition, WantedTaint};
use node_pressure_monitor::cluster::{Access, Cluster, Event, NodeStatus};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::Value;

/// A time limit longer than any step takes.
pub const SOON: Duration = Duration::from_secs(60);
pub const TYPE: &str = "MonitorMemoryPressure";
pub const KEY: &str = "node-pressure-monitor/memory-pressure";

pub fn access(stage: &Stage) -> Access {
    Access::by_kubeconfig(stage.kubeconfig_file().unwrap(), &stage.node)
}

pub fn cluster(stage: &Stage, options: KubernetesOptions) -> Cluster {
    Cluster::start_with(options, Some(access(stage))).unwrap()
}

/// Returns the status of an agent that may act, with memory pressure or none and these taints.
pub fn status(holds: bool, effects: &[Effect]) -> NodeStatus {
    let reason = if holds { "NodeHasInsufficientMemory" } else { "NodeHasSufficientMemory" };
    NodeStatus {
        conditions: vec![WantedCondition {
            kind: "MemoryPressure".to_owned(),
            status: Some(holds),
            reason: reason.to_owned(),
            message: "words".to_owned(),
        }],
        taints: effects
            .iter()
            .map(|effect| WantedTaint { kind: "MemoryPressure".to_owned(), effect: *effect })
            .collect(),
        may_act: true,
    }
}

/// Returns whether the node has a condition with this status.
pub fn has(node: &Value, kind: &str, status: &str) -> bool {
    node_pressure_apiserver::stage::condition(node, kind)["status"] == status
}

pub fn taints(node: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
    taints.map(|taint| (text(&taint["key"]), text(&taint["effect"]))).collect()
}

pub fn is_tainted(node: &Value, key: &str, effect: &str) -> bool {
    taints(node).contains(&(key.to_owned(), effect.to_owned()))
}

/// Waits until the node is as wanted.
pub async fn node(stage: &Stage, wanted: impl Fn(&Value) -> bool) -> Value {
    stage.until(&stage.node_path(), SOON, |node| node.is_some_and(&wanted)).await.unwrap()
}

/// Waits until the node's Lease is as wanted.
pub async fn lease(stage: &Stage, wanted: impl Fn(&Value) -> bool) -> Value {
    stage.until(&lease_path(&stage.node), SOON, |lease| lease.is_some_and(&wanted)).await.unwrap()
}

/// Returns the next degradation, or the end of one.
pub async fn degradation(cluster: &mut Cluster) -> (&'static str, Option<String>) {
    let told = async {
        loop {
            if let Event::Degradation { capability, reason } = cluster.event().await {
                return (capability, reason);
            }
        }
    };
    tokio::time::timeout(SOON, told).await.unwrap()
}

/// Waits until the agent has listed its node and watches it, and is ready to write.
pub async fn ready(stage: &Stage) {
    let is_answered =
        |request: &Record| request.is_watch() && request.path.ends_with("/nodes") && request.status == Some(200);
    stage.server.log().wait_for(SOON, is_answered).await.unwrap();
}

pub async fn end(stage: Stage, cluster: Cluster) {
    cluster.stop(SOON);
    stage.end().await.unwrap();
}
