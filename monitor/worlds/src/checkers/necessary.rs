//! Invariant 5. Every kill is necessary: without it the same world ends in an OOM kill, or stays below the threshold.
//!
//! What would come back by itself is what earlier victims still held. No agent knows that a workload will shrink.

use super::{Finding, Verdict, World};
use crate::history::Decision;
use crate::plan::Pod;
use crate::truth::come_back;

/// Memory that comes back within this time is waited for.
const WAIT: f64 = 9.0;
/// A victim whose memory does not begin to come back within this time is not waited for.
const BEGINS: f64 = 1.8;
/// A victim of which less than this share is left counts as gone.
const REST: f64 = 0.06;
/// The agent measures the fall also over so many seconds, with the whole error of the counters.
const PRESENT: f64 = 0.25;
const STEP: f64 = 0.1;

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for decision in &world.history.decisions {
        verdict.check(needless(world, decision));
    }
    verdict
}

fn needless(world: &World<'_>, decision: &Decision) -> Option<Finding> {
    let plan = world.plan;
    // With half of the threshold left nothing is waited for, nor in a burst that leaves a second or two, as it was measured.
    let measured = decision.fast_fall + plan.error * 2.0 / PRESENT;
    let is_burst = decision.available < (decision.fast_fall * 2.5).max(measured * 2.0);
    if decision.available < plan.threshold * 0.6 || is_burst {
        return None;
    }
    let earlier = (0..plan.pods.len()).filter_map(|pod| {
        let killed = world.history.killed[pod].filter(|killed| *killed < decision.at)?;
        Some((pod, killed))
    });
    let awaited: Vec<(usize, f64)> =
        earlier.filter(|(pod, killed)| is_awaited(&plan.pods[*pod], decision.at - killed)).collect();
    let first = awaited.iter().map(|(_, killed)| *killed).fold(f64::INFINITY, f64::min);
    let mut after = 0.0;
    while after < WAIT && decision.at + after < first + WAIT {
        after += STEP;
        let available =
            decision.available + came(world, &awaited, decision.at, after) - used(world, decision.at, after);
        if available <= 0.0 {
            return None;
        }
        if available > plan.threshold + plan.minimum_reclaim + plan.error + 2.0 {
            let names: Vec<&str> = awaited.iter().map(|(pod, _)| plan.pods[*pod].name.as_str()).collect();
            return Some(Finding {
                at: decision.at,
                what: format!("{} was killed without need", plan.pods[decision.victim].name),
                right: format!("to wait {after:.1} s for the memory of {}", names.join(", ")),
            });
        }
    }
    None
}

fn is_awaited(pod: &Pod, since: f64) -> bool {
    pod.dies_after.is_some_and(|after| after < BEGINS) && come_back(pod, since) < 1.0 - REST
}

/// Returns what the earlier victims give back within `after` seconds.
fn came(world: &World<'_>, awaited: &[(usize, f64)], at: f64, after: f64) -> f64 {
    let of = |(pod, killed): &(usize, f64)| {
        let plan = &world.plan.pods[*pod];
        plan.memory_at(*killed) * (come_back(plan, at + after - killed) - come_back(plan, at - killed))
    };
    awaited.iter().map(of).sum()
}

/// Returns what the living and the rest of the node use up within `after` seconds. Nothing shrinks by itself.
fn used(world: &World<'_>, at: f64, after: f64) -> f64 {
    let plan = world.plan;
    let lives = |pod: &usize| world.history.killed[*pod].is_none_or(|killed| killed >= at);
    let grown = |pod: usize| plan.pods[pod].most_until(at + after) - plan.pods[pod].most_until(at);
    let of_pods: f64 = (0..plan.pods.len()).filter(lives).map(|pod| grown(pod).max(0.0)).sum();
    let (rate, from) = plan.other_leak;
    of_pods + rate * ((at + after - from).max(0.0) - (at - from).max(0.0))
}
