//! Measures the cost of each probe by the kernel's count (`BPF_ENABLE_STATS`), on this machine and in cgroups of the bench.
//! Prints `probe NAME HITS hits NANOSECONDS ns` for each probe: the best of several rounds, since other work shares the caches. The
//! kernel's count includes the count itself, so a program that does nothing is measured beside the probes, under the name `empty`.

use std::{
    env, fs,
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    process::Command,
    thread,
};

use anyhow::{Context, Result, ensure};
use aya::sys::{Stats, enable_stats};
use empty_program::EmptyProgram;
use node_pressure_monitor::{
    config::KernelOptions,
    kernel::{Kernel, ProbeStatistics},
};
use reference::NATIVE_READS;
use rustix::fs::{Advice, fadvise};
use support::{Cgroups, Hierarchy, LIMIT, Workload, file_system_of};

#[path = "support/empty_program.rs"]
mod empty_program;
#[path = "../../tests/src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;
#[path = "../tests/support/mod.rs"]
#[expect(dead_code, reason = "the test uses more of it")]
mod support;

/// The number of rounds without improvement that end the bench. Other work only adds to a cost, and an improvement is a hundredth or more.
const CALM_ROUNDS: usize = 6;
const MOST_ROUNDS: usize = 40;
const FILES: usize = 2000;
const EXITS: usize = 5000;
const SIGNALS: usize = 5000;
const RECLAIMS: usize = 200;
const ADJUSTMENTS: usize = 1000;
/// The tracepoint of the empty program: the one with the cheapest probe.
const EMPTY_AT: &str = "signal/signal_generate";
/// The number of hits of one round that are too few for a result.
const FEW: u64 = 100;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "workload", "busy", cgroup, directory] => busy(Path::new(cgroup), Path::new(directory)),
        [_, "workload", kind, rest @ ..] => support::workload(kind, rest),
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
        println!("SKIPPED probes: needs root");
        return Ok(());
    }
    let Some(hierarchy) = Hierarchy::find() else {
        println!("SKIPPED probes: no memory controller in /sys/fs/cgroup");
        return Ok(());
    };
    let mut kernel = Kernel::load(&KernelOptions::default(), std::process::id());
    if kernel.report().attached() == 0 {
        println!("SKIPPED probes: {:?}", kernel.report().degradations);
        return Ok(());
    }
    let cgroups = Cgroups::make(&hierarchy)?;
    let directory = Path::new("/var/tmp").join(format!("npm-bench-{}", std::process::id()));
    let file_system = file_system_of(Path::new("/var/tmp"))?.unwrap_or_default();
    println!("probes: files are made on {file_system}");
    // The kernel counts while this descriptor is open, so the count ends even if the bench is killed (5.8).
    let _counting = enable_stats(Stats::RunTime).context("counting the runs of programs; needs CAP_SYS_ADMIN")?;
    let empty = EmptyProgram::attach(EMPTY_AT)?;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut best: Vec<Best> = Vec::new();
    let (mut events, mut kills) = (Vec::new(), Vec::new());
    let mut calm = 0;
    for round in 0..=MOST_ROUNDS {
        statistics(&kernel, &empty, &mut before)?;
        fs::create_dir(&directory)?;
        let worked = round_of_work(&cgroups, &directory);
        fs::remove_dir_all(&directory)?;
        worked?;
        while kernel.drain(4096, &mut events, &mut kills).exhausted {}
        events.clear();
        kills.clear();
        statistics(&kernel, &empty, &mut after)?;
        // The first round includes the cost of cold caches, and does not count.
        if round > 0 {
            let mut is_better = false;
            for after in &after {
                let before = before.iter().find(|before| before.name == after.name);
                is_better |= Best::take(&mut best, before.context("a probe without figures before the round")?, after);
            }
            calm = if is_better { 0 } else { calm + 1 };
        }
        if calm == CALM_ROUNDS {
            break;
        }
    }
    println!("allowance {:.3}", NATIVE_READS.slowness()?.allowance());
    for best in best {
        let nanos = if best.hits == 0 { 0.0 } else { best.nanos };
        println!("probe {} {} hits {nanos:.0} ns", best.name, best.hits);
    }
    Ok(())
}

fn statistics(kernel: &Kernel, empty: &EmptyProgram, out: &mut Vec<ProbeStatistics>) -> Result<()> {
    kernel.statistics(out);
    let (hits, nanos) = empty.runs()?;
    out.push(ProbeStatistics { name: "empty".to_owned(), hits, nanos, missed: 0 });
    Ok(())
}

/// The round with the lowest mean.
struct Best {
    name: String,
    hits: u64,
    nanos: f64,
}

impl Best {
    /// Keeps the cheaper of two rounds; returns whether the new one is cheaper by a hundredth or more.
    fn take(all: &mut Vec<Self>, before: &ProbeStatistics, after: &ProbeStatistics) -> bool {
        let hits = after.hits - before.hits;
        let nanos = if hits == 0 { f64::INFINITY } else { as_f64(after.nanos - before.nanos) / as_f64(hits) };
        let Some(best) = all.iter_mut().find(|best| best.name == after.name) else {
            all.push(Self { name: after.name.clone(), hits, nanos });
            return true;
        };
        let is_better = nanos < 0.99 * best.nanos;
        if nanos < best.nanos {
            (best.hits, best.nanos) = (hits, nanos);
        }
        // A few hits are no reliable result.
        is_better && hits > FEW
    }
}

fn as_f64(number: u64) -> f64 {
    std::time::Duration::from_nanos(number).as_secs_f64() * 1e9
}

fn round_of_work(cgroups: &Cgroups, directory: &Path) -> Result<()> {
    let argument = directory.display().to_string();
    Workload::start("busy", &cgroups.allocator, &[argument])?.wait()?;
    let mut hog = Workload::start("hog", &cgroups.victim, &[])?;
    hog.wait_killed()
}

/// Performs many harmless operations that hit the probes.
fn busy(cgroup: &Path, directory: &Path) -> Result<()> {
    fs::write(cgroup.join("cgroup.procs"), std::process::id().to_string())?;
    println!("ready");
    for number in 0..FILES {
        fs::write(directory.join(number.to_string()), "")?;
    }
    for number in 0..FILES {
        fs::remove_file(directory.join(number.to_string()))?;
    }
    page_cache(&directory.join("hole"))?;
    reclaim_in_vain(cgroup);
    for _ in 0..EXITS {
        thread::spawn(|| {}).join().ok().context("a thread that does nothing")?;
    }
    for _ in 0..SIGNALS {
        // A process ignores this signal by default.
        // SAFETY: signals only this process.
        ensure!(unsafe { libc::raise(libc::SIGWINCH) } == 0, "raise");
    }
    for adjustment in 0..ADJUSTMENTS {
        fs::write("/proc/self/oom_score_adj", if adjustment % 2 == 0 { "1000" } else { "999" })?;
    }
    for _ in 0..10 {
        let mut child = Command::new("/bin/sleep").arg("60").spawn()?;
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

/// Requests reclaim repeatedly where nothing can be freed, which is the rate at which a probe's cost matters.
fn reclaim_in_vain(cgroup: &Path) {
    let knob =
        cgroup.join(if cgroup.join("memory.reclaim").exists() { "memory.reclaim" } else { "memory.force_empty" });
    for _ in 0..RECLAIMS {
        let _refused = fs::write(&knob, "1M");
    }
}

/// Reads a sparse file page by page: the cgroup is at its limit and reclaims for every few pages.
fn page_cache(path: &Path) -> Result<()> {
    let length = 2 * LIMIT as u64;
    File::create(path)?.set_len(length)?;
    let mut file = File::open(path)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut page = [0; 4096];
    for _ in 0..2 {
        file.seek(SeekFrom::Start(0))?;
        while file.read(&mut page)? > 0 {}
    }
    Ok(())
}
