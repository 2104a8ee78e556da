//! Invariant 6. What was learned fades: a shortage in which nothing falls any more is ended, whatever happened before.

use super::{Finding, Verdict, World};
use crate::history::Decision;
use crate::plan::Role;

/// The effect of earlier evictions is forgotten after this time.
const FORGOTTEN: f64 = 32.0;

pub fn check(world: &World<'_>) -> Verdict {
    let World { plan, truth, history } = world;
    let mut verdict = Verdict::default();
    let (from, until) = (history.ended - FORGOTTEN, history.ended);
    let is_calm =
        |at: f64| truth.available(at) < plan.threshold - plan.error - 1.0 && truth.fall(at) < plan.threshold * 1e-3;
    if from < 3.0 || history.oom.is_some() || plan.history.is_none() {
        return verdict;
    }
    let is_of_minute = |decision: &&Decision| decision.at >= until - 60.0;
    let is_spent = history.decisions.iter().filter(is_of_minute).count() >= plan.max_per_minute as usize;
    let has_acted = history.decisions.iter().any(|decision| decision.at >= from);
    let is_short = (0..32).all(|second| truth.available(from + f64::from(second)) < plan.threshold - plan.error - 1.0);
    let missing = plan.threshold + plan.minimum_reclaim - truth.available(until);
    let may_go = |pod: &usize| plan.pods[*pod].role == Role::Pod && truth.lives(*pod);
    let is_enough = |pod: &usize| truth.holds(*pod, from) >= missing && truth.holds(*pod, until) >= missing;
    let right = (0..plan.pods.len()).filter(may_go).find(is_enough);
    let is_stuck = is_short && !has_acted && !is_spent && is_calm(until) && is_calm(from + 2.0);
    verdict.check(right.filter(|_| is_stuck).map(|right| Finding {
        at: until,
        what: format!("nobody was evicted for {FORGOTTEN} s, and {missing:.0} MiB are missing"),
        right: plan.pods[right].name.clone(),
    }));
    verdict
}
