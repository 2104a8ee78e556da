//! Each inode that is made or removed is counted for the workload that did it.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cache::mounted;
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::http::Metrics;
use crate::init::{EXT4, XFS};
use crate::processes::Ended;
use crate::stage::{Stage, Worker};

/// The work of one pod on one filesystem. All numbers differ, so that swapped counts cannot be equal.
#[derive(Debug)]
struct Plan {
    files: u32,
    dirs: u32,
    symlinks: u32,
    remove: u32,
}

impl Plan {
    fn of(pod: u32, filesystem: u32) -> Self {
        let base = 300 + 100 * pod + 37 * filesystem;
        Self { files: base, dirs: 3 + pod, symlinks: 5 + 2 * pod, remove: base / 3 + pod }
    }

    fn created(&self) -> f64 {
        f64::from(self.files + self.dirs + self.symlinks)
    }

    fn removed(&self) -> f64 {
        f64::from(self.remove)
    }
}

#[derive(Debug)]
struct Job {
    pod: Pod,
    worker: Worker,
    plan: Plan,
    filesystem: &'static str,
}

pub fn inodes(stage: &mut Stage<'_>) -> Result<()> {
    let filesystems: Vec<&'static str> = [EXT4, XFS].into_iter().filter(|path| mounted(path)).collect();
    if filesystems.is_empty() {
        stage.skip("no disks in this guest");
        return Ok(());
    }
    let agent = stage.agent(&AgentConfig::observe())?;
    let mut jobs = Vec::new();
    for number in 0..3 {
        let pod = stage.pod(&format!("churn{number}"), PodSpec::burstable(32))?;
        // The last pod is a job: its cgroup outlives its process.
        if number < 2 {
            stage.work(&pod, "hold --name pause --mib 1")?;
        }
        for (index, filesystem) in (0_u32..).zip(&filesystems) {
            let plan = Plan::of(number, index);
            // Process 1 makes the directory, so its inode belongs to no workload.
            let dir = format!("{filesystem}/churn{number}");
            fs::create_dir(&dir).with_context(|| format!("create {dir}"))?;
            let work = format!(
                "churn --name churn --dir {dir} --files {} --dirs {} --symlinks {} --remove {}",
                plan.files, plan.dirs, plan.symlinks, plan.remove
            );
            let worker = stage.work(&pod, &work)?;
            jobs.push(Job { pod: Pod { containers: Vec::new(), ..pod.clone() }, worker, plan, filesystem });
        }
    }
    for job in &jobs {
        let pid = job.worker.pid;
        stage.until(Duration::from_secs(30), |stage| stage.reaper.ended(pid).is_some());
        let ended = stage.reaper.ended(pid);
        stage.check_equal("the churner's end", &ended, &Some(Ended::Exited(0)));
    }
    // The agent reads the maps at intervals, not at every event.
    let mut metrics = Metrics::default();
    stage.until(Duration::from_secs(15), |_| {
        metrics = agent.metrics().unwrap_or_default();
        jobs.iter().all(|job| wrong(&metrics, job).is_none())
    });
    if jobs.iter().any(|job| wrong(&metrics, job).is_some()) {
        for name in ["inodes_created_total", "inodes_removed_total"] {
            for series in metrics.all(name) {
                let (workload, device) = (series.label("workload"), series.label("device"));
                stage.note(format!("{name} workload={workload} device={device}: {}", series.value));
            }
        }
    }
    for job in &jobs {
        let problem = wrong(&metrics, job);
        stage.check(problem.is_none(), || problem.unwrap_or_default());
    }
    let devices: BTreeSet<&str> = metrics
        .all("inodes_created_total")
        .filter(|series| jobs.iter().any(|job| series.label("workload") == job.pod.workload()))
        .map(|series| series.label("device"))
        .collect();
    stage.check_equal("devices with counts", &devices.len(), &filesystems.len());
    stage.note(format!("{} jobs on {}; devices {devices:?}", jobs.len(), filesystems.join(" and ")));
    stage.check_equal("jobs", &jobs.len(), &(3 * filesystems.len()));
    stage.stop(&agent);
    Ok(())
}

/// Returns the differences, or `None`. One series of the workload must have exactly this job's count.
fn wrong(metrics: &Metrics, job: &Job) -> Option<String> {
    let values = |name: &str| -> Vec<f64> {
        metrics
            .all(name)
            .filter(|series| series.label("workload") == job.pod.workload())
            .map(|series| series.value)
            .collect()
    };
    let equal = |values: &[f64], wanted: f64| values.iter().filter(|value| (**value - wanted).abs() < 0.5).count() == 1;
    let (created, removed) = (values("inodes_created_total"), values("inodes_removed_total"));
    (!equal(&created, job.plan.created()) || !equal(&removed, job.plan.removed())).then(|| {
        format!(
            "{} on {}: made {} and removed {}, counted {created:?} and {removed:?}",
            job.pod.label,
            job.filesystem,
            job.plan.created(),
            job.plan.removed()
        )
    })
}
