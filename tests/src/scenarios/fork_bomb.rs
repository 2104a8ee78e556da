//! A fork bomb on a node of 4096 process ids.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::culprit::{bystander, config, goes_alone};
use crate::cgroups::Qos;
use crate::containers::{Node, Storage};
use crate::knob::Knob;
use crate::stage::Stage;
use crate::units::{milliseconds_between, monotonic_ns};

const PID_MAX: u64 = 4096;
/// For the bomb to reach the threshold.
const GROWTH: Duration = Duration::from_secs(60);

pub fn fork_bomb(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let quiet = bystander(&node, stage, "quiet", Qos::BestEffort)?;
    let culprit = node.pod(stage, "bomb", Qos::Burstable, &[])?;
    let knob = Knob::at("/proc/sys/kernel/pid_max".to_owned())?;
    knob.set(PID_MAX)?;
    let threshold = PID_MAX / 2;
    let agent = stage.agent(&config("pid.available", threshold))?;
    culprit.run("main", "b() { b | b & }; b; while :; do sleep 5; done")?;
    let mut most = 0;
    let mut crossed = None;
    let gone = stage.until(GROWTH, |_| {
        let now = threads().unwrap_or(0);
        most = most.max(now);
        if crossed.is_none() && PID_MAX.saturating_sub(now) < threshold {
            crossed = Some(monotonic_ns());
        }
        crossed.is_some() && culprit.is_gone()
    });
    stage.check(crossed.is_some(), || format!("the bomb came to {most} threads only"));
    if let (Some(crossed), true) = (crossed, gone) {
        stage.figure("crossing_to_gone_ms", milliseconds_between(crossed, monotonic_ns()), "ms");
        let first = stage.signals_of(&agent)?.0.into_iter().find(|signal| signal.number == libc::SIGKILL);
        if let Some(first) = first {
            stage.figure("crossing_to_kill_ms", milliseconds_between(crossed, first.at_ns), "ms");
        }
    }
    stage.figure("most_threads", f64::from(u32::try_from(most)?), "threads");
    goes_alone(stage, &agent, &culprit, &[&quiet], Duration::from_secs(10))?;
    drop(knob);
    stage.stop(&agent);
    Ok(())
}

/// Threads of the node: the second half of the fourth field of /proc/loadavg.
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
