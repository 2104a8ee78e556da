//! A threshold that arrives while it is met does not evict at once.

use std::time::Duration;

use anyhow::Result;

use super::super::pressure::EVERYTHING_MIB;
use super::{AFTERMATH, Crowd, LIMIT, config};
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::meminfo;
use crate::sampler;
use crate::stage::Stage;
use crate::units::{MIB, mib};

/// A reload raises the threshold above what is available.
pub fn reload_would_kill(stage: &mut Stage<'_>) -> Result<()> {
    let mut crowd = Crowd::with_ballast(stage, 380)?;
    crowd.hold(stage, "small", PodSpec::best_effort(), 20)?;
    let leaker = stage.pod("leaker", PodSpec::best_effort())?;
    // The leaker frees more than the distance to the threshold.
    let held = crowd.pod(leaker.clone(), stage, "hold --name leaker --mib 150")?;
    stage.wait_resident(&held, 150)?;
    let available = meminfo("MemAvailable")? / MIB;
    // No second agent of this boot may know the threshold: what was armed stays armed over a restart.
    let threshold_kib = (available + 60) * 1024 + u64::from(stage.next_pod());
    let lock = format!("lockFile: /tmp/reload-{threshold_kib}.lock\n");
    let agent = stage.agent(&AgentConfig { extra: lock.clone(), ..config() })?;
    agent.reload(&AgentConfig { hard: Some(format!("{threshold_kib}Ki")), extra: lock, ..config() })?;
    let adopted = stage.until(Duration::from_secs(10), |_| !agent.events("threshold_met").is_empty());
    stage.check(adopted, || "the reload did not come into force".to_owned());
    stage.pause(AFTERMATH);
    let early = crowd.dead(stage)?;
    stage.check(early.is_empty(), || format!("the reload killed {early:?}"));
    // The threshold is armed when a quarter of what was available at the reload is used up.
    stage.boot.sampler.start();
    let floor = available * 3 / 4;
    crowd.pod(leaker, stage, &format!("ramp --name leaker --rate 40 --to {EVERYTHING_MIB}"))?;
    crowd.only_these_die(stage, &agent, &[&held], LIMIT)?;
    let lowest = sampler::lowest(&stage.boot.sampler.curve()).map_or(0.0, mib);
    stage.figure("lowest_available", lowest, "MiB");
    stage.note(format!("at the reload {available} MiB were available of {} MiB", threshold_kib / 1024));
    let within = lowest < mib(floor * MIB) + 8.0 && lowest > mib(floor * MIB) - 60.0;
    stage.check(within, || format!("killed at {lowest:.0} MiB; a quarter below the reload is {floor} MiB"));
    stage.stop(&agent);
    Ok(())
}
