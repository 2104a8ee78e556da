//! OOM kills of every kind that one limit can provoke, each compared with its known facts.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use node_pressure_monitor::{
    kernel::{Event, Kernel, OomConstraint, OomKill},
    units::CgroupId,
};

use crate::support::{Cgroups, Workload, id_of, remove_cgroup};

/// The number of short-lived victims.
const BRIEF: usize = 10;
const GROUP: usize = 3;

/// Runs all cases. Returns how many figures were compared.
pub fn every_kind(kernel: &mut Kernel, cgroups: &Cgroups) -> Result<u32> {
    Ok(brief_victims(kernel, cgroups)? + child_of_a_survivor(kernel, cgroups)? + group(kernel, cgroups)?)
}

/// Checks the facts of the kprobe, if this kernel has kprobes: the limit is the top cgroup's.
pub fn check_invocation(kernel: &Kernel, cgroups: &Cgroups, kill: &OomKill) -> Result<u32> {
    ensure!(kill.started_at_ns.is_some_and(|at_ns| at_ns < kill.marked_at_ns), "started after it was marked: {kill:?}");
    if !kernel.report().has("kprobe:oom_kill_process") {
        let told = (kill.constraint, kill.limit_cgroup, kill.invoked_at_ns, kill.order);
        ensure!(told == (None, None, None, None), "without kprobes these are unknown: {told:?}");
        return Ok(2);
    }
    ensure!(kill.constraint == Some(OomConstraint::Memcg), "constraint {:?}", kill.constraint);
    ensure!(kill.limit_cgroup == Some(id_of(&cgroups.top)?), "limit of {:?}", kill.limit_cgroup);
    ensure!(kill.order == Some(0), "order {:?}", kill.order);
    let earlier = kill.invoked_at_ns.is_some_and(|at_ns| at_ns <= kill.marked_at_ns);
    ensure!(earlier, "invoked {:?}, marked {}", kill.invoked_at_ns, kill.marked_at_ns);
    Ok(5)
}

/// Asserts that the kernel's path is the path created here.
pub fn check_path(kill: &OomKill, top: (CgroupId, &Path), leaf: (CgroupId, &str)) -> Result<u32> {
    let path = kill.victim_path.context("no path")?;
    let levels: Vec<_> = path.levels().collect();
    let name = top.1.file_name().and_then(|name| name.to_str()).context("name of the top cgroup")?;
    ensure!(levels.iter().map(|(id, name)| (*id, name.as_ref())).eq([(top.0, name), leaf]), "path {path:?}");
    ensure!(path.to_string() == format!("/{name}/{}", leaf.1) && !path.is_truncated(), "path {path}");
    Ok(2)
}

/// Kills each victim moments after its start, and removes its cgroup at once, before it can be read.
fn brief_victims(kernel: &mut Kernel, cgroups: &Cgroups) -> Result<u32> {
    let top = (id_of(&cgroups.top)?, cgroups.top.as_path());
    let mut expected = Vec::new();
    for index in 0..BRIEF {
        let name = format!("brief-{index}");
        let cgroup = cgroups.child(&name)?;
        let id = id_of(&cgroup)?;
        let mut hog = Workload::start("hog", &cgroup, &[])?;
        let pid = hog.pid()?;
        hog.wait_killed()?;
        remove_cgroup(&cgroup)?;
        expected.push((pid, id, name));
    }
    let kills = collect(kernel, BRIEF)?;
    let mut compared = 0;
    for (pid, id, name) in &expected {
        let kill = kills.iter().find(|kill| kill.victim_pid == *pid).with_context(|| format!("no kill of {pid:?}"))?;
        ensure!(kill.victim_cgroup == Some(*id), "{pid:?} was in {id:?}: {kill:?}");
        ensure!((kill.trigger_pid, kill.trigger_cgroup) == (*pid, *id), "it was its own allocation: {kill:?}");
        compared += 2 + check_path(kill, top, (*id, name))? + check_invocation(kernel, cgroups, kill)?;
    }
    let ages = kills.iter().filter_map(|kill| Some(kill.at_ns - kill.started_at_ns?));
    println!("  {BRIEF} brief victims, none older than {:?}", Duration::from_nanos(ages.max().unwrap_or(0)));
    Ok(compared)
}

/// Kills a process of a container, and checks that the container survives.
fn child_of_a_survivor(kernel: &mut Kernel, cgroups: &Cgroups) -> Result<u32> {
    let mut parent = Workload::start("parent", &cgroups.victim, &[])?;
    let kills = collect(kernel, 1)?;
    let kill = kills.first().context("a kill")?;
    let id = id_of(&cgroups.victim)?;
    ensure!(kill.victim_cgroup == Some(id), "the child was in {id:?}: {kill:?}");
    ensure!(kill.victim_pid != parent.pid()? && parent.is_running()?, "the parent was to survive: {kill:?}");
    Ok(2 + check_path(kill, (id_of(&cgroups.top)?, &cgroups.top), (id, "victim"))?)
}

/// Checks `memory.oom.group`: one invocation kills every process of the cgroup.
fn group(kernel: &mut Kernel, cgroups: &Cgroups) -> Result<u32> {
    if !cgroups.is_v2 {
        println!("  SKIPPED memory.oom.group: not on cgroup v1");
        return Ok(0);
    }
    let cgroup = cgroups.child("group")?;
    let id = id_of(&cgroup)?;
    std::fs::write(cgroup.join("memory.oom.group"), "1")?;
    let mut others = Vec::new();
    for _ in 1..GROUP {
        others.push(Workload::start("bystander", &cgroup, &[])?);
    }
    let mut hog = Workload::start("hog", &cgroup, &[])?;
    hog.wait_killed()?;
    for other in &mut others {
        other.wait_killed()?;
    }
    remove_cgroup(&cgroup)?;
    let kills = collect(kernel, GROUP)?;
    let mut compared = 0;
    for kill in &kills {
        ensure!(kill.victim_cgroup == Some(id), "{kill:?}");
        ensure!(kill.trigger_pid == hog.pid()?, "{kill:?}");
        ensure!(kill.invoked_at_ns == kills.first().and_then(|kill| kill.invoked_at_ns), "one invocation: {kills:?}");
        compared += 3 + check_path(kill, (id_of(&cgroups.top)?, &cgroups.top), (id, "group"))?;
        compared += check_invocation(kernel, cgroups, kill)?;
    }
    Ok(compared)
}

/// Waits for exactly this many kills; another one soon after is an error.
fn collect(kernel: &mut Kernel, count: usize) -> Result<Vec<OomKill>> {
    let (mut events, mut kills) = (Vec::<Event>::new(), Vec::new());
    let begun = Instant::now();
    while kills.len() < count {
        ensure!(begun.elapsed() < Duration::from_secs(20), "{} of {count} OOM kills: {kills:?}", kills.len());
        thread::sleep(Duration::from_millis(5));
        while kernel.drain(1024, &mut events, &mut kills).exhausted {}
    }
    thread::sleep(Duration::from_millis(50));
    while kernel.drain(1024, &mut events, &mut kills).exhausted {}
    ensure!(kills.len() == count, "{} kills instead of {count}: {kills:?}", kills.len());
    Ok(kills)
}
