//! The agent is removed in one command, together with its permission to clean up.

use anyhow::Result;
use serde_json::Value;

use super::ending::{node_has_nothing_of_ours, show};
use super::scene::{BETWEEN_LOOKS, ENFORCING, Scene, TIME_LIMIT, is_killed, leak, long_pressure};
use crate::cluster::{Cluster, NAME};
use crate::init::MANIFESTS;
use crate::scenarios::cluster_eyes::{condition, taint};
use crate::stage::Stage;

const NAMESPACE: &str = "node-pressure-monitor-removal";
const JOB: &str = "job/node-pressure-monitor-removal";

/// When the Job of `removal` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    JobFirst,
    AgentsFirst,
}

/// All objects of the agent are deleted at once while the node has pressure. The Job of `removal` cleans up in either order, and leaves no object
/// itself.
pub fn removal(stage: &mut Stage<'_>) -> Result<()> {
    for order in [Order::AgentsFirst, Order::JobFirst] {
        let Scene { cluster, agent, pod, .. } = Scene::with(stage, ENFORCING, long_pressure)?;
        let worker = leak(stage, &pod)?;
        is_killed(stage, &agent, &worker)?;
        let has_pressure =
            |node: &Value| taint(node, "memory").is_some() && condition(node, "MonitorMemoryPressure") == Some("True");
        let is_set = stage.until(TIME_LIMIT, |_| cluster.admin.node().is_ok_and(|node| has_pressure(&node)));
        stage.check(is_set, || "the node lacks the agent's taint or its condition".to_owned());
        if order == Order::AgentsFirst {
            show(stage, &cluster)?;
        } else {
            cluster.kubectl(&["apply", "-k", &directory()])?;
            waits(stage, &cluster)?;
        }
        cluster.remove()?;
        if order == Order::AgentsFirst {
            let node = cluster.admin.node()?;
            let left = (condition(&node, "MonitorMemoryPressure"), taint(&node, "memory").is_some());
            stage.note(format!("after kubectl delete -k: condition {:?}, taint {}", left.0, left.1));
        }
        let log = clean_up(stage, &cluster)?;
        // An agent that is stopped before it has lost its permissions cleans up itself.
        if log.contains(", 0 swept") {
            stage.skip(format!("{order:?}: the agent has left nothing for the Job to remove"));
        }
        nothing_is_left(stage, &cluster)?;
    }
    Ok(())
}

fn directory() -> String {
    format!("{MANIFESTS}/removal")
}

/// Asserts that the Job waits for the agents.
fn waits(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let mut log = String::new();
    let waits = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        log = cluster.kubectl(&["-n", NAMESPACE, "logs", JOB]).unwrap_or_default();
        log.contains("agents that may run, by the Leases")
    });
    stage.check(waits, || format!("the Job does not wait for the agents: {log:?}"));
    Ok(())
}

/// Asserts that neither the node nor the cluster has anything of the agent.
pub fn nothing_is_left(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    node_has_nothing_of_ours(stage, cluster)?;
    let kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = cluster.kubectl(&["get", kinds, "-o", "name"])?;
    let left: Vec<&str> = left.lines().filter(|name| name.contains(NAME)).collect();
    stage.check_equal("objects that are left in the cluster", &left, &Vec::new());
    for namespace in [NAME, NAMESPACE] {
        let left = cluster.admin.find(&format!("/api/v1/namespaces/{namespace}"))?;
        stage.check_equal("the namespace after the removal", &left, &None);
    }
    Ok(())
}

/// Cleans up with the Job of config/README.md, after the agents were deleted. Returns its log.
pub fn clean_up(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<String> {
    cluster.kubectl(&["apply", "-k", &directory()])?;
    wait_for_job(cluster)?;
    let log = cluster.kubectl(&["-n", NAMESPACE, "logs", JOB])?;
    log.lines().for_each(|line| stage.note(line));
    cluster.kubectl(&["delete", "-k", &directory(), "--wait"])?;
    Ok(log)
}

/// Waits until the Job has cleaned up.
pub fn wait_for_job(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["-n", NAMESPACE, "wait", "--for=condition=complete", JOB, "--timeout=3m"]).map(drop)
}
