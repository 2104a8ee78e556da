//! The kernel kills a pod's processes before the kubelet could evict the pod.

use anyhow::Result;
use serde_json::Value;

use super::ending::tidy;
use super::scene::{BETWEEN_LOOKS, PATIENCE, Scene, events_of, work};
use crate::agent::{Agent, Record};
use crate::cluster::NAME;
use crate::control_plane::NODE;
use crate::evidence::meminfo;
use crate::processes;
use crate::stage::{Stage, Worker};
use crate::units::MIB;

/// A pod takes all memory at once on a node whose agent observes. The agent names the pod; the node's event `SystemOOM` is the kubelet's alone.
pub fn oom(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, .. } = Scene::begin(stage, "")?;
    let total = meminfo("MemTotal")? / MIB;
    let worker = work(stage, &pod, &format!("ramp --name hog --rate max --to {total}"))?;
    let ended = stage.until(PATIENCE, |stage| stage.reaper.ended(worker.pid).is_some());
    let victims = stage.oom_reports();
    let of_workload = processes::threads(worker.pid).join("; ");
    stage.check(ended, || {
        format!("the kernel has not ended pid {}: {of_workload}; its victims: {victims:?}", worker.pid)
    });
    stage.check_killed(&worker);
    let kills = stage.oom_kills()?;
    stage.check(kills > 0, || "there was no OOM kill".to_owned());
    is_attributed(stage, &agent, &worker, &format!("default/{name}"));
    let by = |object: &str, reason: &str, component: &str| -> usize {
        let is_it = |event: &Value| event["reason"] == reason && event["source"]["component"] == component;
        events_of(&cluster, object).map_or(0, |events| events.into_iter().filter(is_it).count())
    };
    let told = stage.until(PATIENCE, |stage| {
        stage.pause(BETWEEN_LOOKS);
        by(&name, "OOMKilling", NAME) > 0 && by(NODE, "SystemOOM", "kubelet") > 0
    });
    let found = [events_of(&cluster, &name)?, events_of(&cluster, NODE)?].concat();
    let found: Vec<String> = found.iter().map(|event| format!("{} {}", event["reason"], event["message"])).collect();
    stage.check(told, || format!("events of the pod and the node: {}", found.join("; ")));
    stage.check_equal("events SystemOOM by the agent", &by(NODE, "SystemOOM", NAME), &0);
    for event in found.iter().filter(|event| event.contains("OOM")) {
        stage.note(format!("event {event}"));
    }
    tidy(stage, &cluster)
}

/// Asserts that the agent has told the kill, and of which pod the process was.
fn is_attributed(stage: &mut Stage<'_>, agent: &Agent, worker: &Worker, pod: &str) {
    let its = |record: &Record| record.number("victim_pid") == u64::try_from(worker.pid).ok();
    let mut records = Vec::new();
    stage.until(PATIENCE, |_| {
        records = agent.events("oom_kill");
        records.iter().any(its)
    });
    let pods: Vec<&str> = records.iter().filter(|record| its(record)).map(|record| record.text("pod")).collect();
    stage.check_equal("the pod of the kernel's victim, by the agent", &pods, &vec![pod]);
}
