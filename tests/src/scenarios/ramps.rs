//! One growing pod beside bystanders, in variants.

use std::time::Duration;

use anyhow::{Context, Result};

use super::judge::{self, Expected, THRESHOLD, Timing};
use super::pressure::{Bystanders, EVERYTHING_MIB, ramping_pod};
use crate::agent::Agent;
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::processes;
use crate::sampler;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib, milliseconds_between};

/// Time limit from the start of a ramp to the end of its pod.
const LIMIT: Duration = Duration::from_secs(25);

fn judged(
    stage: &mut Stage<'_>,
    agent: &Agent,
    (pod, hog): (&Pod, &Worker),
    bystanders: &Bystanders,
) -> Result<Option<Timing>> {
    let expected =
        Expected { agent, victim: pod, victims: &[hog.pid], bystanders: &bystanders.all(), threshold: THRESHOLD };
    let timing = judge::eviction(stage, &expected, LIMIT)?;
    let killed = agent.metrics()?.sum("evictions_total", &[("outcome", "killed")]).unwrap_or(0.0);
    stage.check_equal("evictions_total{outcome=killed}", &killed, &1.0);
    Ok(timing)
}

/// The normal case: a growing pod is evicted.
pub fn ramp(stage: &mut Stage<'_>) -> Result<()> {
    let bystanders = Bystanders::start(stage, 250, 100)?;
    let agent = stage.agent(&AgentConfig::default())?;
    stage.boot.sampler.start();
    let (pod, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    if let Some(timing) = judged(stage, &agent, (&pod, &hog), &bystanders)? {
        judge::timeline(stage, &timing, THRESHOLD)?;
        let lowest = sampler::lowest(&timing.curve).map_or(0.0, mib);
        stage.figure("lowest_available", lowest, "MiB");
    }
    stage.stop(&agent);
    Ok(())
}

/// The largest process stays within its request, and must survive.
pub fn innocent(stage: &mut Stage<'_>) -> Result<()> {
    let bystanders = Bystanders::start(stage, 450, 60)?;
    let agent = stage.agent(&AgentConfig::default())?;
    stage.boot.sampler.start();
    let (pod, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    let mut hog_peak = 0;
    let hog_pid = hog.pid;
    stage.until(LIMIT, |stage| {
        hog_peak = hog_peak.max(processes::resident(hog_pid).unwrap_or(0));
        stage.reaper.ended(hog_pid).is_some()
    });
    let timing = judged(stage, &agent, (&pod, &hog), &bystanders)?;
    let innocent = processes::resident(bystanders.guaranteed.pid).context("the Guaranteed process")?;
    stage.check(innocent > hog_peak, || {
        format!("the innocent was not the fattest: {:.0} MiB, the hog {:.0} MiB", mib(innocent), mib(hog_peak))
    });
    stage.figure("innocent_resident", mib(innocent), "MiB");
    stage.figure("hog_resident", mib(hog_peak), "MiB");
    if let Some(timing) = timing {
        let latency = milliseconds_between(timing.crossed_ns, timing.first_kill_ns);
        stage.figure("crossing_to_kill_ms", latency, "ms");
    }
    stage.stop(&agent);
    Ok(())
}

/// The pod allocates as fast as possible, with huge pages.
pub fn ramp_max(stage: &mut Stage<'_>) -> Result<()> {
    let bystanders = Bystanders::start(stage, 150, 80)?;
    let agent = stage.agent(&AgentConfig::default())?;
    stage.boot.sampler.start();
    let pod = stage.pod("hog", PodSpec::best_effort())?;
    let hog = stage.work(&pod, &format!("ramp --name hog --rate max --to {EVERYTHING_MIB}"))?;
    if let Some(timing) = judged(stage, &agent, (&pod, &hog), &bystanders)? {
        let latency = milliseconds_between(timing.crossed_ns, timing.first_kill_ns);
        stage.figure("crossing_to_kill_ms", latency, "ms");
        // The rate over the last 200 MiB before the threshold.
        let from = sampler::crossing_down(&timing.curve, THRESHOLD + 200 * MIB, 0);
        let to = sampler::crossing_down(&timing.curve, THRESHOLD, 0);
        if let (Some(from), Some(to)) = (from, to) {
            stage.figure("rate", 200.0 / milliseconds_between(from, to) * 1e3, "MiB/s");
        }
        stage.figure("lowest_available", sampler::lowest(&timing.curve).map_or(0.0, mib), "MiB");
    }
    stage.stop(&agent);
    Ok(())
}

/// The numbers of CAP_SYS_ADMIN, CAP_PERFMON and CAP_BPF in linux/capability.h.
pub const BPF_CAPABILITIES: [i32; 3] = [21, 38, 39];

/// The agent lacks the capabilities to load eBPF programs.
pub fn degraded(stage: &mut Stage<'_>) -> Result<()> {
    let bystanders = Bystanders::start(stage, 250, 100)?;
    let config = AgentConfig { without_capabilities: BPF_CAPABILITIES.to_vec(), ..AgentConfig::default() };
    let agent = stage.agent(&config)?;
    let named: Vec<String> = agent
        .events("degraded")
        .iter()
        .map(|record| format!("{}: {}", record.text("capability"), record.text("reason")))
        .collect();
    stage.check(!named.is_empty(), || "no record with event=degraded".to_owned());
    let names_it = named.iter().any(|text| text.contains("CAP_BPF"));
    stage.check(names_it, || format!("CAP_BPF is not named: {named:?}"));
    stage.boot.sampler.start();
    let (pod, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    if let Some(timing) = judged(stage, &agent, (&pod, &hog), &bystanders)? {
        let latency = milliseconds_between(timing.crossed_ns, timing.first_kill_ns);
        stage.figure("crossing_to_kill_ms", latency, "ms");
    }
    stage.stop(&agent);
    Ok(())
}
