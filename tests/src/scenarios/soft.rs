//! Soft thresholds: the grace period counts, and it ends early when a hard threshold is crossed.

use std::time::Duration;

use anyhow::{Context, Result};

use super::judge;
use super::pressure::{Bystanders, EVERYTHING_MIB, ramping_pod};
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::sampler;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib, milliseconds_between};

/// The agent sends SIGTERM after the threshold's grace period, and SIGKILL after the pod's.
pub fn soft(stage: &mut Stage<'_>) -> Result<()> {
    const SOFT: u64 = 200 * MIB;
    let bystanders = Bystanders::start(stage, 150, 80)?;
    let config = AgentConfig {
        hard: Some("50Mi".to_owned()),
        soft: Some(("200Mi", "2s")),
        max_pod_grace_seconds: 2,
        ..AgentConfig::default()
    };
    let agent = stage.agent(&config)?;
    stage.boot.sampler.start();
    let pod = stage.pod("deaf", PodSpec::best_effort())?;
    let deaf = stage.work(
        &pod,
        &format!("ramp --name deaf --ignore-term --rate 60 --to {EVERYTHING_MIB} --fast-until 230 --stop-at 150"),
    )?;
    let deaf_pid = deaf.pid;
    let gone = stage.until(Duration::from_secs(30), |stage| stage.reaper.ended(deaf_pid).is_some());
    stage.check(gone, || "the pod that ignores SIGTERM still lives".to_owned());
    stage.pause(Duration::from_millis(800));
    let curve = stage.boot.sampler.curve();
    let (by_agent, _) = stage.signals_of(&agent)?;
    let stray: Vec<_> = by_agent.iter().filter(|signal| signal.target != deaf_pid).collect();
    stage.check(stray.is_empty(), || format!("the agent signalled others: {stray:?}"));
    stage.check_killed(&deaf);
    stage.check_alive(&bystanders.all());
    stage.check_no_oom_kill()?;
    let crossed =
        judge::watched_crossing(stage, &agent, &curve, SOFT)?.context("what the agent watches never passed 200 MiB")?;
    let time_of = |number: i32| by_agent.iter().find(|signal| signal.number == number).map(|signal| signal.at_ns);
    let term = time_of(libc::SIGTERM).context("the trace has no SIGTERM from the agent")?;
    let kill = time_of(libc::SIGKILL).context("the trace has no SIGKILL from the agent")?;
    let to_term = milliseconds_between(crossed, term);
    let to_kill = milliseconds_between(term, kill);
    // SIGTERM comes after the grace period, and within less than another housekeeping interval.
    stage.check((1990.0..3500.0).contains(&to_term), || {
        format!("SIGTERM {to_term:.0} ms after the crossing; the grace period is 2000 ms")
    });
    stage.check((1950.0..3500.0).contains(&to_kill), || {
        format!("SIGKILL {to_kill:.0} ms after SIGTERM; evictionMaxPodGracePeriod is 2000 ms")
    });
    let terms = agent
        .events("eviction")
        .iter()
        .filter(|record| record.text("action") == "term" && record.text("kind") == "soft")
        .count();
    stage.check_equal("soft eviction records with action=term", &terms, &1);
    stage.figure("crossing_to_term_ms", to_term, "ms");
    stage.figure("term_to_kill_ms", to_kill, "ms");
    stage.stop(&agent);
    Ok(())
}

/// A hard threshold is crossed while a soft eviction gives its pod a grace period of thirty seconds.
pub fn soft_hard(stage: &mut Stage<'_>) -> Result<()> {
    let bystanders = Bystanders::start(stage, 150, 80)?;
    let config = AgentConfig { soft: Some(("300Mi", "1s")), max_pod_grace_seconds: 30, ..AgentConfig::default() };
    let agent = stage.agent(&config)?;
    stage.boot.sampler.start();
    let deaf_pod = stage.pod("deaf", PodSpec::best_effort())?;
    let deaf = stage.work(
        &deaf_pod,
        &format!("ramp --name deaf --ignore-term --rate 60 --to {EVERYTHING_MIB} --fast-until 320 --stop-at 260"),
    )?;
    let asked = stage.until(Duration::from_secs(25), |stage| {
        stage.signals_of(&agent).is_ok_and(|(signals, _)| {
            signals.iter().any(|signal| signal.number == libc::SIGTERM && signal.target == deaf.pid)
        })
    });
    stage.check(asked, || "the soft eviction sent no SIGTERM".to_owned());
    stage.check_alive(&[&deaf]);
    let (_, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    let workers: [&Worker; 2] = [&deaf, &hog];
    let ended = stage
        .until(Duration::from_secs(15), |stage| workers.iter().any(|worker| stage.reaper.ended(worker.pid).is_some()));
    stage.check(ended, || "no process was killed in 15 s".to_owned());
    stage.pause(Duration::from_millis(300));
    let curve = stage.boot.sampler.curve();
    let (by_agent, _) = stage.signals_of(&agent)?;
    let kill = by_agent
        .iter()
        .find(|signal| signal.number == libc::SIGKILL)
        .context("the trace has no SIGKILL from the agent")?;
    let right = workers.iter().any(|worker| worker.pid == kill.target);
    stage.check(right, || format!("SIGKILL went to pid {}", kill.target));
    stage.check_alive(&bystanders.all());
    stage.check_no_oom_kill()?;
    let lowest = sampler::lowest(&curve).map_or(0.0, mib);
    let crossed = sampler::crossing_down(&curve, 100 * MIB, 0);
    match crossed {
        Some(crossed) => {
            let latency = milliseconds_between(crossed, kill.at_ns);
            stage.check(latency < 500.0, || format!("SIGKILL {latency:.0} ms after the hard crossing"));
            stage.figure("hard_crossing_to_kill_ms", latency, "ms");
        }
        // The agent's figure is slightly below MemAvailable, so it may act before MemAvailable crosses the threshold.
        None => stage.check(lowest < 130.0, || format!("killed at {lowest:.1} MiB available: too early")),
    }
    stage.figure("lowest_available", lowest, "MiB");
    stage.stop(&agent);
    Ok(())
}
