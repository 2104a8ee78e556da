//! Active file pages are no memory pressure: the kubelet's figure counts them as used, the kernel's figure does not.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::pressure::lingering_pod;
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::{kubelet_available, meminfo};
use crate::init::EXT4;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib};

const READY: &str = "/tmp/cache-ready";
/// The approximate memory of an agent. Both figures fall by it before the agent can sample them.
const AGENT: u64 = 10 * MIB;
/// The distance between the threshold and each of the two figures.
const MARGIN: u64 = 10 * MIB;

pub fn cache(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let _ = std::fs::remove_file(READY);
    let pod = stage.pod("cache", PodSpec::best_effort())?;
    let reader = stage.work(&pod, &format!("cache --name cache --file {EXT4}/hot --mib 240 --ready {READY}"))?;
    let ready = stage.until(Duration::from_secs(30), |_| Path::new(READY).exists());
    if !ready {
        bail!("the file was not in memory after 30 s");
    }
    let (_, filler) = lingering_pod(stage, "filler", PodSpec::best_effort(), 300)?;
    let settled =
        stage.until(Duration::from_secs(20), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 302 * MIB));
    stage.check(settled, || "MemAvailable did not come down to 300 MiB".to_owned());
    stage.pause(Duration::from_millis(300));
    let active = meminfo("Active(file)")?;
    stage.figure("active_file", mib(active), "MiB");
    stage.check(active > 150 * MIB, || format!("only {:.0} MiB of file pages are active", mib(active)));

    // The distance between the figures depends on the kernel's own memory, which only one figure counts.
    let by_kernel = meminfo("MemAvailable")?;
    let by_working_set = kubelet_available(stage.layout())?;
    if by_working_set + 2 * MARGIN > by_kernel {
        bail!(
            "the figures are not apart: MemAvailable {:.1} MiB, the kubelet's {:.1} MiB",
            mib(by_kernel),
            mib(by_working_set)
        );
    }
    let threshold = u64::midpoint(by_kernel, by_working_set).saturating_sub(AGENT);
    let hard = Some(format!("{}Ki", threshold / 1024));
    let agent = stage.agent(&AgentConfig { hard: hard.clone(), ..AgentConfig::default() })?;
    watch_both_figures(stage, &agent, &[&reader, &filler], threshold)?;
    stage.stop(&agent);

    // The same threshold under kubelet semantics, where it is crossed: this proves that the threshold can be crossed.
    let kubelet = AgentConfig { hard, semantics: "kubelet", ..AgentConfig::observe() };
    let agent = stage.agent(&kubelet)?;
    let met = stage.until(Duration::from_secs(12), |_| !agent.events("threshold_met").is_empty());
    stage.check(met, || "under kubelet semantics the threshold is not met".to_owned());
    stage.stop(&agent);
    Ok(())
}

fn watch_both_figures(stage: &mut Stage<'_>, agent: &Agent, workers: &[&Worker], threshold: u64) -> Result<()> {
    stage.pause(Duration::from_secs(3));
    let metrics = agent.metrics()?;
    let figure = |semantics: &str| {
        metrics
            .sum("memory_available_bytes", &[("semantics", semantics)])
            .map(|bytes| bytes / 1_048_576.0)
            .with_context(|| format!("no memory_available_bytes{{semantics={semantics:?}}}"))
    };
    let (corrected, kubelet, threshold) = (figure("corrected")?, figure("kubelet")?, mib(threshold));
    stage.check(kubelet < threshold && threshold < corrected, || {
        format!("the threshold {threshold:.1} MiB is not between the kubelet's {kubelet:.1} and the corrected {corrected:.1}")
    });
    let by_hand = mib(kubelet_available(stage.layout())?);
    stage.check((kubelet - by_hand).abs() < 6.0, || {
        format!("the kubelet's figure is {kubelet:.1} MiB, by hand {by_hand:.1} MiB")
    });
    stage.figure("threshold", threshold, "MiB");
    stage.figure("corrected_available", corrected, "MiB");
    stage.figure("kubelet_available", kubelet, "MiB");
    stage.figure("mem_available", mib(meminfo("MemAvailable")?), "MiB");
    let met = metrics.sum("threshold_met", &[("signal", "memory.available")]);
    stage.check_equal("threshold_met", &met, &Some(0.0));
    stage.check_alive(workers);
    let (by_agent, _) = stage.signals_of(agent)?;
    stage.check(by_agent.is_empty(), || format!("the agent signalled: {by_agent:?}"));
    stage.check_equal("eviction records", &agent.events("eviction").len(), &0);
    stage.check_no_oom_kill()
}

/// Returns whether a filesystem is mounted at `target`.
pub fn mounted(target: &str) -> bool {
    std::fs::read_to_string("/proc/mounts")
        .is_ok_and(|text| text.lines().any(|line| line.split(' ').nth(1) == Some(target)))
}
