//! Invariant 10. The number of measurements that one decision asks for has a bound, whatever the number of workloads.

use super::{Finding, Verdict, World};

const MOST: usize = 16;

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    if world.history.decisions.is_empty() {
        return verdict;
    }
    let measured = world.history.most_measured;
    verdict.check((measured > MOST).then(|| Finding {
        at: world.history.ended,
        what: format!("one turn asked for {measured} measurements"),
        right: format!("at most {MOST}"),
    }));
    verdict
}
