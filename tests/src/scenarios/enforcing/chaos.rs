//! Random pods, leaks and faults, one episode after another, and an oracle that judges each.

mod oracle;
pub mod plan;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime, clock_settime};

use super::pending::MemoryVolume;
use super::{Crowd, EVERYTHING_MIB};
use crate::agent::{Agent, Record};
use crate::cgroups::{Cgroup, Pod};
use crate::config::AgentConfig;
use crate::evidence::meminfo;
use crate::init::{EXT4, SMALL, option};
use crate::processes;
use crate::sampler;
use crate::stage::{Stage, Worker};
use crate::units::MIB;
use oracle::{Outcome, Verdict};
use plan::{Bystander, Episode, Fault, Kind, Leak};

/// MemAvailable in MiB when all workloads but the leaks have started.
const HEADROOM_MIB: u64 = 280;
/// The least duration of an outage of the runtime: an agent that is not under pressure asks it every 60 s.
const OUTAGE: Duration = Duration::from_secs(70);
/// The interval of the lines that report progress.
const REPORT_EVERY: Duration = Duration::from_secs(60);
/// A run of this duration has to show at least so many kills, and so many decisions in all.
const LONG: Duration = Duration::from_secs(3600);
const LEAST_OF_LONG: (usize, usize) = (200, 1000);
/// A slow machine gets this multiple of the duration for them.
const LONGEST: f64 = 1.5;
/// In one of so many episodes the machine may stand still.
const FEW: usize = 100;
/// Below this MemAvailable an episode is short of memory.
const SHORTAGE_MIB: u64 = 130;
const BALLAST: &str = "system.slice/ballast.service";
const RUNTIME: &str = "system.slice/runtime.service";
const SOCKET: &str = "/tmp/stand-in.sock";
/// The log records that stand for a decision against an eviction.
const REFUSALS: [&str; 5] =
    ["eviction_refused", "eviction_put_off", "leak_not_evictable", "evictions_spent", "candidates_exhausted"];

/// The request on the kernel's command line.
#[derive(Debug, Clone, Copy)]
pub struct Wish {
    span: Duration,
    seed: u64,
    /// The number of the first episode.
    first: u64,
}

impl Wish {
    /// The longest duration of the scenario.
    pub fn longest(self) -> Duration {
        self.span.mul_f64(LONGEST)
    }
}

pub fn wish() -> Wish {
    let text = option("npm.chaos").unwrap_or_default();
    let mut numbers = text.split(':').map(|part| part.parse().ok());
    let mut next = |default| numbers.next().flatten().unwrap_or(default);
    Wish { span: Duration::from_secs(next(60)), seed: next(1), first: next(0) }
}

pub fn chaos(stage: &mut Stage<'_>) -> Result<()> {
    let Wish { span, seed, first } = wish();
    let mut run = Run::start(stage)?;
    let begun = Instant::now();
    let (mut episodes, mut wrong, mut late, mut excused) = (0_u64, 0, 0, 0);
    let mut reported = begun;
    let least = if span >= LONG { LEAST_OF_LONG } else { (1, 1) };
    let suffices = |(kills, refusals): (usize, usize)| kills >= least.0 && kills + refusals >= least.1;
    while begun.elapsed() < span || (!suffices(run.decisions()) && begun.elapsed() < wish().longest()) {
        let number = first + episodes;
        let episode = Episode::new(seed, number);
        let played = run.play(stage, &episode);
        let (outcome, verdict) = played.with_context(|| {
            let (kills, signals) = (stage.oom_reports(), stage.boot.trace.signals());
            format!("episode {number} of seed {seed}: {episode:?}; the kernel's kills: {kills:?}; signals: {signals:?}")
        })?;
        if verdict != Verdict::default() {
            stage.note(format!("episode {number} of seed {seed}: {verdict:?}; {outcome:?}; {episode:?}"));
            for line in run.agent.tail(25) {
                stage.note(format!("episode {number}: {}", line.chars().take(2_500).collect::<String>()));
            }
        }
        wrong += verdict.wrong.len();
        late += verdict.late.len();
        excused += verdict.excused.len();
        episodes += 1;
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let (kills, refusals) = run.decisions();
            stage.note(format!(
                "{} s: {episodes} episodes, {kills} kills, {refusals} refusals, {wrong} wrong, {late} too late",
                begun.elapsed().as_secs()
            ));
        }
    }
    let (kills, refusals) = run.decisions();
    let lost = run.lost_runtimes();
    stage.note(format!(
        "seed {seed}: {episodes} episodes, {kills} kills, {refusals} refusals, {lost} times without an answer of the runtime"
    ));
    for (key, count) in [("kills", kills), ("refusals", refusals), ("wrong_kills", wrong), ("late_kills", late)] {
        stage.figure(key, f64::from(u32::try_from(count)?), "");
    }
    stage.figure("decisions", f64::from(u32::try_from(kills + refusals)?), "");
    stage.figure("duration", begun.elapsed().as_secs_f64(), "s");
    stage.check(suffices((kills, refusals)), || format!("at least {least:?} kills and decisions"));
    stage.check_equal("wrong kills", &wrong, &0);
    stage.check_equal("kills that came too late", &late, &0);
    stage.note(format!("{excused} kills came too late while the machine stood still"));
    let most = usize::try_from(episodes)? / FEW + 1;
    stage.check(excused <= most, || {
        format!("the machine stood still too often: {excused} kills came too late because of it")
    });
    stage.stop(&run.agent);
    Ok(())
}

#[derive(Debug)]
struct Run {
    agent: Agent,
    killed_agents: Vec<Agent>,
    runtime: Worker,
    /// When the runtime was stopped, unless it runs.
    runtime_stopped: Option<Instant>,
}

fn config() -> AgentConfig {
    let extra = format!(
        "evictions: {{maxPerMinute: 1000}}\nprotected: [\"system.slice/*\"]\n\
         incidents: {{directory: {SMALL}/incidents, maxSize: 4Mi}}\nruntime: {{endpoint: \"unix://{SOCKET}\"}}\n"
    );
    AgentConfig { extra, ..super::config() }
}

impl Run {
    fn start(stage: &mut Stage<'_>) -> Result<Self> {
        // Left by an earlier run in this boot.
        let _absent = fs::remove_file(SOCKET);
        let runtime = stage.host_service(RUNTIME, &format!("runtime --socket {SOCKET}"), 0)?;
        stage.until(Duration::from_secs(10), |_| Path::new(SOCKET).exists());
        Ok(Self { agent: stage.agent(&config())?, killed_agents: Vec::new(), runtime, runtime_stopped: None })
    }

    /// Returns how often agents have reported that the runtime does not answer.
    fn lost_runtimes(&self) -> usize {
        let agents = self.killed_agents.iter().chain([&self.agent]);
        let is_lost = |record: &Record| record.is("degraded") && record.text("capability") == "container runtime";
        agents.flat_map(Agent::records).filter(is_lost).count()
    }

    /// Returns the kills and the refusals in the logs of all agents. A candidate that was passed over for the victim was refused too.
    fn decisions(&self) -> (usize, usize) {
        let (mut kills, mut refusals) = (0, 0);
        for record in self.killed_agents.iter().chain([&self.agent]).flat_map(Agent::records) {
            if record.is("eviction") && record.text("action") == "kill" {
                kills += 1;
                refusals += passed_over(record.text("passed_over"));
            }
            refusals += usize::from(REFUSALS.iter().any(|event| record.is(event)));
        }
        (kills, refusals)
    }

    fn play(&mut self, stage: &mut Stage<'_>, episode: &Episode) -> Result<(Outcome, Verdict)> {
        stage.boot.trace.clear()?;
        let oom_before = stage.oom_kills()?;
        let mut scene = Scene::default();
        let outcome = self.act(stage, episode, &mut scene);
        scene.end(stage)?;
        let mut outcome = outcome?;
        outcome.oom_kills = stage.oom_kills()? - oom_before;
        let verdict = oracle::judge(episode, &outcome);
        Ok((outcome, verdict))
    }

    fn act(&mut self, stage: &mut Stage<'_>, episode: &Episode, scene: &mut Scene) -> Result<Outcome> {
        for bystander in &episode.bystanders {
            scene.add(stage, bystander)?;
        }
        let ballast = (meminfo("MemAvailable")? / MIB).saturating_sub(HEADROOM_MIB);
        let work = format!("hold --name ballast --mib {ballast}");
        let worker = scene.crowd.host_service(stage, BALLAST, (&work, 0))?;
        stage.wait_resident(&worker, ballast)?;
        stage.boot.sampler.start();
        for leak in &episode.leaks {
            scene.leak(stage, leak)?;
        }
        let mut is_watched = true;
        if episode.fault != Fault::Nothing {
            let floor = episode.fault_below_mib * MIB;
            stage.until(Duration::from_secs(5), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < floor));
            is_watched = episode.fault != Fault::AgentKilled;
            self.fail(stage, episode.fault, scene)?;
        }
        scene.settle(stage, Duration::from_millis(episode.clean_up_ms));
        let curve = stage.boot.sampler.curve();
        let lowest = sampler::lowest(&curve).unwrap_or(u64::MAX) / MIB;
        let in_shortage = |sample: &&sampler::Sample| sample.available < SHORTAGE_MIB * MIB;
        let (begun, ended) = (curve.iter().find(in_shortage), curve.iter().rfind(in_shortage));
        let shortage = begun.zip(ended).map_or((0, 0), |(begun, ended)| (begun.at_ns, ended.at_ns));
        let stood_still_ms = sampler::longest_gap(&curve, shortage.0, shortage.1) / 1_000_000;
        let (dead, of_kernel) = (scene.crowd.dead(stage)?, scene.crowd.killed_by_kernel(stage)?);
        Ok(Outcome { dead, of_kernel, oom_kills: 0, lowest_mib: lowest, is_watched, stood_still_ms })
    }

    fn fail(&mut self, stage: &mut Stage<'_>, fault: Fault, scene: &mut Scene) -> Result<()> {
        match fault {
            Fault::Nothing => {}
            Fault::AgentKilled => {
                let dying = self.agent.pid;
                processes::signal(dying, libc::SIGKILL);
                stage.until(Duration::from_secs(5), |stage| stage.reaper.ended(dying).is_some());
                self.killed_agents.push(std::mem::replace(&mut self.agent, stage.agent(&config())?));
            }
            Fault::Reload => self.agent.reload(&config())?,
            Fault::ClockSet => {
                let mut now = clock_gettime(ClockId::Realtime);
                now.tv_sec += if now.tv_sec % 2 == 0 { 3601 } else { -3601 };
                clock_settime(ClockId::Realtime, now).context("set the clock")?;
            }
            Fault::DiskFull => scene.fill(SMALL),
            Fault::RuntimeStopped => match self.runtime_stopped {
                None => {
                    self.runtime_stopped = Some(Instant::now());
                    processes::signal(self.runtime.pid, libc::SIGSTOP);
                }
                Some(since) if since.elapsed() >= OUTAGE => {
                    self.runtime_stopped = None;
                    processes::signal(self.runtime.pid, libc::SIGCONT);
                }
                Some(_) => {}
            },
            Fault::ThousandCgroups => {
                if let Some(pod) = scene.pods.first() {
                    let directory = pod.container()?.directory();
                    (0..1000).for_each(|number| drop(fs::create_dir(directory.join(format!("c{number}")))));
                }
            }
        }
        Ok(())
    }
}

/// Returns the number of candidates in "a would buy 0.1 s, b would give back too little, and 3 more".
fn passed_over(text: &str) -> usize {
    let parts = text.split(", ").filter(|part| !part.is_empty());
    let count = |part: &str| part.strip_prefix("and ")?.strip_suffix(" more")?.parse().ok();
    parts.map(|part| count(part).unwrap_or(1)).sum()
}

/// The objects that an episode has made.
#[derive(Debug, Default)]
struct Scene {
    crowd: Crowd,
    pods: Vec<Pod>,
    volumes: Vec<(i32, Option<MemoryVolume>)>,
    leaks: Vec<Worker>,
    filler: Option<String>,
}

impl Scene {
    fn add(&mut self, stage: &mut Stage<'_>, bystander: &Bystander) -> Result<()> {
        let Bystander { label, mib, kind, .. } = bystander;
        let pod = stage.pod(label, bystander.spec)?;
        self.pods.push(pod.clone());
        let mut volume = None;
        let work = match kind {
            Kind::Private => format!("hold --mib {mib}"),
            Kind::Shared => format!("hold --mib {mib} --shared"),
            Kind::Forks => format!("hold --mib {mib} --children 20"),
            Kind::FilePages => format!("cache --file {EXT4}/{label} --mib {mib} --ready /tmp/{label}"),
            Kind::Volume => {
                let mounted = volume.insert(MemoryVolume::mount(&pod)?);
                format!("ramp --rate max --to {mib} --file {}", mounted.file())
            }
        };
        let worker = self.crowd.pod(pod, stage, &work)?;
        stage.wait_resident(&worker, *mib)?;
        self.volumes.push((worker.pid, volume));
        Ok(())
    }

    fn leak(&mut self, stage: &mut Stage<'_>, leak: &Leak) -> Result<()> {
        let mut work = format!("ramp --rate {} --to {EVERYTHING_MIB} --fast-until 180", leak.rate);
        if leak.is_protected {
            work.push_str(" --stop-at 17");
            return self.crowd.host_service(stage, &leak.label, (&work, 0)).map(drop);
        }
        let pod = stage.pod(&leak.label, leak.spec)?;
        let volume = if leak.in_volume { Some(MemoryVolume::mount(&pod)?) } else { None };
        if let Some(volume) = &volume {
            work = format!("{work} --file {}", volume.file());
        }
        self.pods.push(pod.clone());
        let worker = self.crowd.pod(pod, stage, &work)?;
        self.volumes.push((worker.pid, volume));
        self.leaks.push(worker);
        Ok(())
    }

    /// Waits for the end of the leaks, unmounts the volumes of dead pods as the kubelet does, and leaves time for a wrong kill.
    fn settle(&mut self, stage: &mut Stage<'_>, clean_up: Duration) {
        let limit = Duration::from_secs(if self.leaks.is_empty() { 3 } else { 15 });
        let leaks = self.leaks.clone();
        stage.until(limit, |stage| leaks.iter().all(|leak| stage.reaper.ended(leak.pid).is_some()));
        stage.pause(clean_up);
        for (pid, volume) in &mut self.volumes {
            if stage.reaper.ended(*pid).is_some() {
                drop(volume.take());
            }
        }
        stage.pause(Duration::from_millis(1500));
    }

    fn fill(&mut self, disk: &str) {
        let path = format!("{disk}/full");
        // The write ends with ENOSPC, which is the purpose.
        let _ = fs::write(&path, vec![0_u8; 64 << 20]);
        self.filler = Some(path);
    }

    /// Ends everything. Processes of one pod end before its cgroup and its volume.
    fn end(self, stage: &mut Stage<'_>) -> Result<()> {
        self.crowd.end(stage);
        for pod in &self.pods {
            for pid in pod.cgroup.processes() {
                processes::signal(pid, libc::SIGKILL);
            }
        }
        drop(self.volumes);
        if let Some(path) = &self.filler {
            let _ = fs::remove_file(path);
        }
        self.pods.iter().map(|pod| &pod.cgroup).try_for_each(Cgroup::remove)
    }
}

#[cfg(test)]
mod tests {
    use super::passed_over;

    #[test]
    fn candidates_that_were_passed_over_are_counted() {
        let cases =
            [("", 0), ("a would buy 0.6 s", 1), ("a would buy 0.6 s, b would give back too little, and 3 more", 5)];
        for (text, expected) in cases {
            assert_eq!(passed_over(text), expected, "{text}");
        }
    }
}
