//! The kernel kills a pod's processes before the kubelet could evict the pod.

use anyhow::Result;

use super::ending::tidy;
use super::scene::{BETWEEN_LOOKS, GROWTH, PATIENCE, Scene, events_of, text, work};
use super::set_ups::{WITHOUT_EVICTION, restart_kubelet};
use crate::agent::{Agent, Record};
use crate::cluster::programs::Program;
use crate::cluster::{NAME, is_ready};
use crate::control_plane::NODE;
use crate::evidence::meminfo;
use crate::processes;
use crate::stage::{Stage, Worker};
use crate::units::MIB;

/// A pod takes all memory at once on a node whose agent observes. The agent names the pod; the node's event `SystemOOM` is the kubelet's alone.
pub fn oom(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, .. } = Scene::begin(stage, "")?;
    // The kernel comes first then.
    restart_kubelet(stage, WITHOUT_EVICTION, || cluster.admin.node().is_ok_and(|node| is_ready(&node)))?;
    let total = meminfo("MemTotal")? / MIB;
    let worker = work(stage, &pod, &format!("ramp --name hog --rate max --to {total}"))?;
    let ended = stage.until(GROWTH, |stage| stage.reaper.ended(worker.pid).is_some());
    let victims = stage.oom_reports();
    let of_workload = processes::threads(worker.pid).join("; ");
    stage.check(ended, || {
        format!("the kernel has not ended pid {}: {of_workload}; its victims: {victims:?}", worker.pid)
    });
    stage.check_killed(&worker);
    let kills = stage.oom_kills()?;
    stage.check(kills > 0, || "there was no OOM kill".to_owned());
    is_attributed(stage, &agent, &worker, &format!("default/{name}"));
    let mut found = Vec::new();
    // An earlier kill of the boot has events of its own.
    let victim = format!("pid: {}", worker.pid);
    let told = stage.until(PATIENCE, |stage| {
        stage.pause(BETWEEN_LOOKS);
        let events = |object| events_of(&cluster, object).unwrap_or_default();
        found = [events(&name), events(NODE)].concat();
        let is_told = |kind: &str, reason: &str, component: &str, words: &str| {
            found.iter().any(|event| {
                event["involvedObject"]["kind"] == kind
                    && event["reason"] == reason
                    && event["source"]["component"] == component
                    && text(&event["message"]).contains(words)
            })
        };
        is_told("Pod", "OOMKilling", NAME, "")
            && is_told("Node", "OOMKilling", NAME, &name)
            && is_told("Node", "SystemOOM", "kubelet", &victim)
    });
    let found = found.iter().map(|event| format!("{} {}", event["reason"], event["message"]));
    let found: Vec<String> = found.filter(|event| event.contains("OOM")).collect();
    stage.check(told, || {
        let log = Program::Kubelet.tail(10).join(" / ");
        format!("events of the pod and the node: {}; the kubelet: {log}", found.join("; "))
    });
    found.iter().for_each(|event| stage.note(format!("event {event}")));
    tidy(stage, &cluster)?;
    restart_kubelet(stage, "", || true)
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
