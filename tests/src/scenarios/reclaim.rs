//! The agent's counts of reclaim stalls, pages and kswapd's work for each workload equal the kernel's counts.

use std::time::Duration;

use anyhow::{Result, bail};

use super::accounts::{MEMCG_RECLAIM_END, end};
use super::cache::mounted;
use super::pressure::EVERYTHING_MIB;
use crate::agent::Agent;
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::evidence::vmstat;
use crate::http::Metrics;
use crate::init::EXT4;
use crate::stage::Stage;
use crate::units::MIB;

const DIRECT_RECLAIM_END: &str = "vmscan/mm_vmscan_direct_reclaim_end";
/// The number of direct reclaims from which some are the squeezer's own.
const ENOUGH: u64 = 5;
const STALLS: &str = "reclaim_stall_seconds_count";

pub fn reclaim(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let calm = stage.pod("calm", PodSpec::best_effort())?;
    // The kernel sometimes kills a second process while the first is still exiting. The score protects this one.
    let sleeper = stage.work_in(calm.container()?, "calm", "hold --name calm --mib 16", -900)?;
    stage.wait_resident(&sleeper, 16)?;
    let agent = stage.agent(&AgentConfig::observe())?;
    let boot = stage.boot;
    let (memcg, direct) = (boot.trace.count(MEMCG_RECLAIM_END)?, boot.trace.count(DIRECT_RECLAIM_END)?);
    let allocstalls = vmstat("allocstall_")?;
    let before = agent.metrics()?;

    let staller = stage.pod("staller", PodSpec::best_effort())?;
    staller.container()?.limit(8 * MIB)?;
    let work = format!("memcg-stall --name staller --file {EXT4}/stall --mib 48");
    let workers = [stage.work(&staller, &work)?, stage.work(&staller, &work)?];
    stage.pause(Duration::from_secs(2));
    end(stage, &workers);
    let squeezer = squeeze(stage)?;

    let (memcg, direct) = (count(memcg.hits()?), count(direct.hits()?));
    let allocstalls = count(vmstat("allocstall_")? - allocstalls);
    let metrics = settled(stage, &agent, memcg + direct);
    let rise = |kind| {
        metrics.sum(STALLS, &[("kind", kind)]).unwrap_or(0.0) - before.sum(STALLS, &[("kind", kind)]).unwrap_or(0.0)
    };
    // A process that is killed during a reclaim begins this reclaim but does not end it.
    check_near(stage, "memcg stalls", rise("memcg"), memcg);
    check_near(stage, "direct stalls", rise("direct"), direct);
    // A direct reclaim that restarts with other limits counts twice.
    stage.check(direct <= allocstalls + 8.5, || format!("{direct} direct reclaims, /proc/vmstat has {allocstalls}"));
    check_workload(stage, &metrics, &staller, "memcg");
    let labels = [("workload", squeezer.workload()), ("kind", "direct")];
    let squeezed = metrics.sum(STALLS, &labels).unwrap_or(0.0);
    stage.check(squeezed > 0.0, || "who took all memory was never held up for it".to_owned());
    let calm_stalls = metrics.sum(STALLS, &[("workload", calm.workload())]).unwrap_or(0.0);
    stage.check_equal("stalls of who only sleeps", &calm_stalls, &0.0);
    stage.check_alive(&[&sleeper]);
    check_kswapd(stage, &before, &metrics);
    stage.figure("memcg_stalls", memcg, "");
    stage.figure("direct_stalls", direct, "");
    stage.stop(&agent);
    Ok(())
}

/// Starts a pod that allocates more memory than the machine has, beside a reader of files, until the kernel has stalled it in reclaim. An
/// OOM kill may not follow: without swap the machine may reclaim its programs' own pages for a minute first.
pub fn squeeze(stage: &mut Stage<'_>) -> Result<Pod> {
    let reader = stage.pod("reader", PodSpec::best_effort())?;
    let reader = stage.work(&reader, &format!("memcg-stall --name reader --file {EXT4}/squeeze --mib 96"))?;
    let pod = stage.pod("squeezer", PodSpec::best_effort())?;
    let work = format!("ramp --name squeezer --rate max --to {EVERYTHING_MIB}");
    let stalls = vmstat("allocstall_")?;
    let squeezer = stage.work_in(pod.container()?, "squeezer", &work, 1000)?;
    let pid = squeezer.pid;
    let held_up = stage.until(Duration::from_secs(45), |stage| {
        vmstat("allocstall_").is_ok_and(|now| now >= stalls + ENOUGH) || stage.reaper.ended(pid).is_some()
    });
    stage.until(Duration::from_secs(2), |stage| stage.reaper.ended(pid).is_some());
    end(stage, &[reader, squeezer]);
    if held_up { Ok(pod) } else { bail!("no process was held up for memory in 45 s") }
}

fn count(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn settled(stage: &mut Stage<'_>, agent: &Agent, expected: f64) -> Metrics {
    let mut metrics = Metrics::default();
    stage.until(Duration::from_secs(5), |_| {
        metrics = agent.metrics().unwrap_or_default();
        metrics.sum(STALLS, &[]).is_some_and(|found| found + 0.5 >= expected)
    });
    metrics
}

fn check_near(stage: &mut Stage<'_>, what: &str, found: f64, kernel: f64) {
    stage.check(kernel > 0.0, || format!("{what}: the kernel counted none"));
    stage.check((found - kernel).abs() < 8.5, || format!("{what}: the agent has {found}, the kernel {kernel}"));
}

/// Asserts that count, sum and buckets of one workload agree, and that pages were reclaimed.
fn check_workload(stage: &mut Stage<'_>, metrics: &Metrics, pod: &Pod, kind: &str) {
    let labels = [("workload", pod.workload()), ("kind", kind)];
    let value = |name: &str| metrics.sum(name, &labels).unwrap_or(0.0);
    let (stalls, seconds) = (value(STALLS), value("reclaim_stall_seconds_sum"));
    stage.check(stalls > 0.0 && seconds > 0.0, || format!("{}: {stalls} stalls of {seconds} s", pod.label));
    let mut buckets: Vec<(f64, f64)> = metrics
        .all("reclaim_stall_seconds_bucket")
        .filter(|series| labels.iter().all(|(key, value)| series.label(key) == *value))
        .filter_map(|series| Some((series.label("le").parse().ok()?, series.value)))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    stage.check(buckets.len() > 3, || format!("{}: {} buckets", pod.label, buckets.len()));
    stage.check(buckets.is_sorted_by(|a, b| a.1 <= b.1), || format!("{}: buckets fall: {buckets:?}", pod.label));
    stage.check_equal("the last bucket", &buckets.last().copied(), &Some((f64::INFINITY, stalls)));
    let (reclaimed, scanned) = (value("reclaim_pages_reclaimed_total"), value("reclaim_pages_scanned_total"));
    stage.check(reclaimed > 0.0, || format!("{}: no pages reclaimed", pod.label));
    // Zero means unknown: the multi-generational LRU reports no scans before 6.7. Slab is reclaimed without being scanned on an LRU list.
    stage.check(scanned == 0.0 || reclaimed <= 1.1 * scanned, || {
        format!("{}: reclaimed {reclaimed} of {scanned} scanned pages", pod.label)
    });
}

fn check_kswapd(stage: &mut Stage<'_>, before: &Metrics, after: &Metrics) {
    let rise = |name| after.sum(name, &[]).unwrap_or(0.0) - before.sum(name, &[]).unwrap_or(0.0);
    let (wakes, reclaimed) = (rise("kswapd_wakes_total"), rise("kswapd_pages_reclaimed_total"));
    stage.check(wakes > 0.0, || "kswapd was never woken".to_owned());
    stage.figure("kswapd_pages_reclaimed", reclaimed, "pages");
}
