//! A victim must help: pods that are too small to end a shortage live.

use std::time::Duration;

use anyhow::Result;

use super::{AFTERMATH, Crowd, LIMIT, config, note_evictions};
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::stage::{Stage, Worker};

/// MemAvailable at which a leak of tens of MiB a second changes from fast to paced, more than a second before the threshold.
const PACED: &str = "--fast-until 200";

/// Six dwarfs come first in the ranking, and buy nothing.
pub fn dwarfs(stage: &mut Stage<'_>) -> Result<()> {
    let mut crowd = Crowd::with_ballast(stage, 450)?;
    crowd.hold_many(stage, "dwarf", (6, 3), PodSpec::best_effort())?;
    let agent = stage.agent(&config())?;
    let leaker = crowd.leak(stage, "leaker", PodSpec::burstable(32), (80, PACED))?;
    crowd.only_these_die(stage, &agent, &[&leaker], LIMIT)?;
    stage.stop(&agent);
    Ok(())
}

/// Larger BestEffort pods and services of the host come first in the ranking.
pub fn neighbours(stage: &mut Stage<'_>) -> Result<()> {
    for ranking in ["qos", "kubernetes"] {
        stage.note(format!("ranking: {ranking}"));
        let mut crowd = Crowd::with_ballast(stage, 350)?;
        crowd.hold(stage, "small", PodSpec::best_effort(), 20)?;
        crowd.hold(stage, "middle", PodSpec::best_effort(), 50)?;
        let web = crowd.host_service(stage, "system.slice/web.service", ("hold --name web --mib 60", 0))?;
        stage.wait_resident(&web, 60)?;
        crowd.host_service(stage, "system.slice/vital.service", ("hold --name vital --mib 1", -1000))?;
        let agent = stage.agent(&AgentConfig { extra: format!("ranking: {ranking}\n"), ..config() })?;
        let leaker = crowd.leak(stage, "leaker", PodSpec::burstable(32), (80, PACED))?;
        crowd.only_these_die(stage, &agent, &[&leaker], LIMIT)?;
        stage.stop(&agent);
        crowd.end(stage);
    }
    Ok(())
}

/// A pod of 25 MiB buys 25 s, or 13 s after a jump of the kernel's counters by 6 MiB, so one or two of them go first. Then the leaker
/// goes.
pub fn slow_leak(stage: &mut Stage<'_>) -> Result<()> {
    const PODS: u32 = 5;
    let mut crowd = Crowd::with_ballast(stage, 400)?;
    crowd.hold_many(stage, "small", (PODS, 25), PodSpec::best_effort())?;
    let agent = stage.agent(&config())?;
    // The fast part must be older than the ten seconds over which the agent averages the fall.
    let leaker = crowd.leak(stage, "leaker", PodSpec::burstable(32), (1, "--fast-until 126"))?;
    let leaker_pid = leaker.pid;
    stage.until(Duration::from_secs(90), |stage| stage.reaper.ended(leaker_pid).is_some());
    stage.pause(AFTERMATH);
    let dead = crowd.dead(stage)?;
    let small = dead.iter().filter(|label| label.starts_with("small-")).count();
    let right = (1..=2).contains(&small) && dead.len() == small + 1 && dead.last() == Some(&leaker.label);
    stage.check(right, || format!("killed: {dead:?}; expected one or two of small-*, then the leaker"));
    if !right {
        note_evictions(stage, &agent);
    }
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    Ok(())
}

/// Each of two leakers has half of the fall.
pub fn two_leakers(stage: &mut Stage<'_>) -> Result<()> {
    let mut crowd = Crowd::with_ballast(stage, 350)?;
    crowd.hold_many(stage, "dwarf", (4, 3), PodSpec::best_effort())?;
    crowd.hold(stage, "small", PodSpec::best_effort(), 12)?;
    let agent = stage.agent(&config())?;
    let leakers = ["leaker-1", "leaker-2"]
        .map(|label| crowd.leak(stage, label, PodSpec::burstable(32), (40, PACED)))
        .into_iter()
        .collect::<Result<Vec<Worker>>>()?;
    stage.until(LIMIT, |stage| leakers.iter().all(|leaker| stage.reaper.ended(leaker.pid).is_some()));
    stage.pause(AFTERMATH);
    let mut dead = crowd.dead(stage)?;
    dead.sort();
    stage.check_equal("killed", &dead, &leakers.iter().map(|leaker| leaker.label.clone()).collect());
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    Ok(())
}
