//! Loads the real programs on this machine, provokes their events inside small memory cgroups, and checks every figure against the known
//! load. Needs root; prints SKIPPED and the reason where it cannot run.

#[path = "kernel_host/captured_log.rs"]
mod captured_log;
#[path = "kernel_host/kills.rs"]
mod kills;
mod support;

use std::{
    env, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use node_pressure_monitor::{
    config::KernelOptions,
    kernel::{
        Accounts, CgroupCounters, CgroupSource, DeviceId, Event, EventKind, InodeCounters, Kernel, OomKill, ReclaimKind,
    },
    units::{Bytes, CgroupId, Pid},
};
use rustix::fs::{major, minor};
use support::{Cgroups, FILES_MADE, FILES_REMOVED, Hierarchy, MIB, VICTIM_HOLDS, Workload, file_system_of, id_of};
use tokio::{runtime::Runtime, time::timeout};

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [_, "workload", kind, rest @ ..] => support::workload(kind, rest),
        // Answers tools that list the tests of a harness.
        [_, flags @ ..] if flags.contains(&"--list") => Ok(()),
        _ => test(),
    };
    if let Err(error) = outcome {
        eprintln!("FAILED: {error:#}");
        std::process::exit(1);
    }
}

fn skipped(reason: &str) -> Result<()> {
    println!("SKIPPED kernel_host: {reason}");
    Ok(())
}

fn test() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return skipped("needs root");
    }
    let Some(hierarchy) = Hierarchy::find() else {
        return skipped("no memory controller in /sys/fs/cgroup");
    };
    let options = KernelOptions {
        ring_buffer: Bytes(256 << 10),
        stall_threshold: Duration::ZERO,
        doorbell_interval: Duration::from_millis(10),
    };
    captured_log::start()?;
    println!("before: {}", memory_of_this_process()?);
    let begun = Instant::now();
    let mut kernel = Kernel::load(&options, std::process::id());
    println!("loaded in {:?}: {}", begun.elapsed(), memory_of_this_process()?);
    for probe in &kernel.report().probes {
        println!("  {} ({}): {:?}", probe.name, probe.purpose, probe.state);
    }
    for degradation in &kernel.report().degradations {
        println!("  degraded: {degradation}");
    }
    if kernel.report().attached() == 0 {
        return skipped("no program could be attached, for the reasons above");
    }
    let refused = kernel.report().probes.iter().find(|probe| format!("{:?}", probe.state).contains("verifier"));
    ensure!(refused.is_none(), "{refused:?}");
    ensure!(kernel.report().cgroup_source == CgroupSource::MemoryController, "no BTF walk on this kernel");

    let cgroups = match Cgroups::make(&hierarchy) {
        Ok(cgroups) => cgroups,
        Err(error) => return skipped(&format!("cannot make a memory cgroup: {error:#}")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut compared = oom_kill_is_attributed(&mut kernel, &runtime, &cgroups)?;
    compared += kills::every_kind(&mut kernel, &cgroups)?;
    compared += inodes_are_attributed(&mut kernel, &cgroups)?;
    compared += books_balance(&mut kernel)?;
    compared += forgotten_cgroups_are_gone(&mut kernel, &cgroups)?;
    kernel.flush_logs();
    drop(kernel);
    compared += loss_is_counted(&options, &cgroups)?;
    ensure!(compared >= 60, "only {compared} figures were compared");
    println!("PASSED kernel_host: {compared} figures compared; {}", memory_of_this_process()?);
    Ok(())
}

/// A line that a program wrote with aya-log comes out of the `log` facade, which is where the agent's own log takes it from.
fn programs_log_reaches_the_agents(kernel: &mut Kernel, victim: Pid) -> Result<()> {
    kernel.flush_logs();
    let line = format!("thread {} is marked as a victim of the OOM killer", victim.0);
    let log = captured_log::text();
    ensure!(log.lines().any(|it| it.contains(&line) && it.contains("DEBUG")), "no line {line:?} in the log:\n{log}");
    println!("  aya-log: {line}");
    Ok(())
}

/// Provokes an OOM kill whose victim and allocator are in different cgroups, and whose limit is their parent's.
fn oom_kill_is_attributed(kernel: &mut Kernel, runtime: &Runtime, cgroups: &Cgroups) -> Result<u32> {
    let (victim_cgroup, allocator_cgroup) = (id_of(&cgroups.victim)?, id_of(&cgroups.allocator)?);
    let victim = Workload::start("victim", &cgroups.victim, &[])?;
    let victim_pid = victim.pid()?;
    let (mut events, mut kills) = (Vec::new(), Vec::new());
    while kernel.drain(1024, &mut events, &mut kills).exhausted {}
    let adj = events.iter().find_map(|event| match event {
        Event::OomScoreAdj { pid, adj, writer_pid, .. } if *pid == victim_pid => Some((*adj, *writer_pid)),
        _ => None,
    });
    ensure!(adj == Some((1000, victim_pid)), "oom_score_adj written by the victim itself: {adj:?}");

    let mut allocator = Workload::start("allocator", &cgroups.allocator, &[])?;
    let kill = loop {
        // Waits only for the ring: an OOM kill has to wake the agent.
        let woken = runtime.block_on(async { timeout(Duration::from_secs(30), kernel.readable()).await });
        ensure!(woken.is_ok(), "no OomKill within 30 s of the last event: {events:?}");
        kernel.drain(16, &mut events, &mut kills);
        if let Some(kill) = kills.iter().find(|kill| kill.victim_pid == victim_pid) {
            break kill.clone();
        }
    };
    println!("  {kill:?}");
    ensure!(kill.victim_cgroup == Some(victim_cgroup), "the victim is in {victim_cgroup:?}");
    ensure!(kill.trigger_cgroup == allocator_cgroup, "the allocator is in {allocator_cgroup:?}");
    ensure!(kill.trigger_pid == allocator.pid()?, "the allocator is {:?}", allocator.pid());
    let mark = events.iter().find_map(|event| match event {
        Event::OomMark { at_ns, victim_pid, trigger_cgroup, already_dying, .. } if *victim_pid == kill.victim_pid => {
            Some((*at_ns, *trigger_cgroup, *already_dying))
        }
        _ => None,
    });
    ensure!(mark == Some((kill.marked_at_ns, allocator_cgroup, false)), "mark: {mark:?}");
    let details_compared = details(&kill)?
        + kills::check_invocation(kernel, cgroups, &kill)?
        + kills::check_path(&kill, (id_of(&cgroups.top)?, &cgroups.top), (victim_cgroup, "victim"))?;
    allocator.wait()?;
    programs_log_reaches_the_agents(kernel, victim_pid)?;

    let mut counters = Vec::new();
    kernel.cgroups(&mut counters);
    let of = |id| counters.iter().find(|(cgroup, _)| *cgroup == id).map(|(_, counters)| counters);
    ensure!(of(victim_cgroup).is_some_and(|counters| counters.oom_kills == 1), "one kill in the victim's cgroup");
    let reclaim = of(allocator_cgroup).context("the allocator stalled")?;
    ensure!(reclaim.oom_kills == 0, "no kill in the allocator's cgroup");
    while kernel.drain(1024, &mut events, &mut kills).exhausted {}
    Ok(8 + details_compared + stalls_agree(reclaim, &events, allocator_cgroup)?)
}

/// Checks the details of this kernel's `mark_victim`: all of them, or none before 6.9.
fn details(kill: &OomKill) -> Result<u32> {
    let named = kill.victim_comm.is_some_and(|comm| comm.to_string().starts_with("kernel_host"));
    ensure!(named, "comm: {:?}", kill.victim_comm);
    let Some(anon_rss) = kill.anon_rss else {
        return Ok(1);
    };
    let held = VICTIM_HOLDS as u64;
    ensure!((held..held + 16 * MIB as u64).contains(&anon_rss.0), "the victim held {held} bytes, told: {anon_rss:?}");
    ensure!(kill.total_vm >= Some(anon_rss), "total_vm {:?}", kill.total_vm);
    ensure!(kill.uid == Some(0), "uid {:?}", kill.uid);
    ensure!(kill.oom_score_adj == Some(1000), "oom_score_adj {:?}", kill.oom_score_adj);
    Ok(5)
}

/// Compares the streamed stalls with the counters. The threshold is 0, so every stall is streamed.
fn stalls_agree(counters: &CgroupCounters, events: &[Event], cgroup: CgroupId) -> Result<u32> {
    let memcg = &counters.memcg;
    let (mut stalls, mut stalled_ns, mut reclaimed_pages) = (0, 0, 0);
    for event in events {
        if let Event::Stall(stall) = event
            && (stall.cgroup, stall.kind) == (cgroup, ReclaimKind::Memcg)
        {
            stalls += 1;
            stalled_ns += stall.duration_ns;
            reclaimed_pages += stall.reclaimed_pages;
        }
    }
    println!("  {} memcg stalls, {} ns, {} pages", memcg.stalls, memcg.stalled_ns, memcg.reclaimed_pages);
    ensure!(stalls > 0, "a cgroup at its limit reclaims");
    ensure!(memcg.stalls == stalls, "{} counted, {stalls} streamed", memcg.stalls);
    ensure!(memcg.stalled_ns == stalled_ns, "{} ns counted, {stalled_ns} streamed", memcg.stalled_ns);
    ensure!(memcg.reclaimed_pages == reclaimed_pages, "{} pages counted", memcg.reclaimed_pages);
    ensure!(memcg.histogram.iter().sum::<u64>() == stalls, "histogram {:?}", memcg.histogram);
    Ok(4)
}

/// Creates files on ext4 and xfs; prints SKIPPED where this machine has none.
fn inodes_are_attributed(kernel: &mut Kernel, cgroups: &Cgroups) -> Result<u32> {
    let places = [
        ("/var/tmp", "ext4", "ext4:ext4_allocate_inode"),
        ("/mnt/ext4", "ext4", "ext4:ext4_allocate_inode"),
        ("/mnt/xfs", "xfs", "xfs:xfs_create"),
    ];
    let mut compared = 0;
    for (place, file_system, probe) in places {
        if !kernel.report().has(probe) || file_system_of(Path::new(place))?.as_deref() != Some(file_system) {
            println!("  SKIPPED inodes in {place}: not on {file_system}, or no {probe}");
            continue;
        }
        let directory = Path::new(place).join(format!("npm-test-{}", std::process::id()));
        fs::create_dir(&directory)?;
        let device = rustix::fs::stat(&directory)?.st_dev;
        let ended = Workload::start("files", &cgroups.allocator, &[directory.display().to_string()])
            .and_then(|mut files| files.wait());
        let mut counters = Vec::new();
        kernel.inodes(&mut counters);
        fs::remove_dir_all(&directory)?;
        ended?;
        let found = counters_on(&counters, id_of(&cgroups.allocator)?, device)
            .with_context(|| format!("nothing counted for {place}: {counters:?}"))?;
        println!("  {place}: {found:?}");
        ensure!(found.created == FILES_MADE, "{place}: {FILES_MADE} made, {} counted", found.created);
        ensure!(found.removed == FILES_REMOVED, "{place}: {FILES_REMOVED} removed, {} counted", found.removed);
        compared += 2;
    }
    Ok(compared)
}

fn counters_on(all: &[(CgroupId, DeviceId, InodeCounters)], cgroup: CgroupId, dev: u64) -> Option<InodeCounters> {
    let is_it =
        |id: CgroupId, device: DeviceId| id == cgroup && (device.major(), device.minor()) == (major(dev), minor(dev));
    all.iter().find(|(id, device, _)| is_it(*id, *device)).map(|(_, _, counters)| *counters)
}

/// Checks generated = delivered + lost + malformed for each kind, after the ring is empty and no event is in progress.
fn books_balance(kernel: &mut Kernel) -> Result<u32> {
    let balanced = |accounts: &Accounts| {
        accounts.events.iter().all(|books| books.generated == books.delivered + books.lost + books.malformed)
    };
    let (mut events, mut kills) = (Vec::new(), Vec::new());
    let mut accounts = Accounts::default();
    // Other tasks continue to make events: reads again while an event is between its count and its delivery.
    for _ in 0..50 {
        while kernel.drain(1024, &mut events, &mut kills).exhausted {}
        accounts = kernel.accounts();
        if balanced(&accounts) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    for books in &accounts.events {
        println!("  {books:?}");
    }
    println!("  untracked: {:?}", accounts.untracked);
    ensure!(balanced(&accounts), "the books do not balance");
    ensure!(accounts.unknown == 0, "{} records of unknown kind", accounts.unknown);
    for kind in [EventKind::Stall, EventKind::OomMark, EventKind::OomKill, EventKind::OomScoreAdj] {
        let books = accounts.of(kind).context("every kind has books")?;
        ensure!(books.delivered > 0 && books.malformed == 0, "{books:?}");
    }
    Ok(2)
}

/// Fills a ring of one page that has no reader, and checks that every lost record is counted.
fn loss_is_counted(options: &KernelOptions, cgroups: &Cgroups) -> Result<u32> {
    let Some(place) = ["/var/tmp", "/mnt/ext4"]
        .map(Path::new)
        .into_iter()
        .find(|place| file_system_of(place).is_ok_and(|found| found.as_deref() == Some("ext4")))
    else {
        println!("  SKIPPED loss: no ext4 in /var/tmp or /mnt/ext4");
        return Ok(0);
    };
    let mut kernel = Kernel::load(&KernelOptions { ring_buffer: Bytes(1), ..*options }, std::process::id());
    let file = place.join(format!("npm-test-{}.hole", std::process::id()));
    Workload::start("cache", &cgroups.allocator, &[file.display().to_string()])?.wait()?;

    let (mut events, mut kills) = (Vec::new(), Vec::new());
    let drained = kernel.drain(usize::MAX, &mut events, &mut kills);
    let accounts = kernel.accounts();
    let books = accounts.of(EventKind::Stall).context("stalls have books")?;
    println!("  page cache in {}: {books:?}", place.display());
    ensure!(!drained.exhausted && books.delivered > 0, "{drained:?}, {books:?}");
    ensure!(books.lost > 0, "a page of {} stalls is more than one ring: {books:?}", books.generated);
    ensure!(books.generated == books.delivered + books.lost, "{books:?}");

    // The counters do not use the ring: none is missing.
    let mut counters = Vec::new();
    kernel.cgroups(&mut counters);
    let stalls: u64 = counters.iter().map(|(_, counters)| counters.memcg.stalls + counters.direct.stalls).sum();
    ensure!(stalls == books.generated, "{stalls} counted, {} generated", books.generated);
    let id = id_of(&cgroups.allocator)?;
    let reclaimed =
        counters.iter().find(|(cgroup, _)| *cgroup == id).map(|(_, counters)| counters.memcg.reclaimed_pages);
    // Four times the limit was allocated, so three quarters had to be reclaimed, less the remainder in the cgroup.
    ensure!(reclaimed > Some(2 * (support::LIMIT / 4096) as u64), "{reclaimed:?} pages reclaimed");
    Ok(4)
}

fn forgotten_cgroups_are_gone(kernel: &mut Kernel, cgroups: &Cgroups) -> Result<u32> {
    let id = id_of(&cgroups.allocator)?;
    kernel.forget_cgroups(&[id].into());
    let (mut counters, mut inodes) = (Vec::new(), Vec::new());
    kernel.cgroups(&mut counters);
    kernel.inodes(&mut inodes);
    ensure!(counters.iter().all(|(cgroup, _)| *cgroup != id), "reclaim counters stay");
    ensure!(inodes.iter().all(|(cgroup, ..)| *cgroup != id), "inode counters stay");
    Ok(2)
}

fn memory_of_this_process() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let wanted = status.lines().filter(|line| ["VmHWM", "VmRSS", "RssAnon"].iter().any(|name| line.starts_with(name)));
    Ok(wanted.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(", "))
}
