//! Starts and ends of the agent: a restart under pressure, a second instance, and the protection of a starting agent.

use std::time::Duration;

use anyhow::Result;

use super::judge;
use super::pressure::{Bystanders, lingering_pod};
use super::scores::score_of;
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::meminfo;
use crate::http;
use crate::processes::{self, Ended};
use crate::stage::Stage;
use crate::units::MIB;

/// Kills the agent while memory falls, and starts it again under pressure.
pub fn restart(stage: &mut Stage<'_>) -> Result<()> {
    let bystanders = Bystanders::start(stage, 150, 80)?;
    let first = stage.agent(&AgentConfig::default())?;
    stage.boot.sampler.start();
    let (pod, hog) = lingering_pod(stage, "hog", PodSpec::best_effort(), 70)?;
    stage.until(Duration::from_secs(20), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 125 * MIB));
    processes::signal(first.pid, libc::SIGKILL);
    let first_threads = first.threads();
    let (first_pid, hog_pid) = (first.pid, hog.pid);
    stage.until(Duration::from_secs(5), |stage| stage.reaper.ended(first_pid).is_some());
    let in_pressure =
        stage.until(Duration::from_secs(10), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 85 * MIB));
    stage.check(in_pressure, || "the guest did not come under pressure without an agent".to_owned());
    stage.check_alive(&[&hog]);
    let before = stage.boot.trace.signals()?;
    let early = before.iter().filter(|signal| first_threads.contains(&signal.sender_tid)).count();
    stage.check_equal("signals of the first agent", &early, &0);

    let second = stage.agent(&AgentConfig::default())?;
    judge::wait_gone(stage, &pod, Duration::from_secs(15));
    stage.pause(Duration::from_secs(2));
    stage.check_killed(&hog);
    stage.check_alive(&bystanders.all());
    stage.check_no_oom_kill()?;
    let (by_agent, _) = stage.signals_of(&second)?;
    let targets: Vec<i32> = by_agent.iter().map(|signal| signal.target).collect();
    stage.check(!targets.is_empty() && targets.iter().all(|pid| *pid == hog_pid), || {
        format!("the second agent signalled {targets:?}, the hog is {hog_pid}")
    });
    let kills = second.events("eviction").iter().filter(|record| record.text("action") == "kill").count();
    stage.check_equal("evictions of the second agent", &kills, &1);
    let available = meminfo("MemAvailable")?;
    stage.check(available > 100 * MIB, || format!("pressure is not resolved: {available} bytes available"));
    stage.stop(&second);
    Ok(())
}

/// Asserts that a second agent refuses to start, since two agents would evict twice.
pub fn second_instance(stage: &mut Stage<'_>) -> Result<()> {
    let first = stage.agent(&AgentConfig::observe())?;
    // The other port proves that the lock refuses the second agent, not the address.
    let second = stage.agent_unready(&AgentConfig { port: 9947, ..AgentConfig::observe() })?;
    let second_pid = second.pid;
    stage.until(Duration::from_secs(15), |stage| stage.reaper.ended(second_pid).is_some());
    let ended = stage.reaper.ended(second_pid);
    stage.check_equal("the second instance's end", &ended, &Some(Ended::Exited(3)));
    let words = second.tail(5).join(" ");
    stage.check(words.contains("instance") || words.contains("running"), || {
        format!("its message does not say why: {words:?}")
    });
    stage.check(stage_lives(&first), || "the first instance does not answer any more".to_owned());
    stage.stop(&first);
    // A lock that outlived its owner would refuse this agent.
    let third = stage.agent(&AgentConfig::observe())?;
    stage.stop(&third);
    Ok(())
}

/// Asserts that a starting agent has lowered its `oom_score_adj` when it has a probe: the kernel takes seconds to check the probes on a slow
/// machine.
pub fn protected_early(stage: &mut Stage<'_>) -> Result<()> {
    let agent = stage.agent_unready(&AgentConfig::observe())?;
    let mut is_early = true;
    let is_low = stage.until(Duration::from_secs(15), |_| {
        // The probes first: a pause of this program between the two looks then fails no agent.
        let has_probes = agent.has_probes();
        let is_low = score_of(agent.pid).is_ok_and(|score| score == -999);
        is_early &= is_low || !has_probes;
        is_low
    });
    stage.check(is_low && is_early, || format!("oom_score_adj is low: {is_low}, before the first probe: {is_early}"));
    agent.wait_ready(&mut stage.reaper)?;
    stage.stop(&agent);
    Ok(())
}

fn stage_lives(agent: &Agent) -> bool {
    http::get(agent.address, "/healthz").is_ok_and(|(status, _)| status == 200)
}
