//! Invariant 2. No workload is evicted whose end makes no difference while another's does.

use super::{Finding, Verdict, World};

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for decision in &world.history.decisions {
        let Some(victim) = decision.victim() else { continue };
        let is_dwarf = victim.gain < decision.missing * 0.08 && !decision.may_be_culprit(victim, world.plan);
        let right = decision.others().find(|row| {
            let keeps_promise = row.excess > 1.0 || victim.excess <= 0.0;
            !row.only_as_culprit && keeps_promise && row.gain >= decision.short * 0.12
        });
        let finding = right.filter(|_| is_dwarf).map(|right| Finding {
            at: decision.at,
            what: format!(
                "{} gives back {:.1} of {:.1} MiB that are missing",
                world.plan.pods[victim.pod].name, victim.gain, decision.missing
            ),
            right: world.plan.pods[right.pod].name.clone(),
        });
        verdict.check(finding);
    }
    verdict
}
