//! The agent beside a real kubelet and a real control plane.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::cluster_eyes::{condition, is_evicted, taint};
use crate::agent::Agent;
use crate::cgroups::{Cgroup, container_of};
use crate::cluster::programs::Program;
use crate::cluster::story::Story;
use crate::cluster::{Cluster, NAME, container_id, is_ready};
use crate::control_plane::NODE;
use crate::evidence::meminfo;
use crate::processes;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, milliseconds_between};

/// The time limit of what a kubelet and controllers do.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a status has to last.
const LASTS: Duration = Duration::from_secs(25);
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(65);
/// How long the kubelet is away: less than the node lifecycle controller waits (40 s).
const KUBELET_AWAY: Duration = Duration::from_secs(15);
const APP: &str = "hog";

/// The agent's hard threshold, above the kubelet's.
const THRESHOLD: &str = "300Mi";

/// A Deployment of one pod, which tolerates nothing.
const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: hog, namespace: default}
spec:
  selector: {matchLabels: {app: hog}}
  template:
    metadata: {labels: {app: hog}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - {name: main, image: \"localhost/busybox:1\", imagePullPolicy: Never, command: [sh, -c, \"while :; do sleep 5; done\"]}
";

pub fn ramp(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    let agent = cluster.deploy(stage, enforcing)?;
    cluster.apply(DEPLOYMENT)?;
    let pod = ready_pod(stage, &cluster, "")?;
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let story = Story::of(&name)?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    ends_as_evicted(stage, &cluster, &name, &uid)?;
    ready_pod(stage, &cluster, &uid)?;
    tell_events(stage, &cluster, &name)?;
    tell_story(stage, &agent, &worker, &story)?;
    stage.page(&cluster.kubectl(&["get", "pods", "-o", "wide"])?);
    stage.page(&cluster.kubectl(&["describe", "node", NODE])?);
    tidy(stage, &cluster)
}

/// The API server is away when the pod is killed, so the kubelet restarts it. What runs again is left alone.
pub fn outage(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    let agent = cluster.deploy(stage, enforcing)?;
    cluster.apply(DEPLOYMENT)?;
    let pod = ready_pod(stage, &cluster, "")?;
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let story = Story::of(&name)?;
    Program::ApiServer.stop()?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    stage.pause(AWAY);
    Program::ApiServer.start()?;
    let noted = stage.until(PATIENCE, |_| !agent.events("eviction_restarted").is_empty());
    stage.check(noted, || format!("no eviction_restarted: {}", agent.tail(10).join(" / ")));
    stage.pause(LASTS);
    let after = cluster.admin.get(&format!("/api/v1/namespaces/default/pods/{name}"))?;
    let container = &after["status"]["containerStatuses"][0];
    stage.check_equal("the pod's UID", &text(&after["metadata"]["uid"]), &uid);
    stage.check_equal("the phase of the restarted pod", &text(&after["status"]["phase"]), &"Running".to_owned());
    stage.check_equal("restarts of its container", &container["restartCount"], &Value::from(1));
    let is_left = after["metadata"]["deletionTimestamp"].is_null() && condition(&after, "DisruptionTarget").is_none();
    stage.check(is_left, || format!("the pod was not left alone: {after}"));
    tell_story(stage, &agent, &worker, &story)?;
    tidy(stage, &cluster)
}

/// The agent dies right after the kill. The next one finishes the eviction, or leaves alone what the kubelet has restarted meanwhile.
pub fn agent_killed(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    let agent = cluster.deploy(stage, enforcing)?;
    cluster.apply(DEPLOYMENT)?;
    let pod = ready_pod(stage, &cluster, "")?;
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let story = Story::of(&name)?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    processes::signal(agent.pid, libc::SIGKILL);
    stage.until(PATIENCE, |_| !Path::new(&format!("/proc/{}", agent.pid)).exists());
    let next = cluster.agent(stage)?;
    let finished = |event: &str| next.events(event).iter().any(|record| record.text("pod_uid") == uid);
    let came = stage.until(PATIENCE, |_| finished("eviction_told") || finished("eviction_restarted"));
    stage.check(came, || format!("the next agent has not finished the eviction: {}", next.tail(10).join(" / ")));
    if finished("eviction_restarted") {
        stage.note("the kubelet had restarted the pod before the next agent was there");
        let after = cluster.admin.get(&format!("/api/v1/namespaces/default/pods/{name}"))?;
        stage.check_equal("the phase of the restarted pod", &text(&after["status"]["phase"]), &"Running".to_owned());
    } else {
        ends_as_evicted(stage, &cluster, &name, &uid)?;
        ready_pod(stage, &cluster, &uid)?;
    }
    let evictions = next.events("eviction").len();
    stage.check_equal("evictions by the next agent", &evictions, &0);
    for chapter in story.chapters() {
        stage.note(chapter.text);
    }
    tidy(stage, &cluster)
}

/// The kubelet is away when the pod is killed. It finds the pod failed, and restarts nothing.
pub fn kubelet_restarted(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    let agent = cluster.deploy(stage, enforcing)?;
    cluster.apply(DEPLOYMENT)?;
    let pod = ready_pod(stage, &cluster, "")?;
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    let story = Story::of(&name)?;
    Program::Kubelet.stop()?;
    let worker = leak(stage, &pod)?;
    is_killed(stage, &agent, &worker)?;
    stage.pause(KUBELET_AWAY);
    Program::Kubelet.start()?;
    ends_as_evicted(stage, &cluster, &name, &uid)?;
    ready_pod(stage, &cluster, &uid)?;
    tell_story(stage, &agent, &worker, &story)?;
    tidy(stage, &cluster)
}

/// Asserts that the agent has killed this worker, and the kernel none.
fn is_killed(stage: &mut Stage<'_>, agent: &Agent, worker: &Worker) -> Result<()> {
    let pid = worker.pid;
    let ended = stage.until(PATIENCE, |stage| stage.reaper.ended(pid).is_some());
    stage.check(ended, || format!("no eviction: {}", agent.tail(10).join(" / ")));
    stage.check_killed(worker);
    stage.check_no_oom_kill()
}

/// Prints what became of the pod since the kill.
fn tell_story(stage: &mut Stage<'_>, agent: &Agent, worker: &Worker, story: &Story) -> Result<()> {
    let (by_agent, _) = stage.signals_of(agent)?;
    let kill = by_agent.iter().find(|signal| signal.number == libc::SIGKILL && signal.target == worker.pid);
    let killed = kill.context("the agent has not killed the leaker")?.at_ns;
    stage.timeline(0.0, "kill signal (signal:signal_generate)");
    for chapter in story.chapters() {
        stage.timeline(milliseconds_between(killed, chapter.at_ns), chapter.text);
    }
    Ok(())
}

/// Removes the workload, and the agent as config/README.md says. Asserts that nothing of the agent stays on the node.
fn tidy(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "deployment", APP, "--wait", "--cascade=foreground"])?;
    cluster.kubectl(&["-n", NAME, "delete", "daemonset", NAME, "--wait", "--cascade=foreground"])?;
    let sweeper = format!("deploy/{NAME}-sweeper");
    let sweep = ["-n", NAME, "exec", &sweeper, "--", "/usr/bin/node-pressure-monitor", "sweep", "--remove"];
    stage.note(cluster.kubectl(&sweep)?.trim());
    cluster.kubectl(&["delete", "-k", "/tmp/manifests", "--ignore-not-found", "--wait"])?;
    let node = cluster.admin.node()?;
    let left = condition(&node, "MonitorMemoryPressure").map(str::to_owned);
    stage.check_equal("what is left of the agent's condition", &left, &None);
    stage.check_equal("what is left of its taint", &taint(&node, "memory"), &None);
    Ok(())
}

/// Changes the shipped configuration: the agent acts, and its condition does not outlast the scenario.
fn enforcing(text: &str) -> String {
    text.replace("mode: observe", "mode: enforce")
        .replace("memory.available: 100Mi", &format!("memory.available: {THRESHOLD}"))
        .replace("evictionPressureTransitionPeriod: 5m", "evictionPressureTransitionPeriod: 3s")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Waits for a ready pod of the Deployment whose UID is not this one.
fn ready_pod(stage: &mut Stage<'_>, cluster: &Cluster, but: &str) -> Result<Value> {
    let mut found = None;
    let came = stage.until(PATIENCE, |_| {
        let pods = cluster.pods_of("default", &format!("app={APP}")).unwrap_or_default();
        found = pods.into_iter().find(|pod| is_ready(pod) && pod["metadata"]["uid"] != but);
        found.is_some()
    });
    stage.check(came, || format!("no ready pod of the Deployment after {PATIENCE:?}"));
    found.context("no ready pod")
}

/// Lets memory leak in the pod's container.
fn leak(stage: &Stage<'_>, pod: &Value) -> Result<Worker> {
    let scope: Cgroup = container_of(stage.layout(), &text(&pod["metadata"]["uid"]), &container_id(pod)?)?;
    let total = meminfo("MemTotal")? / MIB;
    stage.work_in(&scope, APP, &format!("ramp --name hog --rate 60 --to {total} --fast-until 700"), 1000)
}

/// Asserts that the pod is Failed with the reason Evicted, and that this lasts.
fn ends_as_evicted(stage: &mut Stage<'_>, cluster: &Cluster, name: &str, uid: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/default/pods/{name}");
    let has_ended = |pod: &Value| {
        let containers = pod["status"]["containerStatuses"].as_array();
        let are_stopped = containers.is_some_and(|all| all.iter().all(|one| !one["state"]["terminated"].is_null()));
        is_evicted(pod) && are_stopped && pod["metadata"]["uid"] == uid
    };
    let mut last = Value::Null;
    let came = stage.until(PATIENCE, |_| {
        last = cluster.admin.find(&path).ok().flatten().unwrap_or_default();
        has_ended(&last)
    });
    stage.check(came, || format!("the pod did not end as Failed and Evicted: {}", last["status"]));
    stage.pause(LASTS);
    last = cluster.admin.find(&path)?.unwrap_or_default();
    stage.check(has_ended(&last), || format!("this did not last: {}", last["status"]));
    let restarts = &last["status"]["containerStatuses"][0]["restartCount"];
    stage.check_equal("restarts of the evicted pod's container", restarts, &Value::from(0));
    let marked = condition(&last, "DisruptionTarget").map(str::to_owned);
    stage.check_equal("the condition DisruptionTarget", &marked, &Some("True".to_owned()));
    Ok(())
}

/// Asserts that the pod's eviction is told once.
fn tell_events(stage: &mut Stage<'_>, cluster: &Cluster, name: &str) -> Result<()> {
    let list = cluster.admin.get("/api/v1/namespaces/default/events")?;
    let of_pod = |event: &&Value| event["involvedObject"]["name"] == name;
    let events: Vec<&Value> =
        list["items"].as_array().map(Vec::as_slice).unwrap_or_default().iter().filter(of_pod).collect();
    for event in &events {
        stage.note(format!("event {} from {}: {}", event["reason"], event["source"]["component"], event["message"]));
    }
    let evicted: Vec<&&Value> = events.iter().filter(|event| event["reason"] == "Evicted").collect();
    stage.check_equal("events Evicted of the pod", &evicted.len(), &1);
    let names_it = evicted.iter().all(|event| text(&event["message"]).contains("Container main was using "));
    stage.check(names_it, || "the event does not name the container".to_owned());
    Ok(())
}
