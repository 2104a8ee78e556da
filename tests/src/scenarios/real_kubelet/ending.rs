//! The assertions at the end of every scenario, and the removal of the agent.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use node_pressure_apiserver::stage::lease_path;
use serde_json::Value;

use super::scene::{events_in, events_of, text};
use crate::cluster::{Cluster, NAME};
use crate::control_plane::NODE;
use crate::stage::Stage;

/// The agent's warning that no admission policy limits its token to its own node.
pub const NO_POLICY: &str = "own_node_policy_missing";
/// The lines of the agent's log that are printed after a failure.
const PRINTED_LINES: usize = 120;

/// Removes the workloads, the agent, and the rest. Asserts that a stopping agent leaves nothing on the node.
pub fn tidy(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    tidy_after_kills(stage, cluster, 0)
}

/// As [`tidy`], after the agent was killed so many times.
pub fn tidy_after_kills(stage: &mut Stage<'_>, cluster: &Cluster, kills: u64) -> Result<()> {
    node_events_have_one_reporter(stage, cluster)?;
    agent_is_well(stage, cluster, kills)?;
    if stage.has_failed() {
        print_log(stage, cluster)?;
    }
    show(stage, cluster)?;
    let lease = lease_path(NODE);
    let held = cluster.admin.find(&lease)?.unwrap_or_default();
    stage.check_equal("the holder of the node's Lease", &text(&held["spec"]["holderIdentity"]), &NODE.to_owned());
    cluster.kubectl(&["-n", "default", "delete", "deployment", "--all", "--wait", "--cascade=foreground"])?;
    cluster.kubectl(&["-n", NAME, "delete", "daemonset", NAME, "--wait", "--cascade=foreground"])?;
    let left = cluster.admin.find(&lease)?.is_some();
    stage.check(!left, || "the agent has left its Lease".to_owned());
    node_has_nothing_of_ours(stage, cluster)?;
    let sweeper = format!("deploy/{NAME}-sweeper");
    let sweep = ["-n", NAME, "exec", &sweeper, "--", "/usr/bin/node-pressure-monitor", "sweep", "--remove"];
    stage.note(cluster.kubectl(&sweep)?.trim());
    cluster.remove()?;
    node_has_nothing_of_ours(stage, cluster)
}

/// Asserts that the node has no condition and no taint of the agent.
pub fn node_has_nothing_of_ours(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let node = cluster.admin.node()?;
    for list in ["/status/conditions", "/spec/taints"] {
        let left = node.pointer(list).map_or_else(String::new, Value::to_string);
        let is_ours = left.contains("\"Monitor") || left.contains(NAME);
        stage.check(!is_ours, || format!("the node has something of the agent: {left}"));
    }
    Ok(())
}

/// Prints the end of the agent's log. The serial line is slow, so lines are shortened.
fn print_log(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    for line in cluster.agent(stage)?.tail(PRINTED_LINES) {
        stage.note(format!("agent: {}", line.chars().take(1_500).collect::<String>()));
    }
    Ok(())
}

/// Shows the pods and the node, as kubectl prints them now. Takes seconds under emulation.
pub fn show(stage: &Stage<'_>, cluster: &Cluster) -> Result<()> {
    stage.screen("$ kubectl get pods -o wide");
    stage.screen(&cluster.kubectl(&["get", "pods", "-o", "wide"])?);
    stage.screen(&format!("\n$ kubectl describe node {NODE}"));
    let page = cluster.kubectl(&["describe", "node", NODE])?;
    // Addresses, capacity and the pods of the node are left out.
    let mut part = "";
    for line in page.lines() {
        part = if line.starts_with(' ') { part } else { line.split(':').next().unwrap_or_default() };
        if ["Taints", "Conditions", "Events"].contains(&part) {
            stage.screen(line);
        }
    }
    // kubectl describe finds events by their object's UID, which the kubelet (1.36) leaves empty.
    let columns = "UID:.involvedObject.uid,LAST:.lastTimestamp,FROM:.source.component,REASON:.reason,COUNT:.count,MESSAGE:.message";
    stage.screen("\n$ kubectl get events --field-selector involvedObject.kind=Node -o custom-columns=...");
    stage.screen(&cluster.kubectl(&[
        "get",
        "events",
        "--field-selector",
        "involvedObject.kind=Node",
        "-o",
        &format!("custom-columns={columns}"),
    ])?);
    Ok(())
}

/// Asserts that no kind of event about the node comes from both the agent and another program. The kubelet reports events about the node, too.
fn node_events_have_one_reporter(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let mut reporters: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for event in events_of(cluster, NODE)? {
        reporters.entry(text(&event["reason"])).or_default().insert(text(&event["source"]["component"]));
    }
    reporters.retain(|_, components| components.len() > 1 && components.contains(NAME));
    stage.check(reporters.is_empty(), || {
        format!("events about the node from the agent and another program: {reporters:?}")
    });
    Ok(())
}

/// Asserts that nothing but these kills has restarted the agent, that it has not warned of a missing policy, and that it has not warned of
/// writable layers that are not counted: containers come and go in every scenario.
fn agent_is_well(stage: &mut Stage<'_>, cluster: &Cluster, kills: u64) -> Result<()> {
    let events = events_in(cluster, NAME)?;
    let of_liveness = |reason: &str| -> u64 {
        let is_it =
            |event: &&Value| event["reason"] == reason && text(&event["message"]).to_lowercase().contains("liveness");
        events.iter().filter(is_it).map(|event| event["count"].as_u64().unwrap_or(1)).sum()
    };
    let late = of_liveness("Unhealthy");
    if late > 0 {
        stage.note(format!("the agent's liveness probe failed {late} times, which is within its failure threshold"));
    }
    stage.check_equal("restarts of the agent for its liveness probe", &of_liveness("Killing"), &0);
    let agents = cluster.pods_of(NAME, "app.kubernetes.io/component=agent")?;
    stage.check(!agents.is_empty(), || "there is no pod of the agent".to_owned());
    for pod in agents {
        let agent = &pod["status"]["containerStatuses"][0];
        stage.check(agent["restartCount"].as_u64().unwrap_or(0) == kills, || {
            format!("the agent was restarted: {agent}")
        });
    }
    let agent = cluster.agent(stage)?;
    stage.check(agent.events(NO_POLICY).is_empty(), || "the agent warns that no policy limits it".to_owned());
    let degraded = agent.events("degraded");
    let layers: Vec<&str> =
        degraded.iter().map(|one| one.text("reason")).filter(|reason| reason.contains("writable layer")).collect();
    stage.check(layers.is_empty(), || format!("warnings that writable layers are not counted: {layers:?}"));
    Ok(())
}
