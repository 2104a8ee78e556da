//! Evictions for a hard threshold of memory, also while the API server, the agent or the kubelet is down.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::{show, tidy, tidy_after_kills};
use super::lease;
use super::scene::{
    BETWEEN_LOOKS, ENFORCING, GROWTH_TIME_LIMIT, LASTS, Scene, TIME_LIMIT, ends_as_evicted, evicted_event_count,
    is_evicted_and_replaced, is_evicted_once, is_killed, is_set_up, killed_at, killed_count, leak, print_since_kill,
    ready_pod, status_taken_ms, text,
};
use super::set_ups::{others, run_on};
use super::times::waited_for_taint;
use crate::agent::{self, Agent};
use crate::cgroups::container_of;
use crate::cluster::programs::{self, Program};
use crate::cluster::{Cluster, container_id};
use crate::containers::runtime::Runtime;
use crate::control_plane::NODE;
use crate::incidents;
use crate::processes;
use crate::scenarios::cluster_eyes::{condition, taint};
use crate::stage::Stage;

/// How long the API server is down.
const API_SERVER_DOWN: Duration = Duration::from_secs(65);
/// How long the kubelet is down after the kill. If the node lifecycle controller takes the node for dead meanwhile, the pod ends all the same.
const KUBELET_DOWN: Duration = Duration::from_secs(15);
/// The agent's note about a pod whose status has lost the reason `Evicted`.
const NOT_SEEN: &str = "may not be seen as evicted";
/// The kubelet looks for ended containers every second. A status that the API server takes later than this may come after that look.
const IN_TIME_MS: f64 = 500.0;
/// The time after a kill in which the agent and the kubelet write the pod's status.
const UNDISTURBED: Duration = Duration::from_secs(4);

pub fn ramp(stage: &mut Stage<'_>) -> Result<()> {
    let for_a_while =
        |text: &str| text.replace("evictionPressureTransitionPeriod: 5m", "evictionPressureTransitionPeriod: 40s");
    let scene = Scene::with(stage, ENFORCING, for_a_while)?;
    let before = lease::first_evictions(stage, &scene.cluster)?;
    is_set_up(stage, &scene.cluster, "first")?;
    let others = others(stage, &scene.cluster)?;
    let worker = leak(stage, &scene.pod)?;
    monitors_keep_their_score(stage, &scene)?;
    is_killed(stage, &scene.agent, &worker)?;
    node_shows_pressure(stage, &scene.cluster)?;
    is_evicted_and_replaced(stage, &scene, &worker)?;
    waited_for_taint(stage, killed_at(stage, &scene.agent, &worker)?, &scene.name)?;
    run_on(stage, &others);
    node_recovers(stage, &scene.cluster)?;
    plugin_explains(stage, &scene)?;
    lease::counts_one_more(stage, &scene.cluster, before)?;
    lease::check_annotations(stage, &scene.cluster, &scene.name)?;
    incident_names_node(stage, &scene)?;
    tidy(stage, &scene.cluster)
}

/// Asserts that the node has the condition and the taint, and prints how kubectl shows them.
fn node_shows_pressure(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    // kubectl takes seconds of CPU time under emulation: the requests after the kill come first.
    stage.pause(UNDISTURBED);
    let mut node = Value::Null;
    let is_set = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        node = cluster.admin.node().unwrap_or_default();
        condition(&node, "MonitorMemoryPressure") == Some("True") && taint(&node, "memory").is_some()
    });
    stage.check(is_set, || format!("the node lacks the condition or the taint: {node}"));
    stage.screen("During pressure:");
    show(stage, cluster)?;
    stage.screen("\nAfterwards:");
    Ok(())
}

/// Asserts that the agent clears the condition.
fn node_recovers(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let recovered = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        cluster.admin.node().is_ok_and(|node| condition(&node, "MonitorMemoryPressure") == Some("False"))
    });
    stage.check(recovered, || "the condition was not cleared".to_owned());
    Ok(())
}

/// Asserts that the agent's incidents have the node's name, not that of the agent's pod.
fn incident_names_node(stage: &mut Stage<'_>, scene: &Scene) -> Result<()> {
    let incident = scene.cluster.in_agent(&["incidents", "last"])?;
    let found = (text(&incident["node"]), text(&incident["summary"]).contains(&scene.name));
    stage.check_equal("the last incident's node, and whether it names the pod", &found, &(NODE.to_owned(), true));
    Ok(())
}

/// Asserts that the plugin of kubectl explains the eviction. The plugin finds the node by its Lease, which the agent renews once a minute.
fn plugin_explains(stage: &mut Stage<'_>, scene: &Scene) -> Result<()> {
    let ask = |words: &[&str]| -> Result<String> {
        let mut command = Command::new(agent::PROGRAM);
        command.arg("fleet").args(words).arg("--kubectl").arg(programs::path("kubectl"));
        let output =
            command.arg("--kubeconfig").arg(Cluster::admin_kubeconfig()).output().context("start the plugin")?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &errors)
    };
    let pod = format!("default/{}", scene.name);
    let mut listed = String::new();
    let is_listed = stage.until(TIME_LIMIT, |_| {
        listed = ask(&["incidents", "-A", "--since", "1h"]).unwrap_or_default();
        listed.contains(&pod)
    });
    stage.check(is_listed, || format!("kubectl node-pressure incidents does not list {pod}: {listed}"));
    stage.page(&listed);
    let explanation = ask(&["why", &pod])?;
    stage.check(explanation.contains(&format!("of {pod}, on {NODE}")), || {
        format!("kubectl node-pressure why {pod}: {explanation}")
    });
    stage.page(&explanation);
    let screen = ask(&["top", NODE, "--once"])?;
    stage.check(screen.contains("memory.available"), || format!("kubectl node-pressure top: {screen}"));
    Ok(())
}

/// Asserts that CRI-O's monitors in the pod's cgroup have the `oom_score_adj` that they give themselves: the agent sets only that of the pod's
/// containers. With containerd the pod's cgroup has no monitors.
fn monitors_keep_their_score(stage: &mut Stage<'_>, scene: &Scene) -> Result<()> {
    let id = container_id(&scene.pod)?;
    let monitor = container_of(stage.layout(), &scene.uid, &id)?.sibling(&format!("crio-conmon-{id}.scope"));
    let mut scores = Vec::new();
    for pid in monitor.processes() {
        let path = format!("/proc/{pid}/oom_score_adj");
        scores.push(fs::read_to_string(&path).with_context(|| format!("read {path}"))?.trim().to_owned());
    }
    let expected: &[&str] = if Runtime::here() == Runtime::Crio { &["-1000"] } else { &[] };
    stage.check_equal(
        "oom_score_adj of the runtime's monitors in the pod",
        &scores,
        &expected.iter().map(|&score| score.to_owned()).collect(),
    );
    Ok(())
}

/// The API server is killed at the decision to evict. The request for the pod's status is lost, so the kubelet restarts the pod. The agent leaves
/// the restarted pod alone until it leaks again.
pub fn outage(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, history } = Scene::begin(stage, ENFORCING)?;
    let server = Program::ApiServer.pid()?;
    let worker = leak(stage, &pod)?;
    let is_begun = stage.until(GROWTH_TIME_LIMIT, |_| !agent.events("eviction").is_empty());
    processes::signal(server, libc::SIGKILL);
    Program::ApiServer.stop()?;
    stage.check(is_begun, || format!("no eviction: {}", agent.tail(10).join(" / ")));
    is_killed(stage, &agent, &worker)?;
    stage.pause(API_SERVER_DOWN);
    Program::ApiServer.start()?;
    let noted = stage.until(TIME_LIMIT, |_| !agent.events("eviction_restarted").is_empty());
    stage.check(noted, || format!("no eviction_restarted: {}", agent.tail(10).join(" / ")));
    incident_mentions_restart(stage, (&agent, &agent))?;
    stage.pause(LASTS);
    let after = cluster.admin.pod(&name)?;
    let container = &after["status"]["containerStatuses"][0];
    stage.check_equal("the pod's UID", &text(&after["metadata"]["uid"]), &uid);
    stage.check_equal("the phase of the restarted pod", &text(&after["status"]["phase"]), &"Running".to_owned());
    stage.check_equal("restarts of its container", &container["restartCount"], &Value::from(1));
    let is_left = after["metadata"]["deletionTimestamp"].is_null() && condition(&after, "DisruptionTarget").is_none();
    stage.check(is_left, || format!("the pod was not left alone: {after}"));
    print_since_kill(stage, &agent, &worker, (&history, &uid))?;
    is_evicted_for_a_new_shortage(stage, &cluster, &agent, &after)?;
    tidy(stage, &cluster)
}

/// Lets the restarted pod leak again, with the API server in reach. Asserts that it ends as Failed and Evicted.
fn is_evicted_for_a_new_shortage(stage: &mut Stage<'_>, cluster: &Cluster, agent: &Agent, pod: &Value) -> Result<()> {
    let again = leak(stage, pod)?;
    is_killed(stage, agent, &again)?;
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let restarts = ends_as_evicted(stage, cluster, &name, &uid)?;
    stage.check_equal("restarts of its container, the one of the outage included", &restarts, &1);
    stage.check_equal("eviction records after the new shortage", &agent.events("eviction").len(), &2);
    stage.check_equal("evictions_total{outcome=killed}", &killed_count(agent)?, &2.0);
    ready_pod(stage, cluster, &uid).map(drop)
}

/// Asserts that the incident of the first agent's eviction remains, and that the present agent has added that the kubelet has restarted the pod.
fn incident_mentions_restart(stage: &mut Stage<'_>, (first, present): (&Agent, &Agent)) -> Result<()> {
    let records = first.events("eviction");
    let id = records.first().context("no eviction")?.text("incident").to_owned();
    let mut after = String::new();
    let is_mentioned = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        after = incidents::served(present.address, &id)
            .map(|one| one.text("/eviction/afterwards").to_owned())
            .unwrap_or_default();
        after.contains("it had restarted the pod")
    });
    stage.check(is_mentioned, || format!("incident {id} does not mention the restart: {after:?}"));
    stage.note(format!("incident {id}: {after}"));
    Ok(())
}

/// The agent is killed right after it has killed the pod. The next agent finishes the eviction, or leaves the pod alone if the kubelet has
/// restarted it meanwhile.
pub fn agent_killed(stage: &mut Stage<'_>) -> Result<()> {
    let scene = Scene::begin(stage, ENFORCING)?;
    let Scene { cluster, agent, pod, name, uid, history } = &scene;
    let worker = leak(stage, pod)?;
    is_killed(stage, agent, &worker)?;
    processes::signal(agent.pid, libc::SIGKILL);
    stage.until(TIME_LIMIT, |_| !Path::new(&format!("/proc/{}", agent.pid)).exists());
    let next = cluster.agent(stage)?;
    let finished = |event: &str| next.events(event).iter().any(|record| record.text("pod_uid") == *uid);
    let came = stage.until(TIME_LIMIT, |_| finished("eviction_told") || finished("eviction_restarted"));
    stage.check(came, || format!("the next agent has not finished the eviction: {}", next.tail(10).join(" / ")));
    stage.pause(LASTS);
    if finished("eviction_restarted") {
        stage.note("the kubelet had restarted the pod before it learned of the eviction");
        let after = cluster.admin.pod(name)?;
        stage.check_equal("the phase of the restarted pod", &text(&after["status"]["phase"]), &"Running".to_owned());
        incident_mentions_restart(stage, (agent, &next))?;
    } else if next.events("eviction_note").iter().any(|record| record.text("note").contains(NOT_SEEN)) {
        is_marked_only(stage, &scene, killed_at(stage, agent, &worker)?)?;
    } else {
        let restarts = ends_as_evicted(stage, cluster, name, uid)?;
        // The kubelet may restart the container while the next agent sets the status. The agent then sets the status once
        // more, which ends the container.
        stage.check(restarts <= 1, || format!("the evicted pod's container was restarted {restarts} times"));
        ready_pod(stage, cluster, uid)?;
    }
    let evictions = next.events("eviction").len();
    stage.check_equal("evictions by the next agent", &evictions, &0);
    stage.check_equal("evictions_total{outcome=killed} of the next agent", &killed_count(&next)?, &0.0);
    print_since_kill(stage, agent, &worker, (history, uid))?;
    tidy_after_kills(stage, cluster, 1)
}

/// Asserts that the pod is Failed with the condition `DisruptionTarget`, though its status has lost the reason: the kubelet had finished the pod
/// before it saw the agent's status, which the API server had taken too late.
fn is_marked_only(stage: &mut Stage<'_>, scene: &Scene, killed: u64) -> Result<()> {
    let Scene { cluster, name, uid, .. } = scene;
    let taken = status_taken_ms(killed, name)?;
    stage.note(format!(
        "the API server had taken the status after {taken:.0} ms only, and the kubelet keeps one without the reason"
    ));
    stage.check(taken > IN_TIME_MS, || "the status was in time, and the reason is lost all the same".to_owned());
    let after = cluster.admin.pod(name)?;
    let found = (text(&after["status"]["phase"]), condition(&after, "DisruptionTarget").map(str::to_owned));
    stage.check_equal(
        "the phase and the condition DisruptionTarget",
        &found,
        &("Failed".to_owned(), Some("True".to_owned())),
    );
    stage.check_equal("events Evicted of the pod", &evicted_event_count(cluster, name)?, &1);
    ready_pod(stage, cluster, uid).map(drop)
}

/// The kubelet is stopped while the pod is killed. Once started, the kubelet finds the pod failed, and restarts no container.
pub fn kubelet_restarted(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, history } = Scene::begin(stage, ENFORCING)?;
    Program::Kubelet.stop()?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    stage.pause(KUBELET_DOWN);
    Program::Kubelet.start()?;
    let restarts = ends_as_evicted(stage, &cluster, &name, &uid)?;
    stage.check_equal("restarts of the evicted pod's container", &restarts, &0);
    ready_pod(stage, &cluster, &uid)?;
    is_evicted_once(stage, &cluster, &agent)?;
    print_since_kill(stage, &agent, &worker, (&history, &uid))?;
    tidy(stage, &cluster)
}
