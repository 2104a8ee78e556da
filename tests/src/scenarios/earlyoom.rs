//! Compares the agent with earlyoom: both get the same ramp in the same guest, in turns.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::judge::{self, Expected, THRESHOLD, Timing};
use super::pressure::{Bystanders, ramping_pod};
use crate::agent::forget_decisions;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::containers;
use crate::init::EARLYOOM;
use crate::processes;
use crate::reference::{EMULATED_READS, Slowness};
use crate::sampler;
use crate::stage::Stage;
use crate::units::{median, milliseconds_between};

/// The number of rounds. earlyoom samples every 100 ms, so single latencies vary within that range and the median needs several.
const ROUNDS: usize = 7;
/// The number of rounds after which a median that misses the promise is accepted.
const MOST_ROUNDS: usize = 21;
const LIMIT: Duration = Duration::from_secs(25);
/// The agent has to be this many times sooner on a machine of the usual speed.
const FACTOR: f64 = 5.0;
const FACTOR_AMONG_SERVICES: f64 = 8.0;
const SERVICES: usize = 40;
/// The agent has to be this many times sooner on every machine.
const LEAST_FACTOR: f64 = 2.0;

pub fn earlyoom(stage: &mut Stage<'_>) -> Result<()> {
    compare(stage, FACTOR)
}

/// The same beside Debian's systemd and forty more services, whose memory the agent reads for its list.
pub fn among_services(stage: &mut Stage<'_>) -> Result<()> {
    let units: Vec<String> = (0..SERVICES).map(|number| format!("neighbour{number}.service")).collect();
    for unit in &units {
        containers::run("systemd-run", &["--quiet", &format!("--unit={unit}"), "/bin/sleep", "infinity"])?;
    }
    let compared = compare(stage, FACTOR_AMONG_SERVICES);
    let units: Vec<&str> = ["stop"].into_iter().chain(units.iter().map(String::as_str)).collect();
    containers::systemctl(&units)?;
    compared
}

fn compare(stage: &mut Stage<'_>, factor: f64) -> Result<()> {
    if !Path::new(EARLYOOM).exists() {
        stage.skip(format!("no {EARLYOOM} in this guest"));
        return Ok(());
    }
    // The bystanders use most of the memory, so that each round's ramp is short.
    let bystanders = Bystanders::start(stage, 460, 90)?;
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let mut stages = Stages::default();
    // The score that a kubelet would set. earlyoom chooses by the kernel's score.
    score(bystanders.guaranteed.pid, -997)?;
    score(bystanders.burstable.pid, 850)?;
    let slowness = EMULATED_READS.slowness()?;
    let wanted = factor_at(factor, slowness);
    while ours.len() < ROUNDS || (ratio(&theirs, &ours) < wanted && ours.len() < MOST_ROUNDS) {
        theirs.push(rival(stage, &bystanders)?);
        ours.push(agent(stage, &bystanders, &mut stages)?);
    }
    stage.note(format!("ms from crossing to signal: earlyoom {theirs:.1?}, agent {ours:.1?}"));
    stage.note(format!("medians of the agent: {}", stages.text()));
    stage.figure("earlyoom_crossing_to_kill_ms", median(&theirs).unwrap_or_default(), "ms");
    stage.figure("agent_crossing_to_kill_ms", median(&ours).unwrap_or_default(), "ms");
    let ratio = ratio(&theirs, &ours);
    stage.figure("times_sooner", ratio, "times");
    stage.figure("slowness", slowness.cpu, "times");
    stage.check(ratio >= wanted, || format!("only {ratio:.1} times sooner, {wanted:.1} are wanted"));
    Ok(())
}

/// Returns how many times sooner the agent has to be on this machine. A slow machine lengthens the agent's time, and hardly that of
/// earlyoom, which sleeps. The CPU time of the reference counts: other load on the machine does not lower the factor.
fn factor_at(usual: f64, slowness: Slowness) -> f64 {
    (usual / slowness.cpu.max(1.0)).max(LEAST_FACTOR)
}

/// The milliseconds that each stage from the crossing to the kill took, a list for each stage.
#[derive(Debug, Default)]
struct Stages([Vec<f64>; 5]);

impl Stages {
    const NAMES: [&str; 5] = ["woken", "sampled", "ordered", "sampled again", "kill signal"];

    fn add(&mut self, timing: &Timing) {
        let mut before = timing.crossed_ns;
        let logged =
            ["woken", "sampled", "ordered", "decided"].map(|name| timing.record.number(&format!("{name}_mono_ns")));
        let times = logged.into_iter().chain([Some(timing.first_kill_ns)]);
        for (stage, at) in self.0.iter_mut().zip(times) {
            let at = at.unwrap_or(before);
            stage.push(milliseconds_between(before, at));
            before = at;
        }
    }

    fn text(&self) -> String {
        let medians = self.0.iter().map(|stage| median(stage).unwrap_or_default());
        let parts = Self::NAMES.iter().zip(medians).map(|(name, median)| format!("{name} after {median:.1} ms"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Returns the ratio of the medians. Differences below a tenth of a millisecond are within the accuracy of the two clocks.
fn ratio(theirs: &[f64], ours: &[f64]) -> f64 {
    median(theirs).unwrap_or_default() / median(ours).unwrap_or(f64::INFINITY).max(0.1)
}

fn score(pid: i32, adj: i32) -> Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    fs::write(&path, adj.to_string()).with_context(|| format!("write {path}"))
}

/// Runs one ramp against earlyoom; returns the milliseconds from the crossing to its first signal.
fn rival(stage: &mut Stage<'_>, bystanders: &Bystanders) -> Result<f64> {
    let pid = stage.service(EARLYOOM, &["-M", "102400", "-r", "0"])?;
    // earlyoom needs a moment to lock its memory and to read its first figures.
    stage.pause(Duration::from_millis(300));
    stage.boot.trace.clear()?;
    stage.boot.sampler.start();
    let (pod, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    score(hog.pid, 1000)?;
    judge::wait_gone(stage, &pod, LIMIT);
    stage.check_alive(&bystanders.all());
    stage.check_no_oom_kill()?;
    let curve = stage.boot.sampler.curve();
    let signals = stage.boot.trace.signals()?;
    let first = signals
        .iter()
        .find(|signal| signal.sender_tid == pid && signal.target == hog.pid)
        .context("the trace has no signal from earlyoom to the hog")?;
    let crossed = sampler::crossing_down(&curve, THRESHOLD, 0).context("MemAvailable never passed 100 MiB")?;
    processes::signal(pid, libc::SIGTERM);
    stage.until(Duration::from_secs(5), |stage| stage.reaper.ended(pid).is_some());
    pod.cgroup.remove()?;
    Ok(milliseconds_between(crossed, first.at_ns))
}

/// Runs the same ramp against the agent.
fn agent(stage: &mut Stage<'_>, bystanders: &Bystanders, stages: &mut Stages) -> Result<f64> {
    // Each round has a budget of its own.
    forget_decisions()?;
    let agent = stage.agent(&AgentConfig::default())?;
    stage.boot.trace.clear()?;
    stage.boot.sampler.start();
    let (pod, hog) = ramping_pod(stage, "hog", PodSpec::best_effort())?;
    let expected = Expected {
        agent: &agent,
        victim: &pod,
        victims: &[hog.pid],
        bystanders: &bystanders.all(),
        threshold: THRESHOLD,
    };
    let timing = judge::eviction(stage, &expected, LIMIT)?;
    stage.stop(&agent);
    pod.cgroup.remove()?;
    let timing = timing.context("the agent's eviction was not timed")?;
    stages.add(&timing);
    Ok(milliseconds_between(timing.crossed_ns, timing.first_kill_ns))
}

#[cfg(test)]
mod tests {
    use super::{FACTOR, LEAST_FACTOR, Slowness, factor_at};

    #[test]
    fn a_slow_machine_lowers_the_factor_down_to_the_least() {
        let at = |cpu| factor_at(FACTOR, Slowness { cpu, wall: 20.0 });
        assert_eq!([at(0.5), at(1.0), at(2.0), at(10.0)], [FACTOR, FACTOR, FACTOR / 2.0, LEAST_FACTOR]);
    }
}
