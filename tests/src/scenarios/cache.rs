//! Hot file pages are no pressure: the kubelet's figure says so, the kernel's does not.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::judge;
use super::pressure::lingering_pod;
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::meminfo;
use crate::init::EXT4;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib};

const THRESHOLD: &str = "200Mi";
const READY: &str = "/tmp/cache-ready";

pub fn cache(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let _ = std::fs::remove_file(READY);
    let pod = stage.pod("cache", PodSpec::best_effort())?;
    let reader = stage.work(&pod, &format!("cache --name cache --file {EXT4}/hot --mib 200 --ready {READY}"))?;
    let ready = stage.until(Duration::from_secs(30), |_| Path::new(READY).exists());
    if !ready {
        bail!("the file was not in memory after 30 s");
    }
    let (_, filler) = lingering_pod(stage, "filler", PodSpec::best_effort(), 285)?;
    let settled =
        stage.until(Duration::from_secs(20), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 290 * MIB));
    stage.check(settled, || "MemAvailable did not come down to 285 MiB".to_owned());
    let active = meminfo("Active(file)")?;
    stage.figure("active_file", mib(active), "MiB");

    let agent = stage.agent(&AgentConfig { hard: Some(THRESHOLD), ..AgentConfig::default() })?;
    watch_both_figures(stage, &agent, &[&reader, &filler])?;
    stage.stop(&agent);

    // The same floor under the kubelet's rules: not a figure that cannot cross.
    let kubelet = AgentConfig { hard: Some(THRESHOLD), semantics: "kubelet", ..AgentConfig::observe() };
    let agent = stage.agent(&kubelet)?;
    let met = stage.until(Duration::from_secs(12), |_| !agent.events("threshold_met").is_empty());
    stage.check(met, || "under kubelet semantics the threshold is not met".to_owned());
    stage.stop(&agent);
    Ok(())
}

fn watch_both_figures(stage: &mut Stage<'_>, agent: &Agent, workers: &[&Worker]) -> Result<()> {
    stage.pause(Duration::from_secs(3));
    let metrics = agent.metrics()?;
    let figure = |semantics: &str| {
        metrics
            .sum("memory_available_bytes", &[("semantics", semantics)])
            .with_context(|| format!("no memory_available_bytes{{semantics={semantics:?}}}"))
    };
    let corrected = figure("corrected")?;
    let kubelet = figure("kubelet")?;
    let threshold = 200.0 * 1_048_576.0;
    stage.check(kubelet < threshold, || format!("the kubelet's figure is {:.1} MiB", kubelet / 1_048_576.0));
    stage.check(corrected > threshold, || format!("the corrected figure is {:.1} MiB", corrected / 1_048_576.0));
    stage.figure("corrected_available", corrected / 1_048_576.0, "MiB");
    stage.figure("kubelet_available", kubelet / 1_048_576.0, "MiB");
    stage.figure("mem_available", mib(meminfo("MemAvailable")?), "MiB");
    let met = metrics.sum("threshold_met", &[("signal", "memory.available")]);
    stage.check_equal("threshold_met", &met, &Some(0.0));
    stage.check_alive(workers);
    let (by_agent, _) = stage.signals_of(agent)?;
    stage.check(by_agent.is_empty(), || format!("the agent signalled: {by_agent:?}"));
    stage.check_equal("eviction records", &agent.events("eviction").len(), &0);
    stage.check_no_oom_kill()?;
    // Not vacuous: the pages were really in use.
    let resident = judge::THRESHOLD;
    let active = meminfo("Active(file)")?;
    stage.check(active > resident, || format!("only {:.0} MiB of file pages are active", mib(active)));
    Ok(())
}

/// Whether something is mounted there.
pub fn mounted(target: &str) -> bool {
    std::fs::read_to_string("/proc/mounts")
        .is_ok_and(|text| text.lines().any(|line| line.split(' ').nth(1) == Some(target)))
}
