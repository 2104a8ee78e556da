//! A small filesystem runs out of inodes: compares the predicted time with the real time.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cache::mounted;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::http::Metrics;
use crate::init::SMALL;
use crate::processes::Ended;
use crate::stage::Stage;
use crate::units::monotonic_ns;

/// The inodes made per second. The filesystem has about two thousand.
const RATE: u32 = 110;
/// The time after which the agent must know the growth rate, which it smooths over some seconds.
const WATCHED: Duration = Duration::from_secs(10);
/// The allowed deviation of the prediction, as a share of the real time.
const TOLERANCE: f64 = 0.3;

pub fn exhaustion(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(SMALL) {
        stage.skip("no small disk in this guest");
        return Ok(());
    }
    let dir = format!("{SMALL}/files");
    fs::create_dir(&dir).with_context(|| format!("create {dir}"))?;
    let device = device_of(&dir)?;
    let agent = stage.agent(&AgentConfig::observe())?;
    let free = free_inodes(&dir)?;
    let exported = agent.metrics()?.sum("filesystem_inodes_free", &[("device", &device)]);
    stage.check_equal("free inodes", &exported, &Some(free));

    let pod = stage.pod("hoarder", PodSpec::best_effort())?;
    let worker = stage.work(&pod, &format!("fill --name hoarder --dir {dir} --per-second {RATE}"))?;
    let pid = worker.pid;
    // The agent computes the rate between two scrapes, so this loop scrapes like a monitoring system.
    let mut metrics = Metrics::default();
    for _ in 0..10 {
        stage.pause(WATCHED / 10);
        metrics = agent.metrics()?;
    }
    let asked = monotonic_ns();
    let predicted = metrics.sum("inodes_exhaustion_seconds", &[("device", &device)]).unwrap_or(f64::NAN);
    let growth = metrics.sum("inode_growth_per_second", &[("device", &device)]).unwrap_or(f64::NAN);
    let full = stage.until(Duration::from_secs(60), |stage| stage.reaper.ended(pid).is_some());
    stage.check(full, || "the file system was not full after 60 s".to_owned());
    let happened = Duration::from_nanos(monotonic_ns() - asked).as_secs_f64();
    let ended = stage.reaper.ended(pid);
    stage.check_equal("the hoarder's end", &ended, &Some(Ended::Exited(0)));
    stage.check_equal("free inodes at the end", &free_inodes(&dir)?, &0.0);
    stage.figure("predicted", predicted, "s");
    stage.figure("happened", happened, "s");
    stage.figure("growth", growth, "inodes/s");
    stage.check((predicted - happened).abs() <= TOLERANCE * happened + 0.5, || {
        format!("foretold {predicted:.1} s before the end, which came after {happened:.1} s")
    });
    let made = agent.metrics()?.sum("inodes_created_total", &[("workload", pod.workload()), ("device", &device)]);
    stage.check_equal("inodes made by the hoarder", &made, &Some(free));
    stage.stop(&agent);
    Ok(())
}

fn free_inodes(dir: &str) -> Result<f64> {
    let figures = rustix::fs::statvfs(dir).with_context(|| format!("statvfs {dir}"))?;
    Ok(f64::from(u32::try_from(figures.f_ffree)?))
}

/// Returns `major:minor` of the device that holds the directory.
fn device_of(dir: &str) -> Result<String> {
    let device = fs::metadata(dir).with_context(|| format!("stat {dir}"))?.dev();
    Ok(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}
