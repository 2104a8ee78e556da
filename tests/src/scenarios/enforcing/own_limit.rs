//! Stalls of a workload at its own limit are no sign that the node lacks memory (siderolabs/talos#13746 and #13895).

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::super::cache::mounted;
use super::{Crowd, config, note_evictions};
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::meminfo;
use crate::init::EXT4;
use crate::stage::Stage;
use crate::units::MIB;

/// The time for which one workload thrashes beside a threshold that is met.
const THRASHES: Duration = Duration::from_secs(10);
/// The agent arms a threshold by the stalls of a second.
const WINDOW: Duration = Duration::from_secs(1);
/// The share of a second for which all tasks have to wait to arm a threshold. With less the scenario shows nothing.
const ARMS_AT_PERCENT: f64 = 10.0;

/// A threshold is met when the agent starts, one pod reads a file larger than its limit over and over, and another does nothing. An agent that
/// judges by the stalls of the whole machine arms the threshold and evicts the idle pod, which is the largest.
pub fn own_limit(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let mut crowd = Crowd::default();
    let idle = crowd.hold(stage, "idle", PodSpec::best_effort(), 530)?;
    let available = meminfo("MemAvailable")? / MIB;
    // No second agent of this boot may know the threshold: what was armed stays armed over a restart. It is below half of the capacity, or
    // nothing would arm it, and far enough above what is available that neither the agent nor the thrashing pod takes a quarter of that.
    let threshold_kib = (available + 60) * 1024 + u64::from(stage.next_pod());
    let capacity_kib = meminfo("MemTotal")? / 1024;
    stage.check(threshold_kib < capacity_kib / 2, || {
        format!("a threshold of {threshold_kib} KiB is above half of {capacity_kib} KiB")
    });
    let lock = format!("lockFile: /tmp/own-limit-{threshold_kib}.lock\n");
    let agent = stage.agent(&AgentConfig { hard: Some(format!("{threshold_kib}Ki")), extra: lock, ..config() })?;
    let unarmed = stage.until(Duration::from_secs(10), |_| !agent.events("threshold_unarmed").is_empty());
    stage.check(unarmed, || "the threshold was not met at the agent's start".to_owned());
    let pod = stage.pod("thrashing", PodSpec::best_effort())?;
    pod.container()?.limit(8 * MIB)?;
    let work = format!("memcg-stall --name thrashing --file {EXT4}/own-limit --mib 48");
    let thrashing = crowd.pod(pod, stage, &work)?;
    let highest = highest_stall_percent(stage)?;
    stage.figure("memory_full_highest", highest, "%");
    nothing_is_armed(stage, &agent)?;
    stage.check_alive(&[&idle, &thrashing]);
    stage.check_no_oom_kill()?;
    if highest <= ARMS_AT_PERCENT {
        stage.skip(format_args!(
            "all tasks waited for {highest:.1} % of a second at most, too little to arm a threshold"
        ));
    }
    stage.stop(&agent);
    Ok(())
}

/// Returns the largest share of a second, within [`THRASHES`], for which all tasks of the machine waited for memory.
fn highest_stall_percent(stage: &mut Stage<'_>) -> Result<f64> {
    let end = Instant::now() + THRASHES;
    let mut highest: f64 = 0.0;
    while Instant::now() < end {
        let (begun, before) = (Instant::now(), memory_full()?);
        stage.pause(WINDOW);
        let waited = memory_full()?.saturating_sub(before);
        highest = highest.max(100.0 * waited.as_secs_f64() / begun.elapsed().as_secs_f64());
    }
    Ok(highest)
}

/// Returns for how long all tasks of the machine have waited for memory since its boot.
fn memory_full() -> Result<Duration> {
    let path = "/proc/pressure/memory";
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    parse_full(&text).with_context(|| format!("{path}: no total of `full`"))
}

fn parse_full(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("full "))?;
    let total = line.split(' ').find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

/// Asserts that the threshold waits, and that the agent has signalled nobody.
fn nothing_is_armed(stage: &mut Stage<'_>, agent: &Agent) -> Result<()> {
    let armed: Vec<String> = agent.events("threshold_armed").iter().map(ToString::to_string).collect();
    stage.check(armed.is_empty(), || format!("armed: {armed:?}"));
    let labels = [("signal", "memory.available"), ("kind", "hard")];
    let metrics = agent.metrics()?;
    for (name, expected) in [("threshold_met", 1.0), ("threshold_armed", 0.0)] {
        stage.check_equal(name, &metrics.sum(name, &labels), &Some(expected));
    }
    let (by_agent, _) = stage.signals_of(agent)?;
    stage.check(by_agent.is_empty(), || format!("the agent signalled: {by_agent:?}"));
    if !by_agent.is_empty() {
        note_evictions(stage, agent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_full_is_in_microseconds() {
        let text =
            "some avg10=1.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1500\n";
        assert_eq!(parse_full(text), Some(Duration::from_micros(1500)));
        assert_eq!(parse_full("some avg10=1.00 total=9\n"), None);
    }
}
