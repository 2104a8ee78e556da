//! Three workloads make and remove a hundred thousand files at the same time.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cache::mounted;
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::http::Metrics;
use crate::init::{EXT4, XFS};
use crate::processes::{self, Ended};
use crate::stage::{Stage, Worker};
use crate::units::monotonic_ns;

/// The numbers of files: 100,000 in all. They differ, so that swapped counts cannot be equal.
const FILES: [u32; 3] = [33_000, 33_334, 33_666];

pub fn turnover(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    // Two workloads share a filesystem; the third uses xfs if it is mounted.
    let other = if mounted(XFS) { XFS } else { EXT4 };
    let agent = stage.agent(&AgentConfig::observe())?;
    let cpu_before = processes::cpu_time(agent.pid)?;
    let begun = monotonic_ns();
    let mut jobs: Vec<(Pod, Worker, u32)> = Vec::new();
    for (number, (files, filesystem)) in FILES.into_iter().zip([EXT4, EXT4, other]).enumerate() {
        let pod = stage.pod(&format!("turnover{number}"), PodSpec::burstable(32))?;
        // Process 1 makes the directory, so its inode belongs to no workload.
        let dir = format!("{filesystem}/turnover{number}");
        fs::create_dir(&dir).with_context(|| format!("create {dir}"))?;
        let worker = stage.work(&pod, &format!("turnover --name turnover --dir {dir} --files {files}"))?;
        jobs.push((pod, worker, files));
    }
    for (_, worker, _) in &jobs {
        let pid = worker.pid;
        stage.until(Duration::from_secs(150), |stage| stage.reaper.ended(pid).is_some());
        let ended = stage.reaper.ended(pid);
        stage.check_equal("a worker's end", &ended, &Some(Ended::Exited(0)));
    }
    let span = Duration::from_nanos(monotonic_ns() - begun).as_secs_f64();
    let cpu = Duration::from_nanos(processes::cpu_time(agent.pid)? - cpu_before).as_secs_f64();
    let mut metrics = Metrics::default();
    stage.until(Duration::from_secs(15), |_| {
        metrics = agent.metrics().unwrap_or_default();
        jobs.iter().all(|(pod, _, files)| counts(&metrics, pod) == [Some(f64::from(*files)); 2])
    });
    for (pod, _, files) in &jobs {
        let found = counts(&metrics, pod);
        stage.check_equal(&format!("{}: made and removed", pod.label), &found, &[Some(f64::from(*files)); 2]);
    }
    stage.check_equal("files in all", &jobs.iter().map(|(_, _, files)| files).sum(), &100_000);
    stage.figure("span", span, "s");
    stage.figure("rate", 200_000.0 / span, "inodes/s");
    stage.figure("agent_cpu", cpu / span * 100.0, "% of a core");
    stage.stop(&agent);
    Ok(())
}

/// Returns the inodes that a workload made and removed, on all devices.
fn counts(metrics: &Metrics, pod: &Pod) -> [Option<f64>; 2] {
    ["inodes_created_total", "inodes_removed_total"].map(|name| metrics.sum(name, &[("workload", pod.workload())]))
}
