//! The agent beside earlyoom: same guest, same ramp, in turns.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::judge::{self, Expected, THRESHOLD};
use super::pressure::{Bystanders, ramping_pod};
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::processes;
use crate::sampler;
use crate::stage::Stage;
use crate::units::{median, milliseconds_between};

const PROGRAM: &str = "/bin/earlyoom";
/// earlyoom looks every 100 ms, so its single latencies lie anywhere between 0 and that: a median needs this many.
const ROUNDS: u32 = 7;
const LIMIT: Duration = Duration::from_secs(25);
/// At least so many times sooner.
const FACTOR: f64 = 5.0;

pub fn earlyoom(stage: &mut Stage<'_>) -> Result<()> {
    if !Path::new(PROGRAM).exists() {
        stage.skip(format!("no {PROGRAM} in this guest"));
        return Ok(());
    }
    // Most of the memory is theirs, so that a round's ramp is short.
    let bystanders = Bystanders::start(stage, 460, 90)?;
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    // As a kubelet would have set it: earlyoom goes by the kernel's score.
    score(bystanders.guaranteed.pid, -997)?;
    score(bystanders.burstable.pid, 850)?;
    for _ in 0..ROUNDS {
        theirs.push(rival(stage, &bystanders)?);
        if Path::new(crate::agent::PROGRAM).exists()
            && let Some(latency) = agent(stage, &bystanders)?
        {
            ours.push(latency);
        }
    }
    stage.note(format!("ms from crossing to signal: earlyoom {theirs:.1?}, agent {ours:.1?}"));
    let rounds = usize::try_from(ROUNDS).context("rounds")?;
    stage.check_equal("timed runs of the agent", &ours.len(), &rounds);
    let theirs = median(&theirs).context("no runs of earlyoom")?;
    stage.figure("earlyoom_crossing_to_kill_ms", theirs, "ms");
    let ours = median(&ours).context("no timed runs of the agent")?;
    stage.figure("agent_crossing_to_kill_ms", ours, "ms");
    // Below a tenth of a millisecond the two clocks say no more.
    let ratio = theirs / ours.max(0.1);
    stage.figure("times_sooner", ratio, "times");
    stage.check(ratio >= FACTOR, || format!("only {ratio:.1} times sooner, {FACTOR} are wanted"));
    Ok(())
}

fn score(pid: i32, adj: i32) -> Result<()> {
    let path = format!("/proc/{pid}/oom_score_adj");
    fs::write(&path, adj.to_string()).with_context(|| format!("write {path}"))
}

/// One ramp against earlyoom; milliseconds from the crossing to its first signal.
fn rival(stage: &mut Stage<'_>, bystanders: &Bystanders) -> Result<f64> {
    let pid = stage.service(PROGRAM, &["-M", "102400", "-r", "0"])?;
    // It needs a moment to lock its memory and read the first figures.
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

/// The same ramp against the agent.
fn agent(stage: &mut Stage<'_>, bystanders: &Bystanders) -> Result<Option<f64>> {
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
    Ok(timing.map(|timing| milliseconds_between(timing.crossed_ns, timing.first_kill_ns)))
}
