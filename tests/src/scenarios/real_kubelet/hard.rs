//! Evictions for a hard threshold of memory, with everything that may be away meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::{show, tidy, tidy_after_kills};
use super::lease;
use super::scene::{
    BETWEEN_LOOKS, ENFORCING, GROWTH, IN_TIME_MS, LASTS, PATIENCE, Scene, ends_as_evicted, evictions_told,
    is_evicted_and_replaced, is_evicted_once, is_killed, is_set_up, killed_at, killed_count, leak, ready_pod,
    status_taken_ms, tell_story, text,
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

/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(65);
/// How long the kubelet is away after the kill. If the node lifecycle controller takes the node for dead meanwhile, the pod ends all the same.
const KUBELET_AWAY: Duration = Duration::from_secs(15);
/// The agent's note about a pod whose status has lost the reason `Evicted`.
const NOT_SEEN: &str = "may not be seen as evicted";
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
    node_tells(stage, &scene.cluster)?;
    is_evicted_and_replaced(stage, &scene, &worker)?;
    waited_for_taint(stage, killed_at(stage, &scene.agent, &worker)?, &scene.name)?;
    run_on(stage, &others);
    node_recovers(stage, &scene.cluster)?;
    plugin_explains(stage, &scene)?;
    lease::counts_one_more(stage, &scene.cluster, before)?;
    lease::tells(stage, &scene.cluster, &scene.name)?;
    incident_names_node(stage, &scene)?;
    tidy(stage, &scene.cluster)
}

/// Asserts that the node has the condition and the taint, and prints how kubectl shows them.
fn node_tells(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    // kubectl takes seconds of CPU time under emulation: the requests after the kill come first.
    stage.pause(UNDISTURBED);
    let mut node = Value::Null;
    let told = stage.until(PATIENCE, |stage| {
        stage.pause(BETWEEN_LOOKS);
        node = cluster.admin.node().unwrap_or_default();
        condition(&node, "MonitorMemoryPressure") == Some("True") && taint(&node, "memory").is_some()
    });
    stage.check(told, || format!("the node has not the condition and the taint: {node}"));
    stage.screen("During pressure:");
    show(stage, cluster)?;
    stage.screen("\nAfterwards:");
    Ok(())
}

/// Waits until the node has no pressure, and prints it.
fn node_recovers(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let recovered = stage.until(PATIENCE, |stage| {
        stage.pause(BETWEEN_LOOKS);
        cluster.admin.node().is_ok_and(|node| condition(&node, "MonitorMemoryPressure") == Some("False"))
    });
    stage.check(recovered, || "the condition was not cleared".to_owned());
    Ok(())
}

/// Asserts that the agent's incidents have the node's name, not that of the agent's pod.
fn incident_names_node(stage: &mut Stage<'_>, scene: &Scene) -> Result<()> {
    let incident = scene.cluster.in_agent(&["incidents", "last"])?;
    let told = (text(&incident["node"]), text(&incident["summary"]).contains(&scene.name));
    stage.check_equal("the last incident's node, and whether it is of the pod", &told, &(NODE.to_owned(), true));
    Ok(())
}

/// Asks the plugin of kubectl about the eviction. The Lease, which is renewed once a minute, leads to the node.
fn plugin_explains(stage: &mut Stage<'_>, scene: &Scene) -> Result<()> {
    let ask = |words: &[&str]| -> Result<String> {
        let mut command = Command::new(agent::PROGRAM);
        command.arg("fleet").args(words).arg("--kubectl").arg(programs::path("kubectl"));
        let output =
            command.arg("--kubeconfig").arg(Cluster::admin_kubeconfig()).output().context("start the plugin")?;
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &why)
    };
    let pod = format!("default/{}", scene.name);
    let mut listed = String::new();
    let is_listed = stage.until(PATIENCE, |_| {
        listed = ask(&["incidents", "-A", "--since", "1h"]).unwrap_or_default();
        listed.contains(&pod)
    });
    stage.check(is_listed, || format!("kubectl node-pressure incidents does not list {pod}: {listed}"));
    stage.page(&listed);
    let story = ask(&["why", &pod])?;
    stage
        .check(story.contains(&format!("of {pod}, on {NODE}")), || format!("kubectl node-pressure why {pod}: {story}"));
    stage.page(&story);
    let screen = ask(&["top", NODE, "--once"])?;
    stage.check(screen.contains("memory.available"), || format!("kubectl node-pressure top: {screen}"));
    Ok(())
}

/// Asserts that CRI-O's monitors in the pod's cgroup have the `oom_score_adj` that they give themselves: the agent sets that of the pod's
/// containers. Without CRI-O there are none.
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

/// The API server goes away right after the pod is killed, and the request for its status is lost, so the kubelet restarts the pod. The
/// restarted pod is left alone until it leaks again.
pub fn outage(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, story } = Scene::begin(stage, ENFORCING)?;
    let server = Program::ApiServer.pid()?;
    let worker = leak(stage, &pod)?;
    let is_begun = stage.until(GROWTH, |_| !agent.events("eviction").is_empty());
    processes::signal(server, libc::SIGKILL);
    Program::ApiServer.stop()?;
    stage.check(is_begun, || format!("no eviction: {}", agent.tail(10).join(" / ")));
    is_killed(stage, &agent, &worker)?;
    stage.pause(AWAY);
    Program::ApiServer.start()?;
    let noted = stage.until(PATIENCE, |_| !agent.events("eviction_restarted").is_empty());
    stage.check(noted, || format!("no eviction_restarted: {}", agent.tail(10).join(" / ")));
    incident_says_restarted(stage, &agent)?;
    stage.pause(LASTS);
    let after = cluster.admin.pod(&name)?;
    let container = &after["status"]["containerStatuses"][0];
    stage.check_equal("the pod's UID", &text(&after["metadata"]["uid"]), &uid);
    stage.check_equal("the phase of the restarted pod", &text(&after["status"]["phase"]), &"Running".to_owned());
    stage.check_equal("restarts of its container", &container["restartCount"], &Value::from(1));
    let is_left = after["metadata"]["deletionTimestamp"].is_null() && condition(&after, "DisruptionTarget").is_none();
    stage.check(is_left, || format!("the pod was not left alone: {after}"));
    tell_story(stage, &agent, &worker, (&story, &uid))?;
    is_evicted_for_a_new_shortage(stage, &cluster, &agent, &after)?;
    tidy(stage, &cluster)
}

/// Lets the restarted pod leak again, with the API server in reach. Asserts that it ends as Failed and Evicted.
fn is_evicted_for_a_new_shortage(stage: &mut Stage<'_>, cluster: &Cluster, agent: &Agent, pod: &Value) -> Result<()> {
    let again = leak(stage, pod)?;
    is_killed(stage, agent, &again)?;
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let restarts = ends_as_evicted(stage, cluster, &name, &uid)?;
    // The first is that of the outage. Another follows if the API server takes the status late.
    stage.check((1..=2).contains(&restarts), || format!("{restarts} restarts after the new shortage"));
    stage.check_equal("eviction records after the new shortage", &agent.events("eviction").len(), &2);
    stage.check_equal("evictions_total{outcome=killed}", &killed_count(agent)?, &2.0);
    ready_pod(stage, cluster, &uid).map(drop)
}

/// Asserts that the incident of the eviction says that the pod runs again, and stays.
fn incident_says_restarted(stage: &mut Stage<'_>, agent: &Agent) -> Result<()> {
    let records = agent.events("eviction");
    let id = records.first().context("no eviction")?.text("incident").to_owned();
    let mut after = String::new();
    let says = stage.until(PATIENCE, |stage| {
        stage.pause(BETWEEN_LOOKS);
        after = incidents::served(agent.address, &id)
            .map(|one| one.text("/eviction/afterwards").to_owned())
            .unwrap_or_default();
        after.contains("it had restarted the pod")
    });
    stage.check(says, || format!("incident {id} says: {after:?}"));
    stage.note(format!("incident {id}: {after}"));
    Ok(())
}

/// The agent dies right after the kill. The next one finishes the eviction, or leaves alone what the kubelet has restarted meanwhile.
pub fn agent_killed(stage: &mut Stage<'_>) -> Result<()> {
    let scene = Scene::begin(stage, ENFORCING)?;
    let Scene { cluster, agent, pod, name, uid, story } = &scene;
    let worker = leak(stage, pod)?;
    is_killed(stage, agent, &worker)?;
    processes::signal(agent.pid, libc::SIGKILL);
    stage.until(PATIENCE, |_| !Path::new(&format!("/proc/{}", agent.pid)).exists());
    let next = cluster.agent(stage)?;
    let finished = |event: &str| next.events(event).iter().any(|record| record.text("pod_uid") == *uid);
    let came = stage.until(PATIENCE, |_| finished("eviction_told") || finished("eviction_restarted"));
    stage.check(came, || format!("the next agent has not finished the eviction: {}", next.tail(10).join(" / ")));
    stage.pause(LASTS);
    if finished("eviction_restarted") {
        stage.note("the kubelet had restarted the pod before it learned of the eviction");
        let after = cluster.admin.pod(name)?;
        stage.check_equal("the phase of the restarted pod", &text(&after["status"]["phase"]), &"Running".to_owned());
    } else if next.events("eviction_note").iter().any(|record| record.text("note").contains(NOT_SEEN)) {
        is_marked_only(stage, &scene, killed_at(stage, agent, &worker)?)?;
    } else {
        let restarts = ends_as_evicted(stage, cluster, name, uid)?;
        // The kubelet may restart the container while the next agent sets the status; the status set once more ends it.
        stage.check(restarts <= 1, || format!("the evicted pod's container was restarted {restarts} times"));
        ready_pod(stage, cluster, uid)?;
    }
    let evictions = next.events("eviction").len();
    stage.check_equal("evictions by the next agent", &evictions, &0);
    stage.check_equal("evictions_total{outcome=killed} of the next agent", &killed_count(&next)?, &0.0);
    tell_story(stage, agent, &worker, (story, uid))?;
    tidy_after_kills(stage, cluster, 1)
}

/// Asserts that the pod has failed and is marked as evicted, though its status has lost the reason for good: the kubelet was through with the
/// pod before it saw the agent's status, which the API server had taken too late.
fn is_marked_only(stage: &mut Stage<'_>, scene: &Scene, killed: u64) -> Result<()> {
    let Scene { cluster, name, uid, .. } = scene;
    let taken = status_taken_ms(killed, name)?;
    stage.note(format!(
        "the API server had taken the status after {taken:.0} ms only, and the kubelet keeps one without the reason"
    ));
    stage.check(taken > IN_TIME_MS, || "the status was in time, and the reason is lost all the same".to_owned());
    let after = cluster.admin.pod(name)?;
    let found = (text(&after["status"]["phase"]), condition(&after, "DisruptionTarget").map(str::to_owned));
    stage.check_equal("the phase and the mark", &found, &("Failed".to_owned(), Some("True".to_owned())));
    stage.check_equal("events Evicted of the pod", &evictions_told(cluster, name)?, &1);
    ready_pod(stage, cluster, uid).map(drop)
}

/// The kubelet is away when the pod is killed. It finds the pod failed, and restarts nothing.
pub fn kubelet_restarted(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, story } = Scene::begin(stage, ENFORCING)?;
    Program::Kubelet.stop()?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    stage.pause(KUBELET_AWAY);
    Program::Kubelet.start()?;
    let restarts = ends_as_evicted(stage, &cluster, &name, &uid)?;
    stage.check_equal("restarts of the evicted pod's container", &restarts, &0);
    ready_pod(stage, &cluster, &uid)?;
    is_evicted_once(stage, &cluster, &agent)?;
    tell_story(stage, &agent, &worker, (&story, &uid))?;
    tidy(stage, &cluster)
}
