//! The times of an eviction from the moment at which available memory crosses the threshold.

use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::Value;

use super::scene::APP;
use crate::agent::{Agent, Record};
use crate::cluster::audit::{self, Request, monotonic_at};
use crate::cluster::{Cluster, is_ready};
use crate::control_plane::NODE;
use crate::sampler::{Sample, crossing_down};
use crate::scenarios::cluster_eyes::{condition, sets_taint};
use crate::stage::Stage;
use crate::units::{mib, milliseconds_between, monotonic_ns, nanoseconds};

/// The most time from a decision to its kill.
const DECIDED_BEFORE: Duration = Duration::from_secs(2);
/// If a kill comes later than this after the crossing, the reasons are printed.
const LATE: Duration = Duration::from_secs(1);
/// The longest time from a sample to a measurement of the agent with which it is compared: a machine that pauses samples nothing.
const BESIDE: Duration = Duration::from_millis(100);
/// The number of steps in which available memory is printed for a late kill.
const POINTS: u64 = 8;
/// The number of the agent's records that are printed for a late kill.
const RECORDS: usize = 12;
/// How long the status of an evicted pod waits for the taint.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// A pod that is evicted, and the Deployment or the like that has it.
#[derive(Debug, Clone, Copy)]
pub struct Victim<'a> {
    pub app: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

impl<'a> Victim<'a> {
    /// The pod of the Deployment that leaks in most scenarios.
    pub const fn hog(name: &'a str, uid: &'a str) -> Self {
        Self { app: APP, name, uid }
    }
}

/// Does as [`record_times`], and records the time from the crossing to the kill in milliseconds, for the scenario's only or first eviction for
/// memory.
pub fn record_first_times(stage: &mut Stage<'_>, agent: &Agent, killed: u64, victim: Victim<'_>) -> Result<()> {
    if let Some(ms) = record_times(stage, agent, Some(killed), victim)? {
        stage.figure("crossing_to_kill_ms", ms, "ms");
    }
    Ok(())
}

/// Prints and records when each step of an eviction for memory came, and prints why a kill was late. Returns the time from the crossing to the
/// kill in milliseconds. Without a kill by the agent the Eviction API has ended the pod.
pub fn record_times(
    stage: &mut Stage<'_>,
    agent: &Agent,
    killed: Option<u64>,
    victim: Victim<'_>,
) -> Result<Option<f64>> {
    let records = agent.records();
    let curve = stage.boot.sampler.curve();
    let of_victim = records.iter().position(|record| record.is("eviction") && record.is_of_pod(victim.uid));
    let Some((record, before)) = of_victim.and_then(|at| records.get(..=at)?.split_last()) else {
        stage.note(format!("the agent has no record of an eviction of {}", victim.name));
        return Ok(None);
    };
    let crossing = || {
        let (threshold, correction) = (record.number("threshold_bytes")?, correction(&curve, record)?);
        Some((crossing_down(&curve, threshold + correction, 0)?, threshold, correction))
    };
    let Some((crossed, threshold, correction)) = crossing() else {
        stage.note("the sampler has not seen the crossing");
        return Ok(None);
    };
    let what = format!("memory.available fell below {:.0} MiB", mib(threshold));
    record_steps(stage, &what, (crossed, killed), "MonitorMemoryPressure", victim)?;
    let Some(killed) = killed else { return Ok(None) };
    if killed.saturating_sub(crossed) > nanoseconds(LATE) {
        stage.note(format!("the kill was late; {}", available_before_kill(&curve, crossed, killed, correction)));
        since_threshold_met(before).for_each(|record| stage.note(format!("agent: {record}")));
    }
    Ok(Some(milliseconds_between(crossed, killed)))
}

/// Prints in one line when each step of an eviction came since the crossing, as seen by the kernel's trace of signals and the API server's log.
/// Records the seconds of each step as the figure `since_crossing/APP/STEP`. A step that did not come is left out.
pub fn record_steps(
    stage: &mut Stage<'_>,
    what: &str,
    (crossed, killed): (u64, Option<u64>),
    kind: &str,
    victim: Victim<'_>,
) -> Result<()> {
    let (cluster, requests) = (Cluster::of(stage)?, audit::requests()?);
    let by_agent = by_agent_since(&requests, crossed);
    let first = |is_it: &dyn Fn(&Request) -> bool| {
        by_agent.iter().copied().find(|request| is_it(request)).map(|request| request.answered_ns)
    };
    let node_status = format!("nodes/status/{NODE}");
    let is_condition = |one: &Request| one.object == node_status && condition(&one.body, kind) == Some("True");
    let is_event = |one: &Request| {
        one.verb == "create" && one.body["reason"] == "Evicted" && one.body["involvedObject"]["uid"] == victim.uid
    };
    let request = format!("pods/eviction/default/{}", victim.name);
    let steps = [
        ("kill", killed),
        ("condition", first(&is_condition)),
        ("taint", first(&is_taint)),
        ("status", first(&|one| one.is_status_of(victim.name))),
        ("Eviction API", first(&|one| one.object == request)),
        ("event", first(&is_event)),
        // Kubernetes has this time in whole seconds.
        ("replacement", replacement_ready(&cluster, crossed, victim)?),
    ];
    let mut printed = Vec::new();
    for (step, at) in steps {
        let Some(at) = at else { continue };
        let seconds = milliseconds_between(crossed, at) / 1000.0;
        printed.push(format!("{step} after {seconds:.2} s"));
        stage.figure(format!("since_crossing/{}/{step}", victim.app), seconds, "s");
    }
    stage.note(format!("{}: {what}; {}", victim.app, printed.join(", ")));
    Ok(())
}

/// Returns `MemAvailable` at a few times between these two, which may explain a late kill: the agent's correction for refaulting pages is known
/// for the decision only, and may have been smaller before.
fn available_before_kill(curve: &[Sample], from: u64, to: u64, correction: u64) -> String {
    let times = (0..=POINTS).map(|point| from + (to - from) / POINTS * point);
    let samples = times.filter_map(|at| curve.iter().rfind(|sample| sample.at_ns <= at));
    let one = |sample: &Sample| {
        let before = milliseconds_between(sample.at_ns, to) / 1000.0;
        format!("{:.0} MiB {before:.1} s before", mib(sample.available))
    };
    let points: Vec<String> = samples.map(one).collect();
    format!("MemAvailable: {}; the agent's correction at the decision: {:.0} MiB", points.join(", "), mib(correction))
}

/// Returns the first records since the agent last found the threshold of memory met: they show the reason for which an eviction waited.
fn since_threshold_met(records: &[Record]) -> impl Iterator<Item = &Record> {
    let is_met = |record: &Record| record.is("threshold_met") && record.text("signal") == "memory.available";
    let first = records.iter().rposition(is_met).unwrap_or(records.len());
    records.iter().skip(first).take(RECORDS)
}

/// Asserts that the status of the pod that was killed at `killed` waited for the node's taint, or for [`LONGEST_WAIT`]: a controller creates the
/// replacement as soon as the pod is Failed.
pub fn waited_for_taint(stage: &mut Stage<'_>, killed: u64, pod: &str) -> Result<()> {
    let requests = audit::requests()?;
    let taint = taint_of(&requests, killed)?;
    let status =
        first_since_decision(&requests, killed, |one| one.is_status_of(pod)).context("no status of the pod")?;
    let is_answered = taint.answered_ns <= status.arrived_ns;
    let has_waited = status.arrived_ns.saturating_sub(killed) >= nanoseconds(LONGEST_WAIT);
    stage.check(is_answered || has_waited, || "the pod's status did not wait for the taint".to_owned());
    // Under emulation the handshake of a new connection may take longer than the status waits.
    stage.note(match (is_answered, taint.arrived_ns <= status.arrived_ns) {
        (true, _) => "the taint was there before the status",
        (false, true) => "the status had waited for the taint, which was on its way",
        (false, false) => "the status had waited for the taint, which came after it",
    });
    Ok(())
}

/// Returns whether the taint was set before the replacement of the pod that was killed at `killed` was created. No other pod may be created
/// meanwhile.
pub fn taint_came_before_replacement(killed: u64) -> Result<bool> {
    let requests = audit::requests()?;
    // The API server generates the name of a controller's pod, and this log does not have it.
    let is_creation = |one: &&Request| one.verb == "create" && one.object == "pods/default" && one.arrived_ns >= killed;
    let creation = requests.iter().find(is_creation).context("no pod was created after the kill")?;
    Ok(taint_of(&requests, killed)?.answered_ns <= creation.arrived_ns)
}

/// Returns the request that has set the taint for the eviction with this kill.
fn taint_of(requests: &[Request], killed: u64) -> Result<&Request> {
    first_since_decision(requests, killed, is_taint).context("no taint")
}

/// Returns the agent's first request of this kind since the decision to this kill.
fn first_since_decision(requests: &[Request], killed: u64, is_it: impl Fn(&Request) -> bool) -> Option<&Request> {
    by_agent_since(requests, killed.saturating_sub(nanoseconds(DECIDED_BEFORE))).into_iter().find(|one| is_it(one))
}

/// Returns the agent's requests that were answered at or after this time.
fn by_agent_since(requests: &[Request], since: u64) -> Vec<&Request> {
    requests.iter().filter(|request| request.is_done_by_agent() && request.answered_ns >= since).collect()
}

/// Returns whether this request of the agent has set a taint of the node.
pub fn is_taint(request: &Request) -> bool {
    request.is_done_by_agent() && request.object == format!("nodes/{NODE}") && sets_taint(&request.body)
}

/// Returns by how much the agent's figure was below `MemAvailable` at the agent's own measurement, if the sampler has measured just before.
fn correction(curve: &[Sample], record: &Record) -> Option<u64> {
    let (sampled, available) = (record.number("sampled_mono_ns")?, record.number("available_bytes")?);
    let beside = curve.iter().rfind(|sample| sample.at_ns <= sampled)?;
    (sampled - beside.at_ns <= nanoseconds(BESIDE)).then(|| beside.available.saturating_sub(available))
}

/// Returns when the pod that replaces this one became ready. Other pods were ready before.
fn replacement_ready(cluster: &Cluster, crossed: u64, Victim { app, uid, .. }: Victim<'_>) -> Result<Option<u64>> {
    let pods = cluster.pods_of("default", &format!("app={app}"))?;
    let others = pods.iter().filter(|other| other["metadata"]["uid"] != uid).filter_map(ready_since);
    Ok(others.filter(|at| *at >= crossed).min())
}

/// Returns since when a pod is ready, to the second.
pub fn ready_since(pod: &Value) -> Option<u64> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").filter(|_| is_ready(pod))?;
    let at: Timestamp = ready["lastTransitionTime"].as_str()?.parse().ok()?;
    Some(monotonic_at(at, (Timestamp::now(), monotonic_ns())))
}
