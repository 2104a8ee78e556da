//! Measures a read of every aggregate of a thousand real cgroups, each with stalls and inodes of its own.
//! Prints `aggregates CGROUPS cgroups: MILLISECONDS ms`, the median.

use std::{
    env, fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use node_pressure_monitor::{config::KernelOptions, kernel::Kernel};
use reference::NATIVE_READS;
use support::{Cgroups, Hierarchy, Workload, file_system_of, id_of, remove_cgroup};

#[path = "../../tests/src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;
#[path = "../tests/support/mod.rs"]
#[expect(dead_code, reason = "the test uses more of it")]
mod support;

const CGROUPS: usize = 1000;
/// The number of tasks that move from cgroup to cgroup.
const WANDERERS: usize = 25;
const READS: usize = 51;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "workload", "wander", top, directory, first] => wander(Path::new(top), Path::new(directory), first),
        // `cargo test --benches` only checks that the bench starts.
        arguments if !arguments.contains(&"--bench") => Ok(()),
        _ => measure(),
    };
    if let Err(error) = outcome {
        eprintln!("FAILED: {error:#}");
        std::process::exit(1);
    }
}

fn measure() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED aggregates: needs root");
        return Ok(());
    }
    let Some(hierarchy) = Hierarchy::find() else {
        println!("SKIPPED aggregates: no memory controller in /sys/fs/cgroup");
        return Ok(());
    };
    if file_system_of(Path::new("/var/tmp"))?.is_none_or(|name| name != "ext4" && name != "xfs") {
        println!("SKIPPED aggregates: /var/tmp is neither on ext4 nor on xfs");
        return Ok(());
    }
    let mut kernel = Kernel::load(&KernelOptions::default(), std::process::id());
    if kernel.report().attached() == 0 {
        println!("SKIPPED aggregates: {:?}", kernel.report().degradations);
        return Ok(());
    }
    let cgroups = Cgroups::make(&hierarchy)?;
    let begun = Instant::now();
    let made = Made::new(&cgroups)?;
    let directory = format!("/var/tmp/npm-bench-{}", std::process::id());
    fs::create_dir(&directory)?;
    let walked = walk(&cgroups, &directory);
    fs::remove_dir_all(&directory)?;
    walked?;
    println!("aggregates: {CGROUPS} cgroups made and busied in {:.1} s", begun.elapsed().as_secs_f64());

    let (mut counters, mut inodes) = (Vec::new(), Vec::new());
    let mut times: Vec<Duration> = (0..READS)
        .map(|_| {
            let begun = Instant::now();
            kernel.cgroups(&mut counters);
            kernel.inodes(&mut inodes);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    for id in &made.ids {
        let stalled = counters.iter().any(|(cgroup, counters)| cgroup == id && counters.memcg.stalls > 0);
        let made = inodes.iter().any(|(cgroup, _, counters)| cgroup == id && counters.created > 0);
        ensure!(stalled && made, "{id:?}: stalls counted {stalled}, inodes counted {made}");
    }
    println!("aggregates: {} cgroups with stalls or kills, {} with inodes", counters.len(), inodes.len());
    println!("allowance {:.3}", NATIVE_READS.slowness()?.allowance());
    println!("aggregates {CGROUPS} cgroups: {:.3} ms", times[READS / 2].as_secs_f64() * 1e3);
    Ok(())
}

/// Moves tasks through the cgroups. A move takes a grace period of RCU, which concurrent moves share.
fn walk(cgroups: &Cgroups, directory: &str) -> Result<()> {
    let start = |first: usize| Workload::start("wander", &cgroups.top, &[directory.to_owned(), first.to_string()]);
    let wanderers: Vec<Workload> = (0..WANDERERS).map(start).collect::<Result<_>>()?;
    wanderers.into_iter().try_for_each(|mut wanderer| wanderer.wait())
}

/// The bench's cgroups. Dropping it removes them.
struct Made<'c> {
    cgroups: &'c Cgroups,
    ids: Vec<node_pressure_monitor::units::CgroupId>,
}

impl<'c> Made<'c> {
    fn new(cgroups: &'c Cgroups) -> Result<Self> {
        let mut made = Self { cgroups, ids: Vec::new() };
        for index in 0..CGROUPS {
            made.ids.push(id_of(&cgroups.child(&index.to_string())?)?);
        }
        Ok(made)
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for index in 0..self.ids.len() {
            if let Err(error) = remove_cgroup(&self.cgroups.top.join(index.to_string())) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// Moves this task from cgroup to cgroup. In each it makes a file and requests reclaim.
fn wander(top: &Path, directory: &Path, first: &str) -> Result<()> {
    println!("ready");
    let own = std::process::id().to_string();
    for index in (first.parse::<usize>()?..CGROUPS).step_by(WANDERERS) {
        let cgroup = top.join(index.to_string());
        fs::write(cgroup.join("cgroup.procs"), &own)?;
        let file = directory.join(index.to_string());
        fs::write(&file, vec![1; 64 << 10])?;
        let (knob, text) = if cgroup.join("memory.reclaim").exists() {
            ("memory.reclaim", "16K")
        } else {
            // The kernel refuses while the cgroup has tasks and nothing can be freed. The attempt is sufficient.
            ("memory.force_empty", "0")
        };
        let _refused = fs::write(cgroup.join(knob), text);
        fs::remove_file(&file)?;
    }
    fs::write(top.join("allocator").join("cgroup.procs"), &own)?;
    Ok(())
}
