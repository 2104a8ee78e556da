//! Several pods of a Deployment leak at once.

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::tidy;
use super::scene::{
    BETWEEN_LOOKS, ENFORCING, LASTS, TIME_LIMIT, dead_pods, deploy, end, events_in, evicted_event_count, has_ended,
    killed_at, killed_count, start_many, text, work,
};
use super::times::{Victim, record_first_times};
use crate::agent::Agent;
use crate::cluster::Cluster;
use crate::evidence::meminfo;
use crate::stage::{Stage, Worker};
use crate::units::MIB;

const SWARM: &str = "swarm";
const PODS: u32 = 8;
/// The number of pods that have to be evicted: all pods but these have room above the threshold, with half a pod to spare.
const NEEDED: usize = 2;
/// The agent's threshold in the variant that enforces, in MiB.
const THRESHOLD: u64 = 200;
/// The growth of one pod in MiB a second.
const RATE: u64 = 4;

/// A pod that leaks, and the process in it.
struct Leaker {
    name: String,
    uid: String,
    worker: Worker,
}

pub fn swarm(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    let agent = deploy(stage, &cluster, ENFORCING, str::to_owned)?;
    let pods = start_many(stage, &cluster, SWARM, PODS)?;
    let room = meminfo("MemAvailable")? / MIB - THRESHOLD;
    let each = room * 2 / 13;
    stage.note(format!("{PODS} pods leak up to {each} MiB each, and {room} MiB are available above the threshold"));
    stage.boot.sampler.start();
    let leakers = pods.iter().map(|pod| leaker(stage, pod, each)).collect::<Result<Vec<_>>>()?;
    let evicted = evictions_end(stage, &agent, &leakers)?;
    are_dead(stage, &cluster, &agent, &evicted)?;
    let Leaker { name, uid, worker } = evicted.first().context("nothing was evicted")?;
    record_first_times(stage, &agent, killed_at(stage, &agent, worker)?, Victim { app: SWARM, name, uid })?;
    stage.page(&cluster.kubectl(&["get", "pods", "-o", "wide"])?);
    is_no_more_than_needed(stage, evicted.len());
    each_is_reported_once(stage, &cluster, &evicted)?;
    stage.check_equal(
        "evictions_total{outcome=killed}",
        &killed_count(&agent)?,
        &f64::from(u32::try_from(evicted.len())?),
    );
    // In a scenario before this one the kubelet may have evicted pods, and rejected some.
    let is_of_leaker = |event: &Value| leakers.iter().any(|leaker| event["involvedObject"]["uid"] == leaker.uid);
    let is_by_kubelet = |event: &&Value| {
        event["reason"] == "Evicted" && event["source"]["component"] == "kubelet" && is_of_leaker(event)
    };
    let by_kubelet = events_in(&cluster, "default")?.iter().filter(is_by_kubelet).count();
    stage.check_equal("evictions by the kubelet", &by_kubelet, &0);
    stage.check_no_oom_kill()?;
    for leaker in &leakers {
        if !evicted.iter().any(|other| other.uid == leaker.uid) {
            stage.check_alive(&[&leaker.worker]);
        }
        end(stage, &leaker.worker);
    }
    tidy(stage, &cluster)
}

fn leaker(stage: &Stage<'_>, pod: &Value, mib: u64) -> Result<Leaker> {
    let worker = work(stage, pod, &format!("ramp --name {SWARM} --rate {RATE} --to {mib} --fast-until 700"))?;
    Ok(Leaker { name: text(&pod["metadata"]["name"]), uid: text(&pod["metadata"]["uid"]), worker })
}

/// Waits for the first eviction and until no other has come for a while. Returns the pods that the agent's records name.
fn evictions_end<'l>(stage: &mut Stage<'_>, agent: &Agent, leakers: &'l [Leaker]) -> Result<Vec<&'l Leaker>> {
    let begun = stage.until(TIME_LIMIT * 2, |_| !agent.events("eviction").is_empty());
    stage.boot.sampler.stop();
    stage.check(begun, || format!("no eviction: {}", agent.tail(10).join(" / ")));
    loop {
        let before = agent.events("eviction").len();
        stage.pause(LASTS);
        if agent.events("eviction").len() == before {
            break;
        }
    }
    let mut evicted = Vec::new();
    for record in agent.events("eviction") {
        let leaker = leakers.iter().find(|leaker| record.is_of_pod(&leaker.uid));
        let leaker = leaker.with_context(|| format!("the agent has evicted {}", record.text("workload")))?;
        stage.note(format!("evicted: {}", leaker.name));
        evicted.push(leaker);
    }
    Ok(evicted)
}

/// Asserts that each evicted pod is Failed and Evicted without a restart, and that this lasts.
fn are_dead(stage: &mut Stage<'_>, cluster: &Cluster, agent: &Agent, evicted: &[&Leaker]) -> Result<()> {
    let is_dead = |leaker: &&Leaker| found(cluster, leaker).is_some_and(|pod| has_ended(&pod, &leaker.uid));
    let ended = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        evicted.iter().all(is_dead)
    });
    stage.check(ended, || format!("not all evicted pods are Failed and Evicted: {}", agent.tail(20).join(" / ")));
    stage.pause(LASTS);
    stage.check(evicted.iter().all(is_dead), || "Failed and Evicted did not last".to_owned());
    let pods = dead_pods(cluster)?;
    stage.check_equal("dead pods, by the agent's records", &pods.len(), &evicted.len());
    for pod in pods {
        let (name, status) = (text(&pod["metadata"]["name"]), &pod["status"]["containerStatuses"][0]);
        stage.note(format!("{name}: its container's last state {}", status["state"]));
        stage.check_equal(&format!("{name}: restarts of its container"), &status["restartCount"], &Value::from(0));
    }
    Ok(())
}

fn found(cluster: &Cluster, leaker: &Leaker) -> Option<Value> {
    cluster.admin.find_pod(&leaker.name).ok().flatten()
}

fn is_no_more_than_needed(stage: &mut Stage<'_>, evicted: usize) {
    stage.check((1..=NEEDED).contains(&evicted), || format!("{evicted} pods were evicted, and {NEEDED} had to go"));
}

fn each_is_reported_once(stage: &mut Stage<'_>, cluster: &Cluster, evicted: &[&Leaker]) -> Result<()> {
    for leaker in evicted {
        let what = format!("events Evicted of {}", leaker.name);
        stage.check_equal(&what, &evicted_event_count(cluster, &leaker.name)?, &1);
        let records = evicted.iter().filter(|other| other.uid == leaker.uid).count();
        stage.check_equal(&format!("eviction records of {}", leaker.name), &records, &1);
    }
    Ok(())
}
