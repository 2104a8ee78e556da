//! Invariant 8. Nothing that a user can do moves the choice from him to somebody else, or takes the agent's sight away from others: here he runs many
//! pods that fill caches.

use super::{Finding, Verdict, World, is_blind, is_close_call, is_sampled};
use crate::history::Decision;
use crate::plan::{Plan, Pod};
use crate::run::{Options, run};

const DECOYS: usize = 80;
/// The agent looks again after 0.25 s where it found nobody.
const ASLEEP: f64 = 0.26;
/// Between the two samples before a decision.
const JUST_BEFORE: f64 = 0.01;

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    let is_fit =
        |at: f64| is_sampled(world.plan, 6) && !is_blind(world.plan, at) && at > 5.5 && world.plan.error <= 0.0;
    let Some(first) = world.history.decisions.first().filter(|first| is_fit(first.at)) else { return verdict };
    let mut plan = Plan::clone(world.plan);
    let (cache, cache_growth) = (world.plan.capacity / 100.0, world.plan.capacity / 100_000.0);
    let decoy =
        |number: usize| Pod { name: format!("decoy-{number}"), memory: 0.5, cache, cache_growth, ..Pod::default() };
    plan.pods.extend((0..DECOYS).map(decoy));
    let (history, _) = run(&plan, Options { until_first: true, ..Options::default() });
    // One of the decoys may go, or another culprit, or whoever would go at that moment without them.
    let is_right = |other: &Decision| {
        let is_culprit = other.victim().is_some_and(|row| other.may_be_culprit(row, world.plan));
        let is_other = other.victim != first.victim && other.victim < world.plan.pods.len();
        !is_other || is_culprit || goes_at(world.plan, first.at, other.at) == Some(other.victim)
    };
    verdict.check(history.decisions.first().filter(|other| !is_right(other) && !is_close_call(world)).map(|other| {
        Finding {
            at: other.at,
            what: format!("{} goes because {DECOYS} pods fill caches", plan.pods[other.victim].name),
            right: plan.pods[first.victim].name.clone(),
        }
    }));
    verdict
}

/// Returns the first victim of an agent that has slept since shortly before the first decision, and wakes up at this time.
fn goes_at(plan: &Plan, first: f64, at: f64) -> Option<usize> {
    let mut plan = Plan::clone(plan);
    let from = (first - JUST_BEFORE).min(at - ASLEEP);
    plan.standstills.push((from, at - from));
    let (history, _) = run(&plan, Options { until_first: true, ..Options::default() });
    history.decisions.first().map(|decision| decision.victim)
}
