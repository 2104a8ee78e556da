//! Invariant 6. What was learned fades: a shortage in which nothing falls any more is ended, whatever happened before.

use super::{Finding, Verdict, World, is_blind};
use crate::history::Decision;
use crate::plan::{Order, Pod, Role};

/// The effect of earlier evictions is forgotten after this time.
const FORGOTTEN: f64 = 32.0;

/// One that covers what is missing and lasts so long helps, whatever was evicted before. The most that is asked for is 60 s.
const LASTS: f64 = 90.0;

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = stuck(world);
    for decision in world.history.decisions.iter().filter(|decision| decision.before > 0) {
        verdict.check(asks_too_much(world, decision));
    }
    verdict
}

/// Judges whether a bystander went before one of a lower class or priority that lasts long enough.
fn asks_too_much(world: &World<'_>, decision: &Decision) -> Option<Finding> {
    let World { plan, .. } = world;
    let victim =
        decision.victim().filter(|victim| victim.excess > 0.0 && !decision.may_be_culprit(victim, world.plan))?;
    let is_before = |pod: &Pod, other: &Pod| match plan.ranking {
        Order::Qos => pod.class < other.class,
        Order::Kubernetes => pod.priority < other.priority,
    };
    if is_blind(plan, decision.at) {
        return None;
    }
    let fall = decision.fast_fall.max(1e-6) + plan.error;
    let right = decision.others().find(|row| {
        let lasts = row.gain / fall >= LASTS && row.gain >= decision.short * 1.1 && row.excess > 1.0;
        lasts && !row.only_as_culprit && is_before(&plan.pods[row.pod], &plan.pods[victim.pod])
    })?;
    Some(Finding {
        at: decision.at,
        what: format!("{} went before one that ranks first", plan.pods[victim.pod].name),
        right: format!("{}, which lasts {:.0} s", plan.pods[right.pod].name, right.gain / fall),
    })
}

fn stuck(world: &World<'_>) -> Verdict {
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
