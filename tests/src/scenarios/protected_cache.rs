//! Page cache under `memory.min` is never handed out, although `MemAvailable` counts it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::cache::mounted;
use super::judge::THRESHOLD;
use super::pressure::{Bystanders, EVERYTHING_MIB, RATE_MIB};
use crate::agent::Agent;
use crate::cgroups::{Cgroup, PodSpec};
use crate::config::AgentConfig;
use crate::init::EXT4;
use crate::sampler;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib};

const READY: &str = "/tmp/protected-cache-ready";
const CACHE_MIB: u64 = 300;
/// The cgroup's memory that is no cache, so that all of the cache is protected.
const OTHER_MIB: u64 = 16;
/// The cache that must be protected at least. Some pages of the file may be charged elsewhere.
const PROTECTED_AT_LEAST_MIB: u64 = 270;

/// A cgroup of 300 MiB of cache with `memory.min`, then a ramp. `MemAvailable` never reaches the threshold.
pub fn protected_cache(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let reader = protected_reader(stage)?;
    let bystanders = Bystanders::start(stage, 100, 60)?;
    let agent = stage.agent(&AgentConfig::default())?;
    check_figures(stage, &agent)?;

    stage.boot.sampler.start();
    let pod = stage.pod("hog", PodSpec::best_effort())?;
    let ramp = format!("ramp --name hog --rate {RATE_MIB} --to {EVERYTHING_MIB} --fast-until 520");
    let hog = stage.work(&pod, &ramp)?;
    let ended = stage.until(Duration::from_secs(25), |stage| stage.reaper.ended(hog.pid).is_some());
    stage.check(ended, || "the ramp has not ended".to_owned());
    stage.check_killed(&hog);
    let [guaranteed, burstable] = bystanders.all();
    stage.check_alive(&[&reader, guaranteed, burstable]);
    stage.check_no_oom_kill()?;
    // The agent counts the eviction when it has seen the end of the process, too.
    let killed = || agent.metrics().ok()?.sum("evictions_total", &[("outcome", "killed")]);
    stage.until(Duration::from_secs(5), |_| killed().is_some_and(|it| it > 0.0));
    stage.check_equal("evictions_total{outcome=killed}", &killed().unwrap_or(0.0), &1.0);
    let lowest = sampler::lowest(&stage.boot.sampler.curve()).unwrap_or(0);
    stage.check(lowest > THRESHOLD + 100 * MIB, || {
        format!("MemAvailable fell to {:.0} MiB, so the threshold was met without the correction", mib(lowest))
    });
    stage.figure("lowest_mem_available", mib(lowest), "MiB");
    stage.stop(&agent);
    Ok(())
}

/// Starts a service whose file is in memory and protected.
fn protected_reader(stage: &mut Stage<'_>) -> Result<Worker> {
    let _ = std::fs::remove_file(READY);
    let path = "protected.service";
    let cgroup = Cgroup::create(stage.layout(), path)?;
    cgroup.write("memory.min", &((CACHE_MIB + OTHER_MIB) * MIB).to_string())?;
    let work = format!("cache --name protected --file {EXT4}/protected --mib {CACHE_MIB} --ready {READY}");
    let reader = stage.host_service(path, &work, 0)?;
    if !stage.until(Duration::from_secs(40), |_| Path::new(READY).exists()) {
        bail!("the file was not in memory after 40 s");
    }
    Ok(reader)
}

fn check_figures(stage: &mut Stage<'_>, agent: &Agent) -> Result<()> {
    stage.pause(Duration::from_secs(3));
    let metrics = agent.metrics()?;
    let value = |name: &str, label, value| metrics.sum(name, &[(label, value)]).unwrap_or(0.0) / 1_048_576.0;
    let protected = value("memory_correction_bytes", "correction", "protected_file_min");
    stage
        .check(protected > mib(PROTECTED_AT_LEAST_MIB * MIB), || format!("only {protected:.0} MiB count as protected"));
    stage.figure("protected_file_min", protected, "MiB");
    stage.figure("corrected_available", value("memory_available_bytes", "semantics", "corrected"), "MiB");
    Ok(())
}
