//! Invariant 4. Whenever the kernel's OOM killer acts while an evictable workload with enough gain has existed for a second, the agent has failed.

use super::{Finding, Verdict, World};
use crate::plan::Role;

/// Memory that is gone sooner than this cannot be freed in time by any agent.
const TOO_FAST: f64 = 0.8;

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    if world.history.decisions.is_empty() && world.history.oom.is_none() {
        return verdict;
    }
    verdict.check(world.history.oom.and_then(|at| failure(world, at)));
    verdict
}

fn failure(world: &World<'_>, at: f64) -> Option<Finding> {
    let World { plan, truth, .. } = world;
    let is_away = |(from, lasts): &(f64, f64)| from + lasts > at - 2.0 && *from < at;
    let fall = truth.fall(at).max(truth.used(at));
    let fastest = [0.1, 0.2, 0.5].map(|span| truth.fall_over(span, at)).into_iter().fold(fall, f64::max);
    let is_excused = plan.standstills.iter().chain(&plan.restarts).any(is_away) || plan.threshold < fastest * TOO_FAST;
    if is_excused || at < 2.0 {
        return None;
    }
    let is_enough = |pod: usize, then: f64| {
        let gain = truth.holds(pod, then);
        let missing = plan.threshold + plan.minimum_reclaim - truth.available(then);
        truth.available(then) < plan.threshold && (gain >= missing.max(plan.threshold / 2.0) || gain >= fall * 2.2)
    };
    let may_go = |pod: &usize| plan.pods[*pod].role == Role::Pod && truth.lives(*pod);
    let right = (0..plan.pods.len())
        .filter(may_go)
        .find(|pod| [1.0, 0.8, 0.6, 0.4, 0.2].iter().all(|before| is_enough(*pod, at - before)))?;
    Some(Finding {
        at,
        what: "the kernel's OOM killer acted".to_owned(),
        right: format!("{}, which had {:.0} MiB", plan.pods[right].name, truth.holds(right, at - 1.0)),
    })
}
