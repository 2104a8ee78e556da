//! A Deployment whose pod leaks on a node with the agent, and the checks that all scenarios share.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::times::{Victim, record_first_times};
use crate::agent::Agent;
use crate::cgroups::{Cgroup, container_of};
use crate::cluster::audit::{self, Client, Request};
use crate::cluster::pod_history::PodHistory;
use crate::cluster::{Cluster, container_id, is_ready};
use crate::containers::storage::KUBELET;
use crate::evidence::meminfo;
use crate::processes;
use crate::scenarios::cluster_eyes::{condition, is_evicted};
use crate::stage::{Stage, Worker};
use crate::units::{MIB, milliseconds_between, nanoseconds};

/// The time limit of an action of the kubelet or a controller.
pub const TIME_LIMIT: Duration = Duration::from_secs(120);
/// The time limit of a workload that takes the node's memory.
pub const GROWTH_TIME_LIMIT: Duration = Duration::from_secs(360);
/// How long a status has to last.
pub const LASTS: Duration = Duration::from_secs(25);
/// The pause between two requests to the API server, which is slow under emulation.
pub const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// The time after a kill in which requests are printed.
const PRINTED_FOR: Duration = Duration::from_secs(15);
pub const APP: &str = "hog";

/// The variant of the manifests with the agent in mode enforce, its thresholds above the kubelet's.
pub const ENFORCING: &str = "first";

/// Lengthens the transition period beyond a scenario: a condition lasts.
pub fn long_pressure(text: &str) -> String {
    text.replace("evictionPressureTransitionPeriod: 5m", "evictionPressureTransitionPeriod: 30m")
}

/// Returns a pod's specification with further fields, in YAML's flow style.
pub fn pod_spec(fields: &str) -> String {
    let main = "{name: main, image: localhost/busybox:1, imagePullPolicy: Never, \
                command: [sh, -c, 'while :; do sleep 5; done'], volumeMounts: [{name: data, mountPath: /data}]}";
    let volumes = "[{name: data, emptyDir: {}}]";
    format!("{{terminationGracePeriodSeconds: 5, containers: [{main}], volumes: {volumes}, {fields}}}")
}

/// Returns the template of a controller's pods.
pub fn template(app: &str, fields: &str) -> String {
    format!("{{metadata: {{labels: {{app: {app}}}}}, spec: {}}}", pod_spec(fields))
}

/// Returns a Deployment whose pods have these further fields.
fn deployment(app: &str, replicas: u32, fields: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {app}, namespace: default}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {app}}}}}
  template: {}
",
        template(app, fields)
    )
}

/// A cluster with the agent, and a ready pod of a Deployment.
pub struct Scene {
    pub cluster: Rc<Cluster>,
    pub agent: Agent,
    pub pod: Value,
    pub name: String,
    pub uid: String,
    pub history: PodHistory,
}

impl Scene {
    /// Deploys this variant of the manifests. The agent's conditions do not outlast the scenario.
    pub fn begin(stage: &mut Stage<'_>, variant: &str) -> Result<Self> {
        Self::with(stage, variant, str::to_owned)
    }

    /// Deploys this variant of the manifests with a change of its configuration.
    pub fn with(stage: &mut Stage<'_>, variant: &str, change: impl Fn(&str) -> String) -> Result<Self> {
        let cluster = Cluster::of(stage)?;
        let agent = deploy(stage, &cluster, variant, change)?;
        let pod = start(stage, &cluster, APP)?;
        stage.note("the pod is ready");
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let history = PodHistory::of(&name)?;
        Ok(Self { cluster, agent, pod, name, uid, history })
    }
}

/// Deploys this variant of the manifests with a change of its configuration. The agent's conditions do not outlast the scenario.
pub fn deploy(
    stage: &mut Stage<'_>,
    cluster: &Cluster,
    variant: &str,
    change: impl Fn(&str) -> String,
) -> Result<Agent> {
    let brief = |text: &str| {
        let period = "evictionPressureTransitionPeriod:";
        change(text).replace(&format!("{period} 5m"), &format!("{period} 3s"))
    };
    let agent = cluster.deploy(stage, variant, brief)?;
    stage.note("the agent is ready");
    Ok(agent)
}

/// Asserts that the agent has evicted the leaking pod, once and without a restart, and that a replacement runs. Prints the pod's history.
pub fn is_evicted_and_replaced(stage: &mut Stage<'_>, scene: &Scene, worker: &Worker) -> Result<()> {
    let Scene { cluster, agent, name, uid, history, .. } = scene;
    is_killed(stage, agent, worker)?;
    let restarts = ends_as_evicted(stage, cluster, name, uid)?;
    stage.check_equal("restarts of the evicted pod's container", &restarts, &0);
    record_status_times(stage, agent, worker, name)?;
    // The history explains why there is no replacement, so it is printed before this result is checked.
    let replaced = ready_pod(stage, cluster, uid);
    print_since_kill(stage, agent, worker, (history, uid))?;
    replaced?;
    is_evicted_once(stage, cluster, agent)?;
    check_evicted_event(stage, cluster, name)
}

/// Creates a Deployment, and waits for its pod.
pub fn start(stage: &mut Stage<'_>, cluster: &Cluster, app: &str) -> Result<Value> {
    start_with(stage, cluster, app, "")
}

/// Creates a Deployment whose pod has these further fields, and waits for the pod.
pub fn start_with(stage: &mut Stage<'_>, cluster: &Cluster, app: &str, fields: &str) -> Result<Value> {
    cluster.apply(&deployment(app, 1, fields))?;
    ready_pod_of(stage, cluster, app, "")
}

/// Creates a Deployment of several pods, and waits for all of them.
pub fn start_many(stage: &mut Stage<'_>, cluster: &Cluster, app: &str, replicas: u32) -> Result<Vec<Value>> {
    cluster.apply(&deployment(app, replicas, ""))?;
    let mut pods = Vec::new();
    let came = stage.until(TIME_LIMIT * 3, |stage| {
        stage.pause(BETWEEN_LOOKS);
        pods = cluster.pods_of("default", &format!("app={app}")).unwrap_or_default();
        pods.iter().filter(|pod| is_ready(pod)).count() == replicas as usize
    });
    stage.check(came, || format!("not {replicas} ready pods of {app}: {}", statuses(&pods)));
    Ok(pods)
}

/// Asserts that the agent has recorded and counted one eviction, and that one pod is dead.
pub fn is_evicted_once(stage: &mut Stage<'_>, cluster: &Cluster, agent: &Agent) -> Result<()> {
    stage.check_equal("the agent's eviction records", &agent.events("eviction").len(), &1);
    stage.check_equal("evictions_total{outcome=killed}", &killed_count(agent)?, &1.0);
    stage.check_equal("pods that are Failed and Evicted", &dead_pods(cluster)?.len(), &1);
    Ok(())
}

/// Returns the number of evictions that the agent has counted.
pub fn killed_count(agent: &Agent) -> Result<f64> {
    Ok(agent.metrics()?.sum("evictions_total", &[("outcome", "killed")]).unwrap_or(0.0))
}

/// Returns the pods of the namespace `default` that were evicted. Pods that the kubelet does not admit under pressure are Failed and Evicted, too,
/// without the condition `DisruptionTarget`.
pub fn dead_pods(cluster: &Cluster) -> Result<Vec<Value>> {
    let list = cluster.admin.get("/api/v1/namespaces/default/pods")?;
    let is_dead = |pod: &&Value| is_evicted(pod) && condition(pod, "DisruptionTarget") == Some("True");
    Ok(list["items"].as_array().into_iter().flatten().filter(is_dead).cloned().collect())
}

/// Asserts that the agent has killed this worker, and that there was no OOM kill.
pub fn is_killed(stage: &mut Stage<'_>, agent: &Agent, worker: &Worker) -> Result<()> {
    let pid = worker.pid;
    let ended = stage.until(GROWTH_TIME_LIMIT, |stage| stage.reaper.ended(pid).is_some());
    stage.boot.sampler.stop();
    stage.check(ended, || format!("no eviction: {}", agent.tail(10).join(" / ")));
    stage.check_killed(worker);
    stage.check_no_oom_kill()
}

/// Prints the steps of the eviction of the pod with this history and UID, and records the time from the crossing to the kill.
pub fn print_since_kill(
    stage: &mut Stage<'_>,
    agent: &Agent,
    worker: &Worker,
    (history, uid): (&PodHistory, &str),
) -> Result<()> {
    let killed = killed_at(stage, agent, worker)?;
    stage.timeline(0.0, "kill signal (signal:signal_generate)");
    record_first_times(stage, agent, killed, Victim::hog(&history.pod, uid))?;
    print_since(stage, killed, history)
}

/// Prints the present pods, and since this time the changes of the pod's status and the requests of the agent and the kubelet.
pub fn print_since(stage: &mut Stage<'_>, since: u64, history: &PodHistory) -> Result<()> {
    stage.page(&Cluster::of(stage)?.kubectl(&["get", "pods", "-o", "wide"])?);
    let mut lines: Vec<(u64, String)> =
        history.changes().into_iter().map(|change| (change.at_ns, change.text)).collect();
    let is_near = |at: u64| at >= since && at - since <= nanoseconds(PRINTED_FOR);
    for request in audit::requests()?.into_iter().filter(|request| is_near(request.arrived_ns)) {
        let client = match request.by {
            Client::Agent => "agent",
            Client::Kubelet => "kubelet",
            Client::Other => continue,
        };
        let took = milliseconds_between(request.arrived_ns, request.answered_ns);
        let (verb, object, code) = (request.verb, request.object, request.code);
        lines.push((request.arrived_ns, format!("{client}: {verb} {object}, answered {code} in {took:.0} ms")));
    }
    lines.sort();
    for (at, text) in lines {
        stage.timeline(milliseconds_between(since, at), text);
    }
    Ok(())
}

/// Asserts that `doctor` in the agent's pod finds this division of work with the kubelet.
pub fn is_set_up(stage: &mut Stage<'_>, cluster: &Cluster, name: &str) -> Result<()> {
    // A kubelet that was just started does not listen yet.
    let mut answer = Ok(Value::Null);
    stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        answer = cluster.in_agent(&["doctor"]);
        answer.is_ok()
    });
    let answer = answer?;
    let set_up = &answer["setUp"];
    stage.note(format!("doctor: {set_up}"));
    stage.check_equal("the set-up by doctor", &text(&set_up["name"]), &name.to_owned());
    Ok(())
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Waits for a ready pod of the Deployment that leaks whose UID is not this one.
pub fn ready_pod(stage: &mut Stage<'_>, cluster: &Cluster, but: &str) -> Result<Value> {
    ready_pod_of(stage, cluster, APP, but)
}

/// Waits for a ready pod of a Deployment whose UID is not this one.
pub fn ready_pod_of(stage: &mut Stage<'_>, cluster: &Cluster, app: &str, but: &str) -> Result<Value> {
    let (mut found, mut seen) = (None, Vec::new());
    let came = stage.until(TIME_LIMIT, |_| {
        seen = cluster.pods_of("default", &format!("app={app}")).unwrap_or_default();
        found = seen.iter().find(|pod| is_ready(pod) && pod["metadata"]["uid"] != but).cloned();
        found.is_some()
    });
    stage.check(came, || format!("no ready pod of {app} after {TIME_LIMIT:?}: {}", statuses(&seen)));
    found.context("no ready pod")
}

/// Returns names and statuses, for a failure.
fn statuses(pods: &[Value]) -> String {
    pods.iter()
        .map(|pod| format!("{} {}", text(&pod["metadata"]["name"]), pod["status"]))
        .collect::<Vec<_>>()
        .join("; ")
}

/// Lets memory leak in the pod's container, and samples the available memory until [`is_killed`] returns.
pub fn leak(stage: &Stage<'_>, pod: &Value) -> Result<Worker> {
    stage.boot.sampler.start();
    let total = meminfo("MemTotal")? / MIB;
    work(stage, pod, &format!("ramp --name {APP} --rate 60 --to {total} --fast-until 700"))
}

/// Starts a workload in the pod's container: in its cgroup, and in its pid namespace, which ends when the kubelet stops the container.
pub fn work(stage: &Stage<'_>, pod: &Value, work: &str) -> Result<Worker> {
    let scope: Cgroup = container_of(stage.layout(), &text(&pod["metadata"]["uid"]), &container_id(pod)?)?;
    let init = *scope.processes().first().context("the container has no process")?;
    children_go_to(&format!("/proc/{init}/ns/pid"))?;
    let worker = stage.work_in(&scope, APP, work, 1000);
    children_go_to("/proc/self/ns/pid")?;
    worker
}

/// Returns the path of a file in the volume of the pod with this UID.
pub fn volume_file(uid: &str, name: &str) -> String {
    format!("{KUBELET}/pods/{uid}/volumes/kubernetes.io~empty-dir/data/{name}")
}

/// Ends a workload. The container's first process cannot exit before this process has collected those of its pid namespace, so a kubectl that
/// waits for the pod would wait for ever.
pub fn end(stage: &mut Stage<'_>, worker: &Worker) {
    let pid = worker.pid;
    if stage.reaper.ended(pid).is_none() {
        processes::signal(pid, libc::SIGKILL);
    }
    let ended = stage.until(TIME_LIMIT, |stage| stage.reaper.ended(pid).is_some());
    stage.check(ended, || format!("{} does not end", worker.label));
}

/// Selects the pid namespace of this thread's children.
fn children_go_to(namespace: &str) -> Result<()> {
    let file = File::open(namespace).with_context(|| format!("open {namespace}"))?;
    // SAFETY: setns reads an open file descriptor.
    let answer = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWPID) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()).with_context(|| format!("setns {namespace}")) }
}

/// Returns whether this is the pod with this UID, Failed and Evicted, and no container of it runs.
pub fn has_ended(pod: &Value, uid: &str) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array();
    let are_stopped = containers.is_some_and(|all| all.iter().all(|one| !one["state"]["terminated"].is_null()));
    is_evicted(pod) && are_stopped && pod["metadata"]["uid"] == uid
}

/// Returns whether the kubelet has written that the pod has failed. Before that, the kubelet may write the phase Running once more.
fn is_acknowledged(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["reason"] == "PodFailed")
}

/// Asserts that the pod is Failed with the reason Evicted, and that this lasts once the kubelet has acknowledged it. Returns the number of
/// restarts of its container.
pub fn ends_as_evicted(stage: &mut Stage<'_>, cluster: &Cluster, name: &str, uid: &str) -> Result<u64> {
    let mut last = Value::Null;
    let came = stage.until(TIME_LIMIT, |_| {
        last = cluster.admin.find_pod(name).ok().flatten().unwrap_or_default();
        has_ended(&last, uid) && is_acknowledged(&last)
    });
    stage.check(came, || format!("the pod did not end as Failed and Evicted: {}", last["status"]));
    stage.pause(LASTS);
    last = cluster.admin.find_pod(name)?.unwrap_or_default();
    stage.check(has_ended(&last, uid), || format!("Failed and Evicted did not last: {}", last["status"]));
    let disruption_target = condition(&last, "DisruptionTarget").map(str::to_owned);
    stage.check_equal("the condition DisruptionTarget", &disruption_target, &Some("True".to_owned()));
    last["status"]["containerStatuses"][0]["restartCount"].as_u64().context("a container without a count of restarts")
}

/// Records the times from the kill to the request of the pod's status, and to its answer.
fn record_status_times(stage: &mut Stage<'_>, agent: &Agent, worker: &Worker, name: &str) -> Result<()> {
    let killed = killed_at(stage, agent, worker)?;
    let first = status_written(killed, name)?;
    stage.figure("kill_to_status_sent_ms", milliseconds_between(killed, first.arrived_ns), "");
    stage.figure("kill_to_status_taken_ms", milliseconds_between(killed, first.answered_ns), "");
    Ok(())
}

/// Returns when the API server had taken the first status of the pod since the kill, in milliseconds since then.
pub fn status_taken_ms(killed: u64, name: &str) -> Result<f64> {
    Ok(milliseconds_between(killed, status_written(killed, name)?.answered_ns))
}

/// Returns the agent's first request since the kill that has set the pod's status.
fn status_written(killed: u64, name: &str) -> Result<Request> {
    let is_it =
        |request: &Request| request.is_done_by_agent() && request.is_status_of(name) && request.arrived_ns >= killed;
    audit::requests()?.into_iter().find(is_it).context("the agent has not written the pod's status")
}

/// Returns when the agent sent SIGKILL to this worker.
pub fn killed_at(stage: &Stage<'_>, agent: &Agent, worker: &Worker) -> Result<u64> {
    let (by_agent, _) = stage.signals_of(agent)?;
    let kill = by_agent.iter().find(|signal| signal.number == libc::SIGKILL && signal.target == worker.pid);
    Ok(kill.context("the agent has not killed the leaker")?.at_ns)
}

/// Prints the pod's events. Asserts that one of them reports the eviction and names the container.
pub fn check_evicted_event(stage: &mut Stage<'_>, cluster: &Cluster, name: &str) -> Result<()> {
    let events = events_of(cluster, name)?;
    for event in &events {
        stage.note(format!("event {} from {}: {}", event["reason"], event["source"]["component"], event["message"]));
    }
    let evicted: Vec<&Value> = events.iter().filter(|event| event["reason"] == "Evicted").collect();
    stage.check_equal("events Evicted of the pod", &evicted.len(), &1);
    let names_container = evicted.iter().all(|event| text(&event["message"]).contains("Container main was using "));
    stage.check(names_container, || "the event does not name the container".to_owned());
    Ok(())
}

/// Returns the events about the object with this name.
pub fn events_of(cluster: &Cluster, name: &str) -> Result<Vec<Value>> {
    let events = events_in(cluster, "default")?.into_iter();
    Ok(events.filter(|event| event["involvedObject"]["name"] == name).collect())
}

/// Returns the events of a namespace.
pub fn events_in(cluster: &Cluster, namespace: &str) -> Result<Vec<Value>> {
    let list = cluster.admin.get(&format!("/api/v1/namespaces/{namespace}/events"))?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Returns the sum of the counts of the events with this reason about an object from a component.
pub fn event_count(cluster: &Cluster, about: &str, by: &str, reason: &str) -> Result<u64> {
    let is_it = |event: &&Value| event["reason"] == reason && event["source"]["component"] == by;
    Ok(events_of(cluster, about)?.iter().filter(is_it).map(|event| event["count"].as_u64().unwrap_or(1)).sum())
}

/// Returns the number of events Evicted about the pod with this name.
pub fn evicted_event_count(cluster: &Cluster, name: &str) -> Result<usize> {
    Ok(events_of(cluster, name)?.iter().filter(|event| event["reason"] == "Evicted").count())
}
