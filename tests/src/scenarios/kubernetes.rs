//! The agent on a cluster's node: what it writes to the API server about an eviction and an OOM kill, and when.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cluster_eyes::{Seen, condition, is_evicted, taint};
use super::judge::{self, THRESHOLD};
use super::pressure::{EVERYTHING_MIB, PACED_BELOW_MIB, RATE_MIB};
use crate::config::AgentConfig;
use crate::containers::{Node, Storage};
use crate::control_plane::{ControlPlane, Kubelet, NODE};
use crate::reference::EMULATED_READS;
use crate::sampler;
use crate::stage::Stage;
use crate::units::{MIB, mib, milliseconds_between};

/// The limit from the crossing to the kill, on the reference machine; 27 ms were measured.
const KILL_MS: f64 = 500.0;
/// The limit from the crossing to a write at the API server; 130 to 490 ms were measured. Requests use TLS, and two guests share
/// two emulated processors.
const WRITE_MS: f64 = 3000.0;
const SLEEP: &str = "while :; do sleep 5; done";

pub fn kubernetes(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let plane = ControlPlane::start()?;
    let kubelet = Kubelet::start(&plane)?;
    let around = (&plane, &node, &*stage);
    let (quiet, _) = kubelet.run(around, "quiet", &json!({"requests": {"memory": "64Mi"}}), SLEEP)?;
    let (hog, container) = kubelet.run(around, "hog", &json!({}), SLEEP)?;
    let agent = stage.agent(&config(&plane)?)?;
    let seen = Seen { plane: &plane, agent: &agent };
    seen.pods(stage, 2);
    seen.eventually(stage, "MonitorMemoryPressure is False", |plane| {
        Ok(condition(&plane.node()?, "MonitorMemoryPressure") == Some("False"))
    });

    stage.boot.sampler.start();
    let work = format!("ramp --name hog --rate {RATE_MIB} --to {EVERYTHING_MIB} --fast-until {PACED_BELOW_MIB}");
    let worker = stage.work_in(&hog.scope(stage.layout(), &container), "hog", &work, 1000)?;
    let gone = stage.until(Duration::from_secs(40), |_| hog.is_gone());
    stage.check(gone, || "the hog still lives after 40 s".to_owned());
    seen.eventually(stage, "the pod is Failed and Evicted", |plane| Ok(is_evicted(&plane.pod("hog")?)));
    seen.eventually(stage, "MonitorMemoryPressure is False again, and the taint gone", |plane| {
        let node = plane.node()?;
        Ok(condition(&node, "MonitorMemoryPressure") == Some("False") && taint(&node, "memory").is_none())
    });
    stage.check_killed(&worker);
    stage.check_no_oom_kill()?;
    let runs = quiet.is_running()?;
    stage.check(runs, || "the quiet pod does not run any more".to_owned());
    let restarts = kubelet.restarts(&hog);
    // The kubelet may list its containers between the kill and the patch.
    stage.check(restarts <= 1, || format!("the kubelet has started the evicted pod's container {restarts} times"));

    written_in_time(stage, &seen)?;
    event_of_the_eviction(stage, &seen, &hog.uid)?;
    let killed = agent.metrics()?.sum("evictions_total", &[("outcome", "killed")]).unwrap_or(0.0);
    stage.check_equal("evictions_total{outcome=killed}", &killed, &1.0);
    oom_kill(stage, &seen, (&kubelet, &node))?;

    stage.stop(&agent);
    let left = plane.node()?;
    let conditions = left["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let stale: Vec<&Value> = conditions.iter().filter(|one| one["type"].as_str().is_some_and(is_ours)).collect();
    stage.check(stale.is_empty(), || format!("an agent that was stopped leaves conditions behind: {stale:?}"));
    for trouble in kubelet.troubles() {
        stage.note(format!("kubelet: {trouble}"));
    }
    drop(kubelet);
    drop(node);
    Ok(())
}

fn is_ours(kind: &str) -> bool {
    kind.starts_with("Monitor")
}

fn config(plane: &ControlPlane) -> Result<AgentConfig> {
    let kubeconfig = plane.kubeconfig()?;
    let extra = format!("kubernetes: {{kubeconfig: {}, nodeName: {NODE}, heartbeat: 10s}}\n", kubeconfig.display());
    // The agent would never write a condition that is shorter than a request.
    Ok(AgentConfig { extra, transition: "3s", ..AgentConfig::default() })
}

/// Checks and prints the timeline from the crossing to each write at the API server.
fn written_in_time(stage: &mut Stage<'_>, seen: &Seen<'_>) -> Result<()> {
    let curve = stage.boot.sampler.curve();
    let (by_agent, _) = stage.signals_of(seen.agent)?;
    let kill = by_agent.iter().find(|signal| signal.number == libc::SIGKILL).context("the agent killed no process")?;
    let crossed = judge::watched_crossing(stage, seen.agent, &curve, THRESHOLD)?;
    let crossed = crossed.context("what the agent watches never passed the threshold")?;
    let relative = |at_ns: u64| milliseconds_between(crossed, at_ns);
    stage.timeline(0.0, format!("memory.available passes {:.0} MiB", mib(THRESHOLD)));
    stage.timeline(relative(kill.at_ns), "kill signal (signal:signal_generate)");
    let patience = EMULATED_READS.slowness()?.patience();
    let mut steps: Vec<(f64, &str)> = Vec::new();
    for (key, what, at) in [
        ("crossing_to_condition_ms", "PATCH nodes/status: MonitorMemoryPressure True", seen.condition("True")),
        ("crossing_to_taint_ms", "PATCH nodes: taint node-pressure-monitor/memory-pressure", seen.taint()),
        ("crossing_to_failed_ms", "PATCH pods/status: Failed, Evicted, DisruptionTarget", seen.failed("hog")),
        ("crossing_to_event_ms", "POST events: Evicted", seen.event("Evicted")),
    ] {
        stage.check(at.is_some(), || format!("the API server has not seen: {what}"));
        let Some(at) = at.map(relative) else { continue };
        stage.figure(key, at, "ms");
        stage.check(at < WRITE_MS * patience, || format!("{what}: {at:.0} ms after the crossing"));
        steps.push((at, what));
    }
    let kill_ms = relative(kill.at_ns);
    stage.figure("crossing_to_kill_ms", kill_ms, "ms");
    stage.check(kill_ms < KILL_MS * patience, || format!("killed {kill_ms:.0} ms after the crossing"));
    let lowest = sampler::lowest(&curve).map_or(0.0, mib);
    stage.figure("lowest_available", lowest, "MiB");
    steps.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (at, what) in steps {
        stage.timeline(at, what);
    }
    Ok(())
}

/// Compares the agent's event with the kubelet's event.
fn event_of_the_eviction(stage: &mut Stage<'_>, seen: &Seen<'_>, uid: &str) -> Result<()> {
    let events = seen.events_of("hog", "Evicted")?;
    stage.check_equal("events Evicted of the pod", &events.len(), &1);
    let Some(event) = events.first() else { return Ok(()) };
    stage.note(format!("event: {}", event["message"].as_str().unwrap_or_default()));
    stage.check_equal("the event's type", &event["type"].as_str(), &Some("Warning"));
    stage.check_equal("the event's pod", &event["involvedObject"]["uid"].as_str(), &Some(uid));
    let message = event["message"].as_str().unwrap_or_default();
    let says = message.contains("low on resource: memory");
    stage.check(says, || format!("the event's message is {message:?}"));
    stage.check_equal(
        "the event's annotation starved_resource",
        &event["metadata"]["annotations"]["starved_resource"].as_str(),
        &Some("memory"),
    );
    Ok(())
}

/// Provokes an OOM kill of one process in a container that continues to run.
fn oom_kill(stage: &mut Stage<'_>, seen: &Seen<'_>, (kubelet, node): (&Kubelet, &Node)) -> Result<()> {
    let (small, container) = kubelet.run((seen.plane, node, stage), "small", &json!({}), SLEEP)?;
    // The evicted pod is still listed.
    seen.pods(stage, 3);
    let scope = small.scope(stage.layout(), &container);
    scope.limit(24 * MIB)?;
    let worker = stage.work_in(&scope, "glutton", "hold --name glutton --mib 64", 1000)?;
    let killed = stage.until(Duration::from_secs(20), |stage| stage.reaper.ended(worker.pid).is_some());
    stage.check(killed, || "the kernel killed no process".to_owned());
    seen.eventually(stage, "an event OOMKilling on the pod", |_| {
        Ok(!seen.events_of("small", "OOMKilling")?.is_empty())
    });
    let runs = small.is_running()?;
    stage.check(runs, || "the container did not survive".to_owned());
    if let Some(event) = seen.events_of("small", "OOMKilling")?.first() {
        let message = event["message"].as_str().unwrap_or_default();
        stage.note(format!("event: {message}"));
        stage.check(message.contains("glutton"), || format!("the event does not name the process: {message:?}"));
        stage.check_equal("the event's pod", &event["involvedObject"]["uid"].as_str(), &Some(small.uid.as_str()));
    }
    Ok(())
}
