//! A fork bomb on a node of 4096 process ids.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::culprit::{bystander, config, evicted, goes_alone};
use crate::cgroups::Qos;
use crate::containers::{Node, Storage};
use crate::knob::Knob;
use crate::reference::EMULATED_READS;
use crate::stage::Stage;
use crate::units::{milliseconds_between, monotonic_ns};

const PID_MAX: u64 = 4096;
/// The time limit until the fork bomb is evicted.
const GROWTH: Duration = Duration::from_secs(60);
/// The number of process ids that must remain for the agent and the runtime.
const ROOM: u64 = 100;
/// The promised time from the crossing to the kill, on the reference machine; 27 to 56 ms were measured.
const PROMISED_MS: f64 = 500.0;

pub fn fork_bomb(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let quiet = bystander(&node, stage, "quiet", Qos::BestEffort)?;
    let culprit = node.pod(stage, "bomb", Qos::Burstable, &[])?;
    let knob = Knob::at("/proc/sys/kernel/pid_max".to_owned())?;
    knob.set(PID_MAX)?;
    let threshold = PID_MAX / 2;
    let agent = stage.agent(&config("pid.available", threshold))?;
    let count = Count::start(PID_MAX - threshold);
    culprit.run("main", "b() { b | b & }; b; while :; do sleep 5; done")?;
    stage.until(GROWTH, |_| !evicted(&agent).is_empty() && culprit.is_gone());
    let (most, crossed) = count.stop()?;
    stage.figure("most_threads", f64::from(u32::try_from(most)?), "threads");
    stage.check(most < PID_MAX - ROOM, || format!("{most} of {PID_MAX} process ids were in use"));
    let first = stage.signals_of(&agent)?.0.into_iter().find(|signal| signal.number == libc::SIGKILL);
    stage.check(crossed.is_some(), || format!("the bomb came to {most} threads only"));
    stage.check(first.is_some(), || "the agent killed no process".to_owned());
    if let (Some(crossed), Some(first)) = (crossed, first) {
        let took = milliseconds_between(crossed, first.at_ns);
        stage.figure("crossing_to_kill_ms", took, "ms");
        let limit = PROMISED_MS * EMULATED_READS.slowness()?.patience();
        stage.check(took < limit, || format!("{took:.0} ms from the crossing to the kill, {limit:.0} are allowed"));
    }
    goes_alone(stage, &agent, &culprit, &[&quiet], Duration::from_secs(10))?;
    drop(knob);
    stage.stop(&agent);
    Ok(())
}

/// Counts the node's threads continuously, because a fork bomb grows by thousands of threads in a second.
#[derive(Debug)]
struct Count {
    over: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Option<u64>)>,
}

impl Count {
    /// Starts the count. The threshold is met from `limit` threads on.
    fn start(limit: u64) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = spawn(move || {
            let (mut most, mut crossed) = (0, None);
            while !is_over.load(Ordering::Relaxed) {
                let now = threads().unwrap_or(0);
                most = most.max(now);
                if now > limit && crossed.is_none() {
                    crossed = Some(monotonic_ns());
                }
                sleep(Duration::from_millis(1));
            }
            (most, crossed)
        });
        Self { over, thread }
    }

    /// Stops the count; returns the maximum, and the time when the limit was first reached.
    fn stop(self) -> Result<(u64, Option<u64>)> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("counting threads panicked"))
    }
}

/// Returns the number of the node's threads: the second half of the fourth field of /proc/loadavg.
fn threads() -> Result<u64> {
    let path = "/proc/loadavg";
    let text = fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    parse_threads(&text).with_context(|| format!("{path}: {text:?}"))
}

fn parse_threads(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_behind_the_slash() {
        assert_eq!(parse_threads("0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(parse_threads("0.20 0.18"), None);
    }
}
