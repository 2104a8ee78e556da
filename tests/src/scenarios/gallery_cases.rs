//! Provokes each of the gallery's OOM kills.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::gallery::{Dead, Truth};
use super::oom_many::numbered;
use super::pressure::EVERYTHING_MIB;
use crate::cgroups::{Cgroup, Layout, Pod, PodSpec};
use crate::processes;
use crate::stage::{Stage, Worker};
use crate::units::MIB;
use crate::work::doom::{Death, deaths};

/// One of the gallery's OOM kills.
#[derive(Debug)]
pub struct Case {
    pub title: &'static str,
    pub layouts: &'static [Layout],
    pub play: fn(&mut Stage<'_>, &'static str) -> Result<Truth>,
}

const BOTH: &[Layout] = &[Layout::V1, Layout::V2];

/// Every case of the gallery.
#[rustfmt::skip]
pub const ALL: &[Case] = &[
    Case { title: "a container at its own limit", layouts: BOTH, play: container },
    Case { title: "a pod's limit, hit by the neighbouring container", layouts: BOTH, play: sibling },
    Case { title: "the limit on all pods together", layouts: BOTH, play: all_pods },
    Case { title: "memory.oom.group: the container goes as a whole", layouts: &[Layout::V2], play: group },
    Case { title: "a child is killed and the container lives on", layouts: BOTH, play: child },
    Case { title: "a victim of milliseconds in a container gone at once", layouts: BOTH, play: mayfly },
    Case { title: "the machine is out of memory, and another allocated", layouts: BOTH, play: global },
    Case { title: "the machine is out of memory, and the fattest is protected", layouts: BOTH, play: protected },
    Case { title: "shared memory", layouts: BOTH, play: shared },
    Case { title: "a thread that is not the first", layouts: BOTH, play: threads },
];

/// The time limit from the start of the allocating process to the OOM kill.
const LIMIT: Duration = Duration::from_secs(40);

fn container(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("greedy", PodSpec::best_effort())?;
    alone(stage, title, &pod, "ramp --name greedy --rate max --to 96", "/anonBytes")
}

fn shared(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("shared", PodSpec::best_effort())?;
    alone(stage, title, &pod, "hold --name shared --mib 96 --shared", "/shmemBytes")
}

fn threads(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("threads", PodSpec::burstable(16))?;
    alone(stage, title, &pod, "threads --name threads --mib 96", "/anonBytes")
}

/// Kills one process in a container whose limit is too low for it.
fn alone(stage: &mut Stage<'_>, title: &'static str, pod: &Pod, work: &str, heaviest: &'static str) -> Result<Truth> {
    let container = pod.container()?.clone();
    container.limit(32 * MIB)?;
    let worker = stage.work(pod, work)?;
    wait_dead(stage, worker.pid)?;
    Ok(Truth {
        title,
        constraint: "memcg",
        limit: Some(container),
        victims: vec![dead(worker.pid, pod, 0)?],
        trigger: Some((worker.pid, pod.workload().to_owned())),
        heaviest: Some(heaviest),
    })
}

fn sibling(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("pair", PodSpec { limit_mib: 64, containers: 2, ..PodSpec::burstable(16) })?;
    let victim = hold(stage, pod.containers.get(1), 32)?;
    let allocator = stage.work(&pod, &allocator(&victim, 60, 300))?;
    wait_dead(stage, victim.pid)?;
    Ok(Truth {
        title,
        constraint: "memcg",
        limit: Some(pod.cgroup.clone()),
        victims: vec![dead(victim.pid, &pod, 1)?],
        trigger: Some((allocator.pid, pod.workload().to_owned())),
        heaviest: Some("/anonBytes"),
    })
}

fn all_pods(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let (victim_pod, allocator_pod) =
        (stage.pod("victim", PodSpec::burstable(16))?, stage.pod("allocator", PodSpec::best_effort())?);
    let pods = Cgroup::create(stage.layout(), "kubepods.slice")?;
    pods.limit(96 * MIB)?;
    let victim = hold(stage, victim_pod.containers.first(), 60)?;
    let allocator = stage.work(&allocator_pod, &allocator(&victim, 60, 300))?;
    wait_dead(stage, victim.pid)?;
    Ok(Truth {
        title,
        constraint: "memcg",
        limit: Some(pods),
        victims: vec![dead(victim.pid, &victim_pod, 0)?],
        trigger: Some((allocator.pid, allocator_pod.workload().to_owned())),
        heaviest: Some("/anonBytes"),
    })
}

fn group(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("group", PodSpec::best_effort())?;
    let container = pod.container()?.clone();
    container.limit(48 * MIB)?;
    container.write("memory.oom.group", "1")?;
    let mut workers = Vec::new();
    for _ in 0..2 {
        let worker = stage.work(&pod, "hold --name member --mib 4")?;
        stage.wait_resident(&worker, 4)?;
        workers.push(worker);
    }
    let greedy = stage.work(&pod, "ramp --name greedy --rate max --to 96")?;
    workers.push(greedy.clone());
    for worker in &workers {
        wait_dead(stage, worker.pid)?;
    }
    Ok(Truth {
        title,
        constraint: "memcg",
        limit: Some(container),
        victims: workers.iter().rev().map(|worker| dead(worker.pid, &pod, 0)).collect::<Result<_>>()?,
        trigger: Some((greedy.pid, pod.workload().to_owned())),
        heaviest: Some("/anonBytes"),
    })
}

fn child(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("parent", PodSpec::burstable(16))?;
    let container = pod.container()?.clone();
    let account = "/tmp/gallery-child.account";
    let work = format!("{} --name parent --count 1 --kib 32768 --stay", doom(stage, &container.path, account)?);
    let parent = stage.work(&pod, &work)?;
    let death = last_death(stage, account, |_, deaths| !deaths.is_empty())?;
    stage.check_alive(&[&parent]);
    Ok(Truth {
        title,
        constraint: "memcg",
        limit: Some(container),
        victims: vec![dead(death.pid, &pod, 0)?],
        trigger: Some((death.pid, pod.workload().to_owned())),
        heaviest: Some("/anonBytes"),
    })
}

fn mayfly(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("mayfly", PodSpec::best_effort())?;
    let container = numbered(&pod.container()?.path).context("the container's name")?;
    let account = "/tmp/gallery-mayfly.account";
    let text =
        format!("work {} --name mayfly --count 1 --younger-than-ms 50 --remove", doom(stage, &container, account)?);
    let pid = stage.service("/proc/self/exe", &text.split_whitespace().collect::<Vec<_>>())?;
    let death = last_death(stage, account, |stage, _| stage.reaper.ended(pid).is_some())?;
    // The lifetime depends on the machine's speed, so it is printed and not asserted.
    stage.note(format!("{title}: lived {:?}", death.lived));
    Ok(Truth {
        title,
        constraint: "memcg",
        limit: Some(Cgroup::absent(stage.layout(), &death.container)),
        victims: vec![Dead { pid: death.pid, workload: pod.workload().to_owned(), container: death.container }],
        trigger: Some((death.pid, pod.workload().to_owned())),
        heaviest: None,
    })
}

fn global(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let (victim_pod, allocator_pod) =
        (stage.pod("victim", PodSpec::burstable(16))?, stage.pod("allocator", PodSpec::best_effort())?);
    let victim = hold(stage, victim_pod.containers.first(), 200)?;
    let work = format!("{} --fast-until 100", allocator(&victim, 60, EVERYTHING_MIB));
    // The allocator uses more memory than the victim. Only its score protects it.
    stage.work_in(allocator_pod.container()?, "allocator", &work, -500)?;
    wait_dead(stage, victim.pid)?;
    machine(title, vec![dead(victim.pid, &victim_pod, 0)?])
}

fn protected(stage: &mut Stage<'_>, title: &'static str) -> Result<Truth> {
    let pod = stage.pod("protected", PodSpec { request_mib: 96, ..PodSpec::guaranteed(EVERYTHING_MIB) })?;
    let victim_pod = stage.pod("besteffort", PodSpec::best_effort())?;
    let victim = hold(stage, victim_pod.containers.first(), 80)?;
    let work = format!("{} --fast-until 100", allocator(&victim, 60, EVERYTHING_MIB));
    // The score that the kubelet sets for Guaranteed pods.
    let fattest = stage.work_in(pod.container()?, "fattest", &work, -997)?;
    wait_dead(stage, victim.pid)?;
    stage.check_alive(&[&fattest]);
    machine(title, vec![dead(victim.pid, &victim_pod, 0)?])
}

/// Returns the facts of a global OOM kill. Any process may have triggered it, including the agent.
fn machine(title: &'static str, victims: Vec<Dead>) -> Result<Truth> {
    Ok(Truth { title, constraint: "none", limit: None, victims, trigger: None, heaviest: Some("/anonBytes") })
}

/// Starts the process that the OOM killer is to choose, with the highest score.
fn hold(stage: &mut Stage<'_>, container: Option<&Cgroup>, mib: u64) -> Result<Worker> {
    let container = container.context("a container")?;
    let worker = stage.work_in(container, "victim", &format!("hold --name victim --mib {mib}"), 1000)?;
    stage.wait_resident(&worker, mib)?;
    Ok(worker)
}

fn allocator(victim: &Worker, rate: u64, to: u64) -> String {
    format!("ramp --name allocator --rate {rate} --to {to} --stop-when-gone {}", victim.pid)
}

fn doom(stage: &Stage<'_>, container: &str, account: &str) -> Result<String> {
    if Path::new(account).exists() {
        fs::remove_file(account).with_context(|| format!("remove {account}"))?;
    }
    Ok(format!("doom --layout {} --container {container} --account {account}", stage.layout().name()))
}

fn last_death(
    stage: &mut Stage<'_>,
    account: &str,
    mut done: impl FnMut(&mut Stage<'_>, &[Death]) -> bool,
) -> Result<Death> {
    let mut found = Vec::new();
    stage.until(LIMIT, |stage| {
        found = deaths(Path::new(account)).unwrap_or_default();
        done(stage, &found)
    });
    found.pop().with_context(|| format!("no kill in {account} after {LIMIT:?}"))
}

fn dead(pid: i32, pod: &Pod, container: usize) -> Result<Dead> {
    let container = pod.containers.get(container).context("a container")?;
    Ok(Dead { pid, workload: pod.workload().to_owned(), container: container.path.clone() })
}

fn wait_dead(stage: &mut Stage<'_>, pid: i32) -> Result<()> {
    if !stage.until(LIMIT, |stage| stage.reaper.ended(pid).is_some()) {
        bail!("no OOM kill of pid {pid} in {LIMIT:?}");
    }
    Ok(())
}

/// Returns the runtime's id of a container, from the path of its cgroup.
pub fn runtime_id(path: &str) -> &str {
    let unit = path.rsplit('/').next().unwrap_or(path);
    unit.strip_prefix("cri-containerd-").and_then(|unit| unit.strip_suffix(".scope")).unwrap_or(unit)
}

/// Prepares the next case: kills all processes of pods and removes the limit on all pods.
pub fn clear(stage: &mut Stage<'_>) -> Result<()> {
    let pods = Cgroup::create(stage.layout(), "kubepods.slice")?;
    for pid in pods.processes() {
        processes::signal(pid, libc::SIGKILL);
    }
    if !stage.until(Duration::from_secs(20), |_| pods.processes().is_empty()) {
        bail!("processes are left in {}", pods.path);
    }
    pods.unlimit()
}
