//! The replacement of an evicted pod goes to another node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ending::{show, tidy};
use super::scene::{
    APP, BETWEEN_LOOKS, ENFORCING, TIME_LIMIT, deploy, is_killed, killed_at, leak, long_pressure, start_with, text,
};
use super::times::taint_came_before_replacement;
use crate::agent::Agent;
use crate::cluster::{Cluster, is_ready};
use crate::control_plane::{Admin, NODE};
use crate::stage::Stage;

/// A node without a kubelet. Pods that are assigned to it stay pending.
const SPARE: &str = "spare";
/// The node lifecycle controller waits 50 s for a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Returns the fields of a pod that prefers this node. The scheduler gives this preference less weight than the agent's taint, and more than an
/// empty node.
fn prefers_this_node() -> String {
    format!(
        "affinity: {{nodeAffinity: {{preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 100, \
         preference: {{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [{NODE}]}}]}}}}]}}}}"
    )
}

/// With a second node the replacement avoids the node under pressure, though its affinity prefers that node.
pub fn elsewhere(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    // On a slow machine the replacement is scheduled long after the eviction.
    let agent = deploy(stage, &cluster, ENFORCING, long_pressure)?;
    let client = Admin::of_kubeconfig(&Cluster::admin_kubeconfig())?;
    register(&cluster)?;
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                // After a heartbeat without an answer the next one follows.
                let _missed = client.merge(&format!("/api/v1/nodes/{SPARE}/status"), &status());
                thread::sleep(HEARTBEAT);
            }
        });
        let outcome = replaced_elsewhere(stage, &cluster, &agent);
        is_over.store(true, Ordering::Release);
        outcome
    });
    // No kubelet ends the pods of this node.
    cluster.kubectl(&["delete", "node", SPARE])?;
    let on_spare = format!("spec.nodeName={SPARE}");
    cluster.kubectl(&["delete", "pods", "-A", "--field-selector", &on_spare, "--force", "--grace-period=0"])?;
    outcome?;
    tidy(stage, &cluster)
}

fn register(cluster: &Cluster) -> Result<()> {
    let labels = json!({"kubernetes.io/hostname": SPARE, "kubernetes.io/os": "linux"});
    cluster.admin.create("/api/v1/nodes", &json!({"metadata": {"name": SPARE, "labels": labels}})).map(drop)
}

/// Returns the status of a heartbeat, with room for many pods.
fn status() -> Value {
    let (room, now) = (json!({"cpu": "2", "memory": "3Gi", "pods": "110"}), Timestamp::now().to_string());
    let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now});
    json!({"status": {"capacity": room, "allocatable": room, "conditions": [ready]}})
}

fn replaced_elsewhere(stage: &mut Stage<'_>, cluster: &Cluster, agent: &Agent) -> Result<()> {
    let is_open = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        let node = cluster.admin.get(&format!("/api/v1/nodes/{SPARE}")).unwrap_or_default();
        is_ready(&node) && node["spec"]["taints"].is_null()
    });
    stage.check(is_open, || format!("the node {SPARE} takes no pods"));
    let pod = start_with(stage, cluster, APP, &prefers_this_node())?;
    stage.check_equal("the pod's node while there is no pressure", &text(&pod["spec"]["nodeName"]), &NODE.to_owned());
    let uid = text(&pod["metadata"]["uid"]);
    let worker = leak(stage, &pod)?;
    is_killed(stage, agent, &worker)?;
    let mut replacement = Value::Null;
    let is_bound = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        let pods = cluster.pods_of("default", &format!("app={APP}")).unwrap_or_default();
        let other = pods.into_iter().find(|pod| pod["metadata"]["uid"] != uid && !pod["spec"]["nodeName"].is_null());
        replacement = other.unwrap_or_default();
        !replacement.is_null()
    });
    stage.check(is_bound, || "no replacement has a node".to_owned());
    let node = text(&replacement["spec"]["nodeName"]);
    let killed = killed_at(stage, agent, &worker)?;
    if taint_came_before_replacement(killed)? {
        stage.check_equal("the replacement's node", &node, &SPARE.to_owned());
    } else {
        stage.skip(format!("the machine was too slow: the taint came after the replacement, which is on {node}"));
    }
    show(stage, cluster)
}
