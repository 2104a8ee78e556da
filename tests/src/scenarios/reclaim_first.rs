//! Proactive reclaim: before an eviction the kernel reclaims memory of the workload that is furthest above its request.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::cache::mounted;
use super::judge;
use super::pressure::EVERYTHING_MIB;
use crate::agent::{Agent, Record};
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::kubelet_available;
use crate::init::EXT4;
use crate::reference::EMULATED_READS;
use crate::stage::Stage;
use crate::units::MIB;

const READY: &str = "/tmp/reclaim-first-ready";
/// How long reclaim may take before an eviction.
const DEADLINE: Duration = Duration::from_secs(2);
/// The time of the agent's own work, on the reference machine.
const SLACK: Duration = Duration::from_millis(500);

/// Provokes pressure by page cache. kubelet semantics count it as used, and reclaim frees it without a kill.
pub fn reclaim_first(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    suffices(stage)?;
    cannot(stage)
}

fn config(stage: &Stage<'_>, below: u64) -> Result<AgentConfig> {
    let threshold = kubelet_available(stage.layout())?.saturating_sub(below);
    Ok(AgentConfig {
        hard: Some(format!("{}Ki", threshold / 1024)),
        semantics: "kubelet",
        extra: format!("evictions:\n  actOnPresentPressure: true\n  reclaimDeadline: {}s\n", DEADLINE.as_secs()),
        ..AgentConfig::default()
    })
}

/// The hog uses file cache, so reclaim alone ends the pressure.
fn suffices(stage: &mut Stage<'_>) -> Result<()> {
    let _ = std::fs::remove_file(READY);
    let bystander_pod = stage.pod("bystander", PodSpec::burstable(64))?;
    let bystander = stage.holder(&bystander_pod, 48)?;
    let config = config(stage, 100 * MIB)?;
    let agent = stage.agent(&config)?;
    let pod = stage.pod("cache", PodSpec::best_effort())?;
    let hog = stage.work(&pod, &format!("cache --name cache --file {EXT4}/once --mib 180 --ready {READY} --once"))?;
    if !stage.until(Duration::from_secs(30), |_| Path::new(READY).exists()) {
        bail!("the file was not in memory after 30 s");
    }
    let record = wait_reclaim(stage, &agent);
    stage.pause(Duration::from_secs(1));
    stage.check_alive(&[&hog, &bystander]);
    let (by_agent, _) = stage.signals_of(&agent)?;
    stage.check(by_agent.is_empty(), || format!("the agent signalled: {by_agent:?}"));
    if let Some(record) = record {
        stage.check_equal("whose memory", &record.text("workload"), &pod.workload());
        stage.check_equal("the outcome", &record.text("outcome"), &"sufficed");
        let amount = |field: &str| record.number(field).unwrap_or(0);
        let (before, after) = (amount("available_before_bytes"), amount("available_after_bytes"));
        stage.check(after > before, || format!("available was {before} before and {after} after"));
        // The hog may free nothing itself and reclaim may still help: file pages that become inactive count as available.
        stage.check(record.number("freed_bytes").is_some(), || format!("the record has no freed_bytes: {record}"));
        stage.figure("available_rose", crate::units::mib(after.saturating_sub(before)), "MiB");
        stage.figure("freed", crate::units::mib(amount("freed_bytes")), "MiB");
    }
    let metrics = agent.metrics()?;
    let sufficed = metrics.sum("proactive_reclaims_total", &[("outcome", "sufficed")]).unwrap_or(0.0);
    stage.check(sufficed >= 1.0, || format!("proactive_reclaims_total{{outcome=sufficed}} is {sufficed}"));
    let took = metrics.sum("proactive_reclaim_seconds_total", &[]).unwrap_or(0.0);
    stage.check(took > 0.0, || format!("proactive_reclaim_seconds_total is {took}"));
    stage.stop(&agent);
    super::accounts::end(stage, &[hog, bystander]);
    Ok(())
}

/// The hog uses anonymous memory and there is no swap, so it is evicted when the deadline ends at the latest.
fn cannot(stage: &mut Stage<'_>) -> Result<()> {
    let config = config(stage, 120 * MIB)?;
    let agent = stage.agent(&config)?;
    let pod = stage.pod("hog", PodSpec::best_effort())?;
    let hog = stage.work(&pod, &format!("ramp --name hog --rate 60 --to {EVERYTHING_MIB}"))?;
    judge::wait_gone(stage, &pod, Duration::from_secs(30));
    stage.pause(Duration::from_millis(300));
    stage.check_killed(&hog);
    stage.check_no_oom_kill()?;
    let met = agent.events("threshold_met").first().and_then(|record| record.number("sampled_mono_ns"));
    let acted = agent.events("eviction").first().and_then(|record| record.number("acted_mono_ns"));
    stage.check(acted.is_some(), || "no eviction record".to_owned());
    if let (Some(met), Some(acted)) = (met, acted) {
        let waited = Duration::from_nanos(acted.saturating_sub(met));
        let limit = DEADLINE + SLACK.mul_f64(EMULATED_READS.slowness()?.patience());
        stage.check(waited <= limit, || format!("evicted {waited:?} after the threshold was met"));
        stage.figure("met_to_kill", waited.as_secs_f64() * 1e3, "ms");
    }
    let tried = agent.metrics()?.sum("proactive_reclaims_total", &[]).unwrap_or(0.0);
    stage.check(tried >= 1.0, || "proactive_reclaims_total says nothing of the attempt".to_owned());
    stage.stop(&agent);
    Ok(())
}

fn wait_reclaim(stage: &mut Stage<'_>, agent: &Agent) -> Option<Record> {
    let mut record = None;
    stage.until(Duration::from_secs(15), |_| {
        record = agent.events("reclaim").into_iter().next();
        record.is_some()
    });
    stage.check(record.is_some(), || "no record with event=reclaim".to_owned());
    record
}
