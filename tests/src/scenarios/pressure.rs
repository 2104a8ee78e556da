//! The usual bystanders, and a pod that causes pressure.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::sampler;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib};

/// The MiB per second of a ramp when timing matters. The guest holds this rate exactly under emulation.
pub const RATE_MIB: u64 = 60;
/// MemAvailable at which a ramp changes from fast to paced, a second and a half before the threshold.
pub const PACED_BELOW_MIB: u64 = 190;
/// More MiB than the guest has.
pub const EVERYTHING_MIB: u64 = 960;

/// A Guaranteed and a Burstable pod. Both use no more than they requested.
#[derive(Debug)]
pub struct Bystanders {
    pub guaranteed: Worker,
    pub burstable: Worker,
}

impl Bystanders {
    /// Starts the bystanders and waits until they have touched their memory.
    pub fn start(stage: &mut Stage<'_>, guaranteed_mib: u64, burstable_mib: u64) -> Result<Self> {
        let pod = stage.pod("guaranteed", PodSpec::guaranteed(guaranteed_mib + 48))?;
        let guaranteed = stage.holder(&pod, guaranteed_mib)?;
        let pod = stage.pod("burstable", PodSpec::burstable(burstable_mib + 48))?;
        let burstable = stage.holder(&pod, burstable_mib)?;
        Ok(Self { guaranteed, burstable })
    }

    pub fn all(&self) -> [&Worker; 2] {
        [&self.guaranteed, &self.burstable]
    }
}

/// Starts a pod whose only process ramps through the threshold.
pub fn ramping_pod(stage: &Stage<'_>, label: &str, spec: PodSpec) -> Result<(Pod, Worker)> {
    let pod = stage.pod(label, spec)?;
    let worker = stage.work(
        &pod,
        &format!("ramp --name {label} --rate {RATE_MIB} --to {EVERYTHING_MIB} --fast-until {PACED_BELOW_MIB}"),
    )?;
    Ok((pod, worker))
}

/// Starts a ramp that stops a little below the threshold, far above the kernel's own limits.
pub fn lingering_pod(stage: &Stage<'_>, label: &str, spec: PodSpec, floor_mib: u64) -> Result<(Pod, Worker)> {
    let pod = stage.pod(label, spec)?;
    let worker = stage.work(
        &pod,
        &format!(
            "ramp --name {label} --rate {RATE_MIB} --to {EVERYTHING_MIB} --fast-until {} --stop-at {floor_mib}",
            floor_mib + 60
        ),
    )?;
    Ok((pod, worker))
}

/// Checks that observe mode performs every step but the eviction itself.
pub fn observe(stage: &mut Stage<'_>) -> Result<()> {
    let bystanders = Bystanders::start(stage, 150, 80)?;
    let agent = stage.agent(&AgentConfig::observe())?;
    stage.boot.sampler.start();
    let (pod, hog) = lingering_pod(stage, "hog", PodSpec::best_effort(), 80)?;
    let reported = stage.until(Duration::from_secs(25), |_| {
        agent.events("eviction").iter().any(|record| record.text("action") == "would_kill")
    });
    stage.check(reported, || "no eviction record with action=would_kill".to_owned());
    // The wait is long enough for a wrong eviction to appear.
    stage.pause(Duration::from_secs(2));
    let curve = stage.boot.sampler.curve();
    let lowest = sampler::lowest(&curve).context("no samples")?;
    stage.check(lowest < 100 * MIB, || format!("never below the threshold: {:.1} MiB", mib(lowest)));
    let [guaranteed, burstable] = bystanders.all();
    stage.check_alive(&[&hog, guaranteed, burstable]);
    let (by_agent, _) = stage.signals_of(&agent)?;
    stage.check(by_agent.is_empty(), || format!("the agent signalled: {by_agent:?}"));
    stage.check_no_oom_kill()?;
    let evictions = agent.events("eviction");
    for record in &evictions {
        stage.check_equal("action", &record.text("action"), &"would_kill");
        stage.check_equal("would-be victim", &record.text("workload"), &pod.workload());
    }
    let metrics = agent.metrics()?;
    let observed = metrics.sum("evictions_total", &[("outcome", "observed")]).unwrap_or(0.0);
    stage.check(observed >= 1.0, || format!("evictions_total{{outcome=observed}} is {observed}"));
    let killed = metrics.sum("evictions_total", &[("outcome", "killed")]).unwrap_or(0.0);
    stage.check_equal("evictions_total{outcome=killed}", &killed, &0.0);
    stage.figure("lowest_available", mib(lowest), "MiB");
    stage.stop(&agent);
    Ok(())
}
