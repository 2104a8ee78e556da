//! Removes one capability after another: the agent reports each degradation and still evicts.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::judge::{self, Expected, THRESHOLD};
use super::pressure::{Bystanders, ramping_pod};
use super::ramps::BPF_CAPABILITIES;
use crate::agent::Agent;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::incidents;
use crate::stage::Stage;
use crate::units::{MIB, milliseconds_between};

const PRESSURE: &str = "/proc/pressure";

/// Hides `/proc/pressure`, as on a kernel without PSI. Dropping it restores the files.
#[derive(Debug)]
struct WithoutPressure;

impl WithoutPressure {
    fn new() -> Result<Self> {
        mount("tmpfs", PRESSURE, "tmpfs", MountFlags::empty(), None).with_context(|| format!("mount on {PRESSURE}"))?;
        Ok(Self)
    }
}

impl Drop for WithoutPressure {
    fn drop(&mut self) {
        // If the unmount fails, a later scenario reports the missing files.
        let _ = unmount(PRESSURE, UnmountFlags::DETACH);
    }
}

pub fn ladder(stage: &mut Stage<'_>) -> Result<()> {
    incidents::forget()?;
    let config = AgentConfig {
        without_capabilities: BPF_CAPABILITIES.to_vec(),
        extra: incidents::configuration(),
        ..AgentConfig::default()
    };
    let hidden = WithoutPressure::new()?;
    stage.check(fs::read("/proc/pressure/memory").is_err(), || format!("{PRESSURE} is still there"));
    let bystanders = Bystanders::start(stage, 250, 100)?;
    let agent = stage.agent(&config)?;
    check_sources(stage, &agent, &[("memory.available", "polling")])?;
    stage.boot.sampler.start();
    let (pod, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    let expected = Expected {
        agent: &agent,
        victim: &pod,
        victims: &[hog.pid],
        bystanders: &bystanders.all(),
        threshold: THRESHOLD,
    };
    if let Some(timing) = judge::eviction(stage, &expected, Duration::from_secs(25))? {
        stage.figure("crossing_to_kill_ms", milliseconds_between(timing.crossed_ns, timing.first_kill_ns), "ms");
    }
    stage.stop(&agent);
    drop(hidden);

    let agent = stage.agent(&config)?;
    check_sources(stage, &agent, &[("memory.available", "psi"), ("oom_kills", "kmsg")])?;
    oom_kill(stage, &agent)?;
    stage.stop(&agent);
    Ok(())
}

/// Asserts that each of these signals has exactly one source, and that it is the expected one.
pub fn check_sources(stage: &mut Stage<'_>, agent: &Agent, expected: &[(&str, &str)]) -> Result<()> {
    let metrics = agent.metrics()?;
    for (signal, source) in expected {
        let found: Vec<&str> = metrics
            .all("signal_source")
            .filter(|series| series.label("signal") == *signal && series.value > 0.0)
            .map(|series| series.label("source"))
            .collect();
        stage.check_equal(&format!("the source of {signal}"), &found, &vec![*source]);
    }
    Ok(())
}

/// Asserts that without eBPF programs the agent reports an OOM kill, and the owner of the limit, from the kernel's log.
fn oom_kill(stage: &mut Stage<'_>, agent: &Agent) -> Result<()> {
    let pod = stage.pod("greedy", PodSpec::best_effort())?;
    let container = pod.container()?.clone();
    container.limit(32 * MIB)?;
    let worker = stage.work(&pod, "ramp --name greedy --rate max --to 96")?;
    let pid = u64::try_from(worker.pid).context("pid")?;
    let mut record = None;
    stage.until(Duration::from_secs(20), |_| {
        record = agent.events("oom_kill").into_iter().find(|record| record.number("victim_pid") == Some(pid));
        record.is_some()
    });
    let Some(record) = record else {
        stage.check(false, || "no oom_kill record without eBPF".to_owned());
        return Ok(());
    };
    stage.check_equal("victim_workload", &record.text("victim_workload"), &pod.workload());
    stage.check_equal("victim_comm", &record.text("victim_comm"), &"greedy");
    stage.check_equal("constraint", &record.text("constraint"), &"memcg");
    stage.check_equal("limit_workload", &record.text("limit_workload"), &pod.workload());
    let counted = stage.until(Duration::from_secs(5), |_| {
        agent
            .metrics()
            .is_ok_and(|metrics| metrics.sum("oom_kills_total", &[("workload", pod.workload())]) == Some(1.0))
    });
    stage.check(counted, || "oom_kills_total without eBPF is not 1".to_owned());
    Ok(())
}
