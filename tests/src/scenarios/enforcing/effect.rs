//! Evictions that do not help end, and the cause of the shortage is reported.

use std::time::Duration;

use anyhow::Result;

use super::{AFTERMATH, Crowd, config, note_evictions};
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::meminfo;
use crate::knob::Knob;
use crate::stage::Stage;
use crate::units::MIB;

const LEAKER: &str = "system.slice/leaky.service";
const BALLAST: &str = "system.slice/ballast.service";
/// MemAvailable at which the leak ends: below a quarter of the threshold, and above what the kernel keeps for itself.
const FLOOR_MIB: u64 = 17;
/// The share of a zone that the CPUs' lists of free pages hold at most, as small as the kernel allows. Lists of 60 MiB would count as left, and
/// would lift the node above the cliff after the leak has ended.
const SMALLEST_LISTS: u64 = 1_000_000;

/// The time after which a fall that has ended does not count any more. The agent averages it over ten seconds.
const FALL_FADES: Duration = Duration::from_secs(30);

/// The leaker is protected. Two pods are evicted in vain, and no other while the leak goes on: none buys a second. Once the leak has ended, a
/// third one takes the node away from the kernel's OOM killer.
pub fn protected_leak(stage: &mut Stage<'_>) -> Result<()> {
    let lists = Knob::open("percpu_pagelist_high_fraction")?;
    lists.set(SMALLEST_LISTS)?;
    let mut crowd = Crowd::default();
    // The ballast is no candidate, or it would be the one that helps.
    let ballast = crowd.host_service(stage, BALLAST, ("hold --name ballast --mib 400", 0))?;
    stage.wait_resident(&ballast, 400)?;
    crowd.hold_many(stage, "small", (6, 12), PodSpec::best_effort())?;
    let config = AgentConfig { extra: format!("protected: [\"{LEAKER}\", \"{BALLAST}\"]\n"), ..config() };
    let agent = stage.agent(&config)?;
    let work = format!("ramp --name leaky --rate 20 --to 960 --fast-until 150 --stop-at {FLOOR_MIB}");
    crowd.host_service(stage, LEAKER, (&work, 0))?;
    // The agent's figure may be some MiB below MemAvailable.
    let near = stage.until(Duration::from_secs(20), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 40 * MIB));
    let early = crowd.dead(stage)?;
    stage.check(near, || format!("the leak did not come near the end of memory; killed: {early:?}"));
    stage.check(early.len() <= 2, || format!("killed above a quarter of the threshold: {early:?}"));
    stage.pause(AFTERMATH);
    let dead = crowd.dead(stage)?;
    stage.check((1..=3).contains(&dead.len()), || format!("killed in all: {dead:?}"));
    let more = stage.until(FALL_FADES, |stage| crowd.dead(stage).is_ok_and(|dead| dead.len() > early.len()));
    stage.check(more, || format!("none went below a quarter of the threshold after the leak: {dead:?}"));
    stage.pause(AFTERMATH);
    let dead = crowd.dead(stage)?;
    stage.check(dead.len() <= 3, || format!("killed in all: {dead:?}"));
    let reported = agent.records().iter().any(|record| {
        let level = record.text("level");
        (level.eq_ignore_ascii_case("warn") || level.eq_ignore_ascii_case("error"))
            && !record.is("eviction")
            && record.to_string().contains(LEAKER)
    });
    stage.check(reported, || format!("no warning names {LEAKER}"));
    note_evictions(stage, &agent);
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    Ok(())
}
