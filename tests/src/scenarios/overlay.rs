//! Files made through overlayfs, as in containers: the filesystem below makes one inode, and the agent counts one.

use std::ffi::CString;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::cache::mounted;
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::http::Metrics;
use crate::init::EXT4;
use crate::processes::Ended;
use crate::stage::{Stage, Worker};

/// The event of a new ext4 inode, for the kernel's own count.
const ALLOCATE: &str = "ext4/ext4_allocate_inode";
/// The event of a freed ext4 inode.
const FREE: &str = "ext4/ext4_free_inode";

/// A container's root as a runtime mounts it: an image as the lower layer, and the container's own upper layer.
#[derive(Debug)]
struct Root {
    merged: String,
}

impl Root {
    fn mount(label: &str) -> Result<Self> {
        let base = format!("{EXT4}/{label}");
        for layer in ["image", "upper", "work", "merged"] {
            let dir = format!("{base}/{layer}");
            fs::create_dir_all(&dir).with_context(|| format!("create {dir}"))?;
        }
        let file = format!("{base}/image/f0");
        fs::write(&file, "of the image").with_context(|| format!("write {file}"))?;
        let merged = format!("{base}/merged");
        let options = format!("lowerdir={base}/image,upperdir={base}/upper,workdir={base}/work");
        let options = CString::new(options).context("mount options")?;
        mount("overlay", &merged, "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .with_context(|| format!("mount overlay at {merged}"))?;
        Ok(Self { merged })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // A failed unmount makes the cleanup fail, which is reported.
        let _ = unmount(&self.merged, UnmountFlags::DETACH);
    }
}

/// The work of one container in its root. All numbers differ, so that swapped counts cannot be equal.
#[derive(Debug)]
struct Job {
    pod: Pod,
    worker: Worker,
    created: u32,
    removed: u32,
}

pub fn overlay(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let boot = stage.boot;
    let roots = [Root::mount("overlay0")?, Root::mount("overlay1")?];
    let agent = stage.agent(&AgentConfig::observe())?;
    let (allocated, freed) = (boot.trace.count(ALLOCATE)?, boot.trace.count(FREE)?);
    let mut jobs = Vec::new();
    for (number, root) in (0_u32..).zip(&roots) {
        let pod = stage.pod(&format!("overlay{number}"), PodSpec::best_effort())?;
        let (files, dirs, symlinks, removed) = (500 + 111 * number, 7 + number, 5 + 2 * number, 200 + 31 * number);
        let work = format!(
            "churn --name churn --dir {} --files {files} --dirs {dirs} --symlinks {symlinks} --remove {removed} --first 1",
            root.merged
        );
        let worker = stage.work(&pod, &work)?;
        jobs.push(Job { pod, worker, created: files + dirs + symlinks, removed });
    }
    for job in &jobs {
        let pid = job.worker.pid;
        stage.until(Duration::from_secs(30), |stage| stage.reaper.ended(pid).is_some());
        let ended = stage.reaper.ended(pid);
        stage.check_equal("the churner's end", &ended, &Some(Ended::Exited(0)));
    }
    let by_kernel = [allocated.hits()?, freed.hits()?];
    let mut metrics = Metrics::default();
    stage.until(Duration::from_secs(15), |_| {
        metrics = agent.metrics().unwrap_or_default();
        jobs.iter().all(|job| counts(&metrics, &job.pod) == expected(job))
    });
    for job in &jobs {
        let found = counts(&metrics, &job.pod);
        stage.check_equal(&format!("{}: made and removed", job.pod.label), &found, &expected(job));
    }
    // No other workload wrote to this disk.
    let sum = |pick: fn(&Job) -> u32| jobs.iter().map(|job| u64::from(pick(job))).sum();
    stage.check_equal(
        "made and removed by the kernel's count",
        &by_kernel,
        &[sum(|job| job.created), sum(|job| job.removed)],
    );
    copied_up(stage, &agent, &roots[0])?;
    drop(roots);
    stage.stop(&agent);
    Ok(())
}

/// Changes a file of the image. overlayfs copies it up first: one inode, made by the container that changes it.
fn copied_up(stage: &mut Stage<'_>, agent: &crate::agent::Agent, root: &Root) -> Result<()> {
    let pod = stage.pod("copier", PodSpec::best_effort())?;
    let worker = stage.work(&pod, &format!("append --name copier --file {}/f0", root.merged))?;
    let pid = worker.pid;
    stage.until(Duration::from_secs(15), |stage| stage.reaper.ended(pid).is_some());
    let ended = stage.reaper.ended(pid);
    stage.check_equal("the copier's end", &ended, &Some(Ended::Exited(0)));
    let mut found = None;
    stage.until(Duration::from_secs(10), |_| {
        found = agent.metrics().ok().and_then(|metrics| counts(&metrics, &pod)[0]);
        found == Some(1.0)
    });
    stage.check_equal("inodes made by copying up", &found, &Some(1.0));
    Ok(())
}

fn expected(job: &Job) -> [Option<f64>; 2] {
    [Some(f64::from(job.created)), Some(f64::from(job.removed))]
}

/// Returns the inodes that a workload made and removed, on all devices. A double count would appear here.
fn counts(metrics: &Metrics, pod: &Pod) -> [Option<f64>; 2] {
    ["inodes_created_total", "inodes_removed_total"].map(|name| metrics.sum(name, &[("workload", pod.workload())]))
}
