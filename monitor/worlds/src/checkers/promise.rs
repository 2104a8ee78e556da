//! Invariant 1. No workload within its request is evicted while the end of one above its request would help.

use super::{Finding, Verdict, World, is_blind};

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for decision in &world.history.decisions {
        let Some(victim) = decision.victim() else { continue };
        // At the cliff the kernel comes first: one that takes the node away from it. Memory that comes back may hide a leak, not end it.
        let fall = decision.fast_fall.max(world.plan.other_leak_at(decision.at));
        let is_cliff = decision.available < decision.fast_fall * 3.0 || decision.available < world.plan.threshold * 0.3;
        let least = if is_cliff { fall * 2.5 } else { 0.0 }.max(decision.short * 0.13);
        let would_help = |gain: f64| gain > 1.0 && gain >= least;
        let is_known = !is_blind(world.plan, decision.at);
        let right = decision.others().find(|row| {
            let may_go = !row.only_as_culprit || is_known && decision.is_certain_culprit(row, world.plan.noise());
            may_go && row.excess > 1.0 && would_help(row.gain)
        });
        let finding = right.filter(|_| victim.excess <= 0.0).map(|right| Finding {
            at: decision.at,
            what: format!("{} is within its request", world.plan.pods[victim.pod].name),
            right: world.plan.pods[right.pod].name.clone(),
        });
        verdict.check(finding);
    }
    verdict
}
