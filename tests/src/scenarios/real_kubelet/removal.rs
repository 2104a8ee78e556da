//! The agent is removed in one command, together with the permission to clean up behind it.

use anyhow::Result;
use serde_json::Value;

use super::scene::{ENFORCING, PATIENCE, Scene, is_killed, leak, long_pressure, show};
use crate::cluster::{Cluster, NAME};
use crate::init::MANIFESTS;
use crate::scenarios::cluster_eyes::{condition, taint};
use crate::stage::Stage;

/// Everything is deleted at once while the node has pressure. The Job of `removal` cleans up, and leaves nothing itself.
pub fn removal(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, .. } = Scene::with(stage, ENFORCING, long_pressure)?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    let is_told =
        |node: &Value| taint(node, "memory").is_some() && condition(node, "MonitorMemoryPressure") == Some("True");
    let told = stage.until(PATIENCE, |_| cluster.admin.node().is_ok_and(|node| is_told(&node)));
    stage.check(told, || "the node has neither the agent's taint nor its condition".to_owned());
    show(stage, &cluster)?;
    cluster.remove()?;
    let node = cluster.admin.node()?;
    let left = (condition(&node, "MonitorMemoryPressure"), taint(&node, "memory").is_some());
    stage.note(format!("after kubectl delete -k: condition {:?}, taint {}", left.0, left.1));
    stage.check(left.0.is_some() && left.1, || "nothing was left for the Job to remove".to_owned());
    clean_up(stage, &cluster)?;
    nothing_is_left(stage, &cluster)
}

/// Asserts that neither the node nor the cluster has anything of the agent.
pub fn nothing_is_left(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let node = cluster.admin.node()?;
    for list in ["/status/conditions", "/spec/taints"] {
        let left = node.pointer(list).map_or_else(String::new, Value::to_string);
        let is_ours = left.contains("\"Monitor") || left.contains(NAME);
        stage.check(!is_ours, || format!("the node has something of the agent: {left}"));
    }
    let kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";
    let left = cluster.kubectl(&["get", kinds, "-o", "name"])?;
    let left: Vec<&str> = left.lines().filter(|name| name.contains(NAME)).collect();
    stage.check_equal("what is left in the cluster", &left, &Vec::new());
    let namespace = cluster.admin.find(&format!("/api/v1/namespaces/{NAME}"))?;
    stage.check_equal("what is left of the namespace", &namespace, &None);
    Ok(())
}

/// Does what config/README.md says under Removal.
pub fn clean_up(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let directory = format!("{MANIFESTS}/removal");
    let job = format!("job/{NAME}-removal");
    cluster.kubectl(&["apply", "-k", &directory])?;
    cluster.kubectl(&["-n", NAME, "wait", "--for=condition=complete", &job, "--timeout=3m"])?;
    for line in cluster.kubectl(&["-n", NAME, "logs", &job])?.lines() {
        stage.note(line);
    }
    cluster.kubectl(&["delete", "-k", &directory, "--wait"]).map(drop)
}
