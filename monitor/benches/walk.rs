//! Measures the background walk over many files: files per second, and whether it stays within its budget.
//! Prints `walk FILES files: SECONDS s, CPU_SECONDS s of a CPU, share SHARE of BUDGET`; `WALK_FILES` sets the number of files.

use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use node_pressure_monitor::config::DiskUsageOptions;
use node_pressure_monitor::disk::{Roots, Usage, Walker, WorkloadPlaces};
use node_pressure_monitor::units::CgroupId;
use node_pressure_monitor::workloads::PodUid;
use rustix::fs::{Mode, OFlags, openat};
use rustix::time::{ClockId, clock_gettime};

#[path = "support/start.rs"]
mod start;

const FILES: usize = 1_000_000;
/// The files of a directory, as in a cache or a mail store: many, but not an extreme number.
const IN_A_DIRECTORY: usize = 1000;
const POD: &str = "1b2c3d4e-0000-1111-2222-333344445555";
const PATIENCE: Duration = Duration::from_secs(3600);

fn main() {
    start::run(measure);
}

fn measure() -> Result<()> {
    let files = match std::env::var("WALK_FILES") {
        Ok(text) => text.parse().with_context(|| format!("WALK_FILES={text} is no number"))?,
        Err(_) => FILES,
    };
    let node = Node::new()?;
    let begun = Instant::now();
    let directories = node.make(files)?;
    let made = begun.elapsed();
    println!("walk: {files} files in {directories} directories made in {:.1} s", made.as_secs_f64());

    let options = DiskUsageOptions::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut walker = Walker::start(&options, node.roots())?;
    let cpu = process_cpu();
    let begun = Instant::now();
    walker.set_workloads(vec![node.places()]);
    let usage = runtime.block_on(async { tokio::time::timeout(PATIENCE, whole(&mut walker)).await })?;
    let (took, cpu) = (begun.elapsed(), process_cpu().saturating_sub(cpu));
    drop(walker);

    let found = usage.inodes;
    // The count includes the directories and the volume itself.
    ensure!(found == u64::try_from(files + directories + 1)?, "{found} inodes found");
    let own = cpu.as_secs_f64();
    println!("walk: {:.2} µs of a CPU for each file, {}", own * 1e6 / f64::from(u32::try_from(files)?), usage.bytes);
    println!(
        "walk {files} files: {:.1} s, {own:.3} s of a CPU, share {:.4} of {:.4}",
        took.as_secs_f64(),
        own / took.as_secs_f64(),
        options.cpu_share
    );
    ensure!(own / took.as_secs_f64() <= options.cpu_share, "the walk takes more than its budget");
    Ok(())
}

async fn whole(walker: &mut Walker) -> Usage {
    loop {
        if let Some(usage) = walker.usages().get(POD, CgroupId(1))
            && usage.is_complete
        {
            return Usage::clone(usage);
        }
        walker.changed().await;
    }
}

/// Returns the CPU time of all threads, which includes every part of the walk.
fn process_cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// A node's file tree below the target directory. Dropping it removes the tree.
struct Node(PathBuf);

impl Node {
    fn new() -> Result<Self> {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("walk-{}", std::process::id()));
        for directory in ["proc/1", "var/log/pods"] {
            fs::create_dir_all(root.join(directory)).with_context(|| format!("cannot make {}", root.display()))?;
        }
        let node = Self(root);
        symlink(&node.0, node.0.join("proc/1/root"))?;
        Ok(node)
    }

    fn roots(&self) -> Roots {
        Roots::new(self.0.join("proc"))
    }

    fn places(&self) -> WorkloadPlaces {
        WorkloadPlaces {
            workload: POD.to_owned(),
            id: CgroupId(1),
            cgroup: self.0.join("cgroup"),
            pod: Some(PodUid(POD.to_owned())),
            layers: Vec::new(),
            is_limited: false,
            trusts_quotas: false,
        }
    }

    /// Makes a volume with this many files; returns the number of their directories.
    fn make(&self, files: usize) -> Result<usize> {
        let volume = self.0.join("var/lib/kubelet/pods").join(POD).join("volumes/kubernetes.io~empty-dir/cache");
        fs::create_dir_all(&volume)?;
        let directories = files.div_ceil(IN_A_DIRECTORY);
        for first in (0..files).step_by(IN_A_DIRECTORY) {
            let path = volume.join(first.to_string());
            fs::create_dir(&path)?;
            let directory = OwnedFd::from(fs::File::open(&path)?);
            for file in first..files.min(first + IN_A_DIRECTORY) {
                let name = CString::new(format!("object-{file:08}"))?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                openat(&directory, name, flags, Mode::from_raw_mode(0o600))?;
            }
        }
        Ok(directories)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let begun = Instant::now();
        match fs::remove_dir_all(&self.0) {
            Ok(()) => println!("walk: removed in {:.1} s", begun.elapsed().as_secs_f64()),
            Err(error) => eprintln!("cannot remove {}: {error}", self.0.display()),
        }
    }
}
