//! An eviction waits while the kernel swaps out as fast as available memory falls, and only then.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{AFTERMATH, Crowd, LIMIT, config, note_evictions};
use crate::agent::Agent;
use crate::cgroups::{Cgroup, Pod, PodSpec};
use crate::evidence::{meminfo, vmstat};
use crate::init::EXT4;
use crate::processes::resident;
use crate::scenarios::cache::mounted;
use crate::scenarios::swap::SwapSpace;
use crate::stage::{Stage, Worker};
use crate::units::{MIB, mib};

/// The course of a scene. Available memory falls by the difference of the speeds, which are in MiB a second.
#[derive(Debug, Clone, Copy)]
struct Course {
    /// MemAvailable before the agent and the leak begin.
    begin: u64,
    leak: u64,
    /// The speed at which another pod is swapped out.
    swapped: u64,
    /// MemAvailable from which on it is swapped out.
    from: u64,
}

const STEADY: Course = Course { begin: 140 * MIB, leak: 10, swapped: 8, from: u64::MAX };
/// Where the leak begins, MemAvailable is up to 12 MiB below `begin` or 8 MiB above it.
const NEAR: Course = Course { begin: 150 * MIB, swapped: 6, from: 120 * MIB, ..STEADY };
/// Swap that lasts for less than ten seconds at the threshold. The rule asks for swap-out as fast as the fall, so for half of the leak at
/// least, and until the threshold as much is swapped out as memory falls. This holds for a leak of 6 MiB a second or more.
const LESS_THAN_TEN_SECONDS: u64 = 50 * MIB;
/// MemAvailable at which the leak ends. The threshold is 100 MiB.
const LEAST: u64 = 90;
/// MemAvailable at which the shortage is over.
const RECOVERED: u64 = 115 * MIB;
/// The interval at which the kernel is asked to reclaim.
const STEP: Duration = Duration::from_millis(50);
/// The time limit for what takes long in an emulated guest: touching the cold memory, and the fall below the threshold.
const SOON: Duration = Duration::from_secs(90);
/// The log record of the wait.
const WAIT: &str = "swap_keeps_up";

/// A pod whose pages are swapped out at a steady rate, as a proactive reclaimer does it.
#[derive(Debug)]
struct Cold {
    container: Cgroup,
    /// MiB a second.
    rate: u64,
    began: Instant,
    pages_before: u64,
    available_before: u64,
    longest_stall: u64,
    stalled: u64,
}

impl Cold {
    fn begin(pod: &Pod, rate: u64) -> Result<Self> {
        let container = pod.container()?.clone();
        let (pages_before, stalled) = (vmstat("pswpout ")?, stalled()?);
        let available_before = meminfo("MemAvailable")?;
        Ok(Self { container, rate, began: Instant::now(), pages_before, available_before, longest_stall: 0, stalled })
    }

    fn swapped(&self) -> Result<u64> {
        Ok((vmstat("pswpout ")? - self.pages_before) * 4096)
    }

    /// Asks the kernel to reclaim what is due, and waits until the next time.
    fn step(&mut self, stage: &mut Stage<'_>) -> Result<()> {
        let milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let due = (self.rate * MIB / 1000 * milliseconds).saturating_sub(self.swapped()?);
        if due > 0 {
            // An error says that less was reclaimed. The rest is due the next time.
            drop(self.container.write("memory.reclaim", &due.to_string()));
        }
        stage.pause(STEP);
        let stalled = stalled()?;
        self.longest_stall = self.longest_stall.max(stalled - self.stalled);
        self.stalled = stalled;
        Ok(())
    }

    fn note(&self, stage: &Stage<'_>) -> Result<()> {
        let seconds = self.began.elapsed().as_secs_f64();
        stage.note(format!(
            "from {:.0} MiB available on, in {seconds:.1} s {:.1} MiB/s were swapped out, {:.0} MiB of swap are free, all tasks waited for at most {} ms of {} ms",
            mib(self.available_before),
            mib(self.swapped()?) / seconds,
            mib(meminfo("SwapFree")?),
            self.longest_stall / 1000,
            STEP.as_millis(),
        ));
        Ok(())
    }
}

/// Returns the microseconds for which all tasks waited for memory.
fn stalled() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/pressure/memory").context("read /proc/pressure/memory")?;
    let full = text.lines().find(|line| line.starts_with("full ")).context("no line `full`")?;
    let total = full.rsplit("total=").next().context("no total")?;
    total.trim().parse().with_context(|| format!("total: {total:?}"))
}

/// Prints what the agent said about swap.
fn note_swap(stage: &Stage<'_>, agent: &Agent) {
    for event in [WAIT, "swap_falls_short"] {
        agent.events(event).iter().for_each(|record| stage.note(record.text("message")));
    }
}

/// A cold pod, an agent and a leaker.
#[derive(Debug)]
struct Scene {
    crowd: Crowd,
    agent: Agent,
    leaker: Worker,
    cold: Cold,
}

impl Scene {
    fn begin(stage: &mut Stage<'_>, course: Course, leak: &str) -> Result<Self> {
        let mut crowd = Crowd::default();
        // A pod whose request is as large would be exempt from reclaim.
        let pod = stage.pod("cold", PodSpec::burstable(1))?;
        let size = meminfo("MemAvailable")?.saturating_sub(course.begin) / MIB;
        let worker = crowd.pod(pod, stage, &format!("hold --name cold --mib {size}"))?;
        let pid = worker.pid;
        let is_held = stage.until(SOON, |_| resident(pid).is_ok_and(|bytes| bytes >= size * MIB));
        stage.check(is_held, || format!("cold did not reach {size} MiB"));
        let agent = stage.agent(&config())?;
        let leaker = crowd.leak(stage, "leaker", PodSpec::best_effort(), (course.leak, leak))?;
        let is_near = stage.until(SOON, |_| meminfo("MemAvailable").is_ok_and(|available| available < course.from));
        stage.check(is_near, || format!("{:.0} MiB available were not reached", mib(course.from)));
        let pod = crowd.members.first().and_then(|(pod, _)| pod.as_ref()).context("no pod")?;
        let cold = Cold::begin(pod, course.swapped)?;
        Ok(Self { crowd, agent, leaker, cold })
    }

    /// Swaps out until one of these holds: MemAvailable is as stated, a pod has died, or the time is over.
    fn swap_until(&mut self, stage: &mut Stage<'_>, holds: impl Fn(u64) -> bool) -> Result<bool> {
        let began = Instant::now();
        while began.elapsed() < SOON && stage.reaper.ended(self.leaker.pid).is_none() {
            if holds(meminfo("MemAvailable")?) {
                return Ok(true);
            }
            self.cold.step(stage)?;
        }
        Ok(false)
    }

    /// Checks that the leaker dies at the threshold, by the agent, which has waited for nothing.
    fn the_leaker_dies(mut self, stage: &mut Stage<'_>) -> Result<()> {
        self.swap_until(stage, |_| false)?;
        self.cold.note(stage)?;
        self.crowd.only_these_die(stage, &self.agent, &[&self.leaker], LIMIT)?;
        stage.check_equal("reports of a wait", &self.agent.events(WAIT).len(), &0);
        note_swap(stage, &self.agent);
        stage.stop(&self.agent);
        self.crowd.end(stage);
        Ok(())
    }
}

/// The kernel swaps out several times as fast as available memory falls. No pod dies, and the memory comes back.
pub fn keeps_up(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let swap = SwapSpace::file(&format!("{EXT4}/swap"), 480 * MIB)?;
    let mut scene = Scene::begin(stage, STEADY, &format!("--stop-at {LEAST}"))?;
    let fell = scene.swap_until(stage, |available| available < LEAST * MIB)?;
    let came_back = scene.swap_until(stage, |available| available > RECOVERED)?;
    scene.cold.note(stage)?;
    stage.pause(AFTERMATH);
    let dead = scene.crowd.dead(stage)?;
    stage.check_equal("killed", &dead, &Vec::new());
    if !dead.is_empty() {
        note_evictions(stage, &scene.agent);
    }
    stage.check(fell && came_back, || format!("the memory fell: {fell}; it came back: {came_back}"));
    stage.check(!scene.agent.events("threshold_met").is_empty(), || "the threshold was not met".to_owned());
    let waits = scene.agent.events(WAIT);
    stage.check(waits.len() == 1, || format!("reports of the wait: {waits:?}"));
    note_swap(stage, &scene.agent);
    stage.check_no_oom_kill()?;
    stage.stop(&scene.agent);
    scene.crowd.end(stage);
    drop(swap);
    Ok(())
}

/// The swap is too small for the leak, or the leak is too fast for the kernel: the leaker dies at once, and by the agent.
pub fn does_not(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    stage.note("at the threshold the swap would last for less than ten seconds");
    let swap = SwapSpace::file(&format!("{EXT4}/swap"), LESS_THAN_TEN_SECONDS)?;
    Scene::begin(stage, NEAR, "")?.the_leaker_dies(stage)?;
    drop(swap);

    stage.note("a leak as fast as the guest can");
    let swap = SwapSpace::file(&format!("{EXT4}/swap"), 128 * MIB)?;
    let mut crowd = Crowd::default();
    crowd.hold(stage, "cold", PodSpec::burstable(1), 300)?;
    let agent = stage.agent(&config())?;
    let leaker = crowd.leak_at_once(stage, "leaker", PodSpec::best_effort())?;
    crowd.only_these_die(stage, &agent, &[&leaker], LIMIT)?;
    stage.stop(&agent);
    crowd.end(stage);
    drop(swap);
    Ok(())
}

/// Pages that are swapped to zram stay in memory, so the rule does not apply, and the leaker dies.
pub fn zram(stage: &mut Stage<'_>) -> Result<()> {
    if !Path::new("/sys/block/zram0").exists() {
        stage.skip("no zram in this guest");
        return Ok(());
    }
    let swap = SwapSpace::zram(480 * MIB)?;
    Scene::begin(stage, STEADY, "")?.the_leaker_dies(stage)?;
    drop(swap);
    Ok(())
}
