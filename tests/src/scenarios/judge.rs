//! The last check of most scenarios: the agent killed the right workload and no other, at the right time.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::agent::{Agent, Record};
use crate::cgroups::Pod;
use crate::evidence::meminfo;
use crate::evidence::trace::SignalEvent;
use crate::processes::Ended;
use crate::sampler::{self, Sample};
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib, milliseconds_between};

/// The default threshold.
pub const THRESHOLD: u64 = 100 * MIB;
/// The time after the eviction in which a second, wrong eviction would appear. It is longer than the agent's cool-down.
const AFTERMATH: Duration = Duration::from_millis(800);

/// One expected eviction.
#[derive(Debug)]
pub struct Expected<'a> {
    pub agent: &'a Agent,
    pub victim: &'a Pod,
    /// Every process of the victim.
    pub victims: &'a [i32],
    pub bystanders: &'a [&'a Worker],
    pub threshold: u64,
}

/// The times of one eviction.
#[derive(Debug)]
pub struct Timing {
    /// The time when the agent's own figure fell below the threshold.
    pub crossed_ns: u64,
    pub first_kill_ns: u64,
    pub last_kill_ns: u64,
    pub record: Record,
    pub curve: Vec<Sample>,
}

/// Waits until the pod has no process.
pub fn wait_gone(stage: &mut Stage<'_>, pod: &Pod, limit: Duration) -> bool {
    let gone = stage.until(limit, |_| pod.cgroup.processes().is_empty());
    stage.check(gone, || format!("{} still has {} processes after {limit:?}", pod.label, pod.cgroup.processes().len()));
    gone
}

/// Waits for the eviction and checks it and the time after it. Returns `None` if the evidence cannot date the eviction.
pub fn eviction(stage: &mut Stage<'_>, expected: &Expected<'_>, limit: Duration) -> Result<Option<Timing>> {
    wait_gone(stage, expected.victim, limit);
    stage.pause(AFTERMATH);
    let curve = stage.boot.sampler.curve();
    let (by_agent, by_others) = stage.signals_of(expected.agent)?;
    check_victims(stage, expected);
    stage.check_alive(expected.bystanders);
    stage.check_no_oom_kill()?;
    check_targets(stage, expected, &by_agent, &by_others);
    let record = check_record(stage, expected);
    let kills: Vec<u64> = by_agent
        .iter()
        .filter(|signal| signal.number == libc::SIGKILL && expected.victims.contains(&signal.target))
        .map(|signal| signal.at_ns)
        .collect();
    let (Some(first_kill_ns), Some(last_kill_ns), Some(record)) =
        (kills.first().copied(), kills.last().copied(), record)
    else {
        return Ok(None);
    };
    check_times(stage, &record, first_kill_ns);
    let crossed = watched_crossing(stage, expected.agent, &curve, expected.threshold)?;
    stage.check(crossed.is_some(), || {
        let lowest = sampler::lowest(&curve).map_or(0.0, mib);
        format!("the curve never passed the threshold: lowest {lowest:.1} MiB")
    });
    if let Some(crossed_ns) = crossed {
        let gap = sampler::longest_gap(&curve, crossed_ns.min(first_kill_ns), crossed_ns.max(first_kill_ns));
        if gap > 20_000_000 {
            let gap = milliseconds_between(0, gap);
            stage.note(format!(
                "no sample for {gap:.0} ms around the crossing: the host starved the guest, or the guest the sampler"
            ));
        }
    }
    Ok(crossed.map(|crossed_ns| Timing { crossed_ns, first_kill_ns, last_kill_ns, record, curve }))
}

fn check_victims(stage: &mut Stage<'_>, expected: &Expected<'_>) {
    for pid in expected.victims {
        let ended = stage.reaper.ended(*pid);
        stage.check(ended == Some(Ended::Signaled(libc::SIGKILL)), || {
            format!("{} (pid {pid}) ended with {ended:?}, not by SIGKILL", expected.victim.label)
        });
    }
}

fn check_targets(stage: &mut Stage<'_>, expected: &Expected<'_>, by_agent: &[SignalEvent], by_others: &[SignalEvent]) {
    let stray: Vec<&SignalEvent> =
        by_agent.iter().filter(|signal| !expected.victims.contains(&signal.target)).collect();
    stage.check(stray.is_empty(), || format!("the agent signalled others than the victim: {stray:?}"));
    let hit = by_agent.iter().any(|signal| signal.number == libc::SIGKILL);
    stage.check(hit, || "the trace has no SIGKILL from the agent".to_owned());
    let bystander_hits: Vec<&SignalEvent> = by_others
        .iter()
        .filter(|signal| expected.bystanders.iter().any(|worker| worker.pid == signal.target))
        .collect();
    stage.check(bystander_hits.is_empty(), || format!("a bystander was signalled: {bystander_hits:?}"));
}

/// Returns the only eviction record. The log and the evidence must name the same workload.
fn check_record(stage: &mut Stage<'_>, expected: &Expected<'_>) -> Option<Record> {
    let evictions: Vec<Record> =
        expected.agent.events("eviction").into_iter().filter(|record| record.text("action") == "kill").collect();
    stage.check_equal("eviction records with action=kill", &evictions.len(), &1);
    let record = evictions.into_iter().next()?;
    stage.check_equal("the evicted workload", &record.text("workload"), &expected.victim.workload());
    stage.check_equal("the record's mode", &record.text("mode"), &"enforce");
    Some(record)
}

fn check_times(stage: &mut Stage<'_>, record: &Record, first_kill_ns: u64) {
    // The trace is accurate to microseconds, and the agent reads the clock one call away from the action.
    const SLACK: u64 = 2_000_000;
    let decided = record.number("decided_mono_ns").unwrap_or(0);
    let acted = record.number("acted_mono_ns").unwrap_or(0);
    stage.check(decided <= first_kill_ns + SLACK && first_kill_ns <= acted + SLACK, || {
        format!("the log says decided at {decided}, acted at {acted}; the trace has the signal at {first_kill_ns}")
    });
}

/// Returns when the agent's figure crossed the threshold. The figure is MemAvailable minus a correction, which is measured in an
/// idle moment from readings of both.
pub fn watched_crossing(stage: &mut Stage<'_>, agent: &Agent, curve: &[Sample], threshold: u64) -> Result<Option<u64>> {
    // A scrape may show a sample that is older than this reading, while exited processes still free memory. The smallest of several
    // differences counts.
    let mut taken_off = f64::MAX;
    for _ in 0..5 {
        let claimed = agent.metrics()?.sum("memory_available_bytes", &[("semantics", "corrected")]);
        let claimed = claimed.context("no memory_available_bytes{semantics=\"corrected\"}")?;
        let difference = mib(meminfo("MemAvailable")?) - claimed / 1_048_576.0;
        if difference.abs() < taken_off.abs() {
            taken_off = difference;
        }
        if taken_off.abs() < 2.0 {
            break;
        }
        stage.pause(Duration::from_millis(100));
    }
    // A figure above MemAvailable would be a wrong reading.
    stage.check(taken_off > -4.0, || format!("the agent's figure is {:.1} MiB above MemAvailable", -taken_off));
    let steps = (0..512_u32).take_while(|step| f64::from(*step) <= taken_off).count();
    // A difference below 5 MiB is the variation between two readings.
    let taken_off = if steps < 5 { 0 } else { u64::try_from(steps).unwrap_or(0) * MIB };
    if taken_off > 0 {
        stage.note(format!("the agent's figure is {:.0} MiB below MemAvailable", mib(taken_off)));
    }
    Ok(sampler::crossing_down(curve, threshold + taken_off, 0))
}

/// Prints the timeline, relative to the crossing.
pub fn timeline(stage: &mut Stage<'_>, timing: &Timing, threshold: u64) -> Result<()> {
    let Timing { crossed_ns, first_kill_ns, last_kill_ns, record, curve } = timing;
    let relative = |at_ns: u64| milliseconds_between(*crossed_ns, at_ns);
    let field = |name: &str| record.number(name).with_context(|| format!("the eviction record has no {name}"));
    let wakeup = record.text("wakeup").to_owned();
    stage.timeline(0.0, format!("memory.available passes {:.0} MiB", mib(threshold)));
    stage.timeline(relative(field("woken_mono_ns")?), format!("the agent wakes up: {wakeup}"));
    stage.timeline(relative(field("sampled_mono_ns")?), "sampled");
    stage.timeline(relative(field("decided_mono_ns")?), format!("decided: {}", record.text("workload")));
    stage.timeline(relative(*first_kill_ns), "kill signal (signal:signal_generate)");
    if last_kill_ns > first_kill_ns {
        stage.timeline(relative(*last_kill_ns), "last kill signal");
    }
    match sampler::crossing_up(curve, threshold, *first_kill_ns) {
        Some(at) => stage.timeline(relative(at), format!("memory.available is back above {:.0} MiB", mib(threshold))),
        None => stage.check(false, || "memory did not come back above the threshold".to_owned()),
    }
    stage.figure("crossing_to_kill_ms", relative(*first_kill_ns), "ms");
    Ok(())
}
