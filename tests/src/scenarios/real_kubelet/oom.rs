//! The kernel kills a pod's processes before the kubelet could evict the pod.

use anyhow::Result;
use serde_json::Value;

use super::ending::tidy;
use super::scene::{BETWEEN_LOOKS, GROWTH_TIME_LIMIT, LASTS, Scene, TIME_LIMIT, events_in, text, work};
use super::set_ups::{WITHOUT_EVICTION, restart_kubelet, restart_until_ready};
use crate::agent::{Agent, Record};
use crate::cluster::programs::Program;
use crate::cluster::{Cluster, NAME};
use crate::evidence::meminfo;
use crate::processes;
use crate::stage::{Stage, Worker};
use crate::units::MIB;

/// A pod takes all memory at once on a node whose agent observes. The agent names the pod; the node's event `SystemOOM` is the kubelet's alone.
pub fn oom(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, .. } = Scene::begin(stage, "")?;
    // Without the kubelet's eviction the kernel's OOM killer acts first.
    restart_until_ready(stage, &cluster, WITHOUT_EVICTION)?;
    let total = meminfo("MemTotal")? / MIB;
    let worker = work(stage, &pod, &format!("ramp --name hog --rate max --to {total}"))?;
    let ended = stage.until(GROWTH_TIME_LIMIT, |stage| stage.reaper.ended(worker.pid).is_some());
    let victims = stage.oom_reports();
    let of_workload = processes::threads(worker.pid).join("; ");
    stage.check(ended, || {
        format!("the kernel has not ended pid {}: {of_workload}; its victims: {victims:?}", worker.pid)
    });
    stage.check_killed(&worker);
    let kills = stage.oom_kills()?;
    stage.check(kills > 0, || "there was no OOM kill".to_owned());
    is_attributed(stage, &agent, &worker, &format!("default/{name}"));
    let events = Events(&cluster);
    let is_reported = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        events.has("Pod", ("OOMKilling", NAME), &name) && events.has("Node", ("OOMKilling", NAME), &name)
    });
    stage.check(is_reported, || format!("events of the agent: {}", events.about_oom().join("; ")));
    // An earlier kill of the boot has an event of its own.
    let victim = format!("pid: {}", worker.pid);
    let by_kubelet = stage.until(LASTS, |stage| {
        stage.pause(BETWEEN_LOOKS);
        events.has("Node", ("SystemOOM", "kubelet"), &victim)
    });
    if !by_kubelet {
        // On slow machines the kubelet has sent no event. The kubelet reads the kernel's log, and reports the kills that it finds there.
        stage
            .note(format!("the kubelet has not reported the kill; its log: {}", Program::Kubelet.tail(10).join(" / ")));
    }
    events.about_oom().iter().for_each(|event| stage.note(format!("event {event}")));
    let reporters: Vec<Value> = events_in(&cluster, "default")?
        .into_iter()
        .filter(|event| event["reason"] == "SystemOOM")
        .map(|event| event["source"]["component"].clone())
        .collect();
    stage.check(!reporters.contains(&NAME.into()), || format!("events SystemOOM come from {reporters:?}"));
    tidy(stage, &cluster)?;
    restart_kubelet(stage, "", || true)
}

/// The events of the namespace `default`, read again for each call.
struct Events<'c>(&'c Cluster);

impl Events<'_> {
    /// Returns whether there is an event about an object of this kind, with this reason, from this component, and with these words.
    fn has(&self, kind: &str, (reason, component): (&str, &str), words: &str) -> bool {
        self.all().iter().any(|event| {
            event["involvedObject"]["kind"] == kind
                && event["reason"] == reason
                && event["source"]["component"] == component
                && text(&event["message"]).contains(words)
        })
    }

    fn about_oom(&self) -> Vec<String> {
        let lines = self.all().into_iter().map(|event| format!("{} {}", event["reason"], event["message"]));
        lines.filter(|line| line.contains("OOM")).collect()
    }

    fn all(&self) -> Vec<Value> {
        events_in(self.0, "default").unwrap_or_default()
    }
}

/// Asserts that the agent has recorded the kill, with the pod of the process.
fn is_attributed(stage: &mut Stage<'_>, agent: &Agent, worker: &Worker, pod: &str) {
    let is_of_worker = |record: &Record| record.number("victim_pid") == u64::try_from(worker.pid).ok();
    let mut records = Vec::new();
    stage.until(TIME_LIMIT, |_| {
        records = agent.events("oom_kill");
        records.iter().any(is_of_worker)
    });
    let pods: Vec<&str> =
        records.iter().filter(|record| is_of_worker(record)).map(|record| record.text("pod")).collect();
    stage.check_equal("the pod of the kernel's victim, by the agent", &pods, &vec![pod]);
}
