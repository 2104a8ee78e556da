//! Measures the cost of a run of each eBPF program by the kernel's clock.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::accounts::{end, stallers};
use super::cache::mounted;
use super::reclaim::squeeze;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::init::{EXT4, XFS};
use crate::stage::Stage;
use crate::units::MIB;

const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// A probe that fires only if the disk is slower than reclaim, which this guest's disk never is.
const RARE: &str = "vmscan:mm_vmscan_throttled";

/// The kernel's statistics of BPF programs. Dropping it turns them off.
#[derive(Debug)]
struct Statistics;

impl Statistics {
    fn on() -> Result<Self> {
        fs::write(STATISTICS, "1").with_context(|| format!("write {STATISTICS}"))?;
        Ok(Self)
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        // The statistics slow down every program, including the agent's.
        let _ = fs::write(STATISTICS, "0");
    }
}

pub fn probes(stage: &mut Stage<'_>) -> Result<()> {
    let statistics = Statistics::on()?;
    let agent = stage.agent(&AgentConfig::observe())?;
    provoke(stage)?;
    let metrics = agent.metrics()?;
    let by_probe = |name: &str| -> BTreeMap<String, f64> {
        metrics.all(name).map(|series| (series.label("probe").to_owned(), series.value)).collect()
    };
    let (hits, seconds, attached) =
        (by_probe("probe_hits_total"), by_probe("probe_seconds_total"), by_probe("probe_attached"));
    let attached: Vec<String> =
        attached.into_iter().filter(|(_, value)| *value > 0.0).map(|(probe, _)| probe).collect();
    stage.check(attached.len() > 8, || format!("only {attached:?} are attached"));
    for probe in &attached {
        let hit = hits.get(probe).copied().unwrap_or(0.0);
        // Under emulation the cost only serves to compare probes.
        let cost = seconds.get(probe).copied().unwrap_or(0.0) * 1e9 / hit.max(1.0);
        stage.note(format!("{probe}: {hit} hits, {cost:.0} ns each"));
        stage.check(hit > 0.0 || probe == RARE, || format!("{probe} is attached and was never hit"));
    }
    let missed = metrics.sum("probe_missed_total", &[]).unwrap_or(0.0);
    stage.figure("missed", missed, "hits");
    stage.figure("probes", f64::from(u32::try_from(attached.len())?), "");
    stage.stop(&agent);
    drop(statistics);
    Ok(())
}

/// Provokes every kind of event that a program counts.
fn provoke(stage: &mut Stage<'_>) -> Result<()> {
    let pod = stage.pod("churner", PodSpec::best_effort())?;
    let mut churners = Vec::new();
    for filesystem in [EXT4, XFS].into_iter().filter(|path| mounted(path)) {
        let dir = format!("{filesystem}/probes");
        fs::create_dir(&dir).with_context(|| format!("create {dir}"))?;
        churners
            .push(stage.work(&pod, &format!("churn --name churn --dir {dir} --files 200 --symlinks 20 --remove 150"))?);
    }
    for worker in &churners {
        let pid = worker.pid;
        stage.until(Duration::from_secs(20), |stage| stage.reaper.ended(pid).is_some());
    }
    // The kernel drops cached inodes when it reclaims.
    fs::write("/proc/sys/vm/drop_caches", "2").context("write /proc/sys/vm/drop_caches")?;
    let greedy_pod = stage.pod("greedy", PodSpec::best_effort())?;
    greedy_pod.container()?.limit(16 * MIB)?;
    let greedy = stage.work(&greedy_pod, "ramp --name greedy --rate max --to 64")?;
    stage.until(Duration::from_secs(20), |stage| stage.reaper.ended(greedy.pid).is_some());
    if mounted(EXT4) {
        let workers = stallers(stage, 1)?;
        stage.pause(Duration::from_secs(1));
        end(stage, &workers);
        squeeze(stage)?;
        // The pause lets kswapd fall asleep.
        stage.pause(Duration::from_secs(1));
    }
    Ok(())
}
