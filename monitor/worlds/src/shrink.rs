//! Makes a failing world small enough to read, as long as the same invariant breaks.

use crate::checkers::Checker;
use crate::judge::judge_one;
use crate::plan::Plan;

/// The most worlds that are tried.
const TRIES: usize = 400;

pub fn shrink(plan: &Plan, checker: Checker) -> Plan {
    let (mut best, mut tries) = (plan.clone(), 0);
    let mut size = plan.pods.len().div_ceil(2);
    let mut attempt = |best: &mut Plan, smaller: Plan| {
        tries += 1;
        let fails = tries <= TRIES && !judge_one(&smaller, checker).findings.is_empty();
        if fails {
            *best = smaller;
        }
        fails
    };
    for change in CHANGES {
        let mut smaller = best.clone();
        change(&mut smaller);
        attempt(&mut best, smaller);
    }
    while size > 0 {
        let mut from = 0;
        while from < best.pods.len() && best.pods.len() > 1 {
            let smaller = without(&best, from, size);
            if !attempt(&mut best, smaller) {
                from += size;
            }
        }
        size /= 2;
    }
    best
}

/// Changes that leave a simpler world.
const CHANGES: [fn(&mut Plan); 9] = [
    |plan| plan.error = 0.0,
    |plan| plan.standstills.clear(),
    |plan| plan.restarts.clear(),
    |plan| plan.other_kills.clear(),
    |plan| plan.history = None,
    |plan| plan.minimum_reclaim = 0.0,
    |plan| plan.pods.iter_mut().for_each(|pod| (pod.cache, pod.cache_growth) = (0.0, 0.0)),
    |plan| plan.pods.iter_mut().for_each(|pod| pod.priority = 0),
    |plan| plan.pods.iter_mut().for_each(|pod| (pod.dies_after, pod.dies_for) = (Some(0.02), 0.05)),
];

fn without(plan: &Plan, from: usize, count: usize) -> Plan {
    let mut plan = plan.clone();
    let until = plan.pods.len().min(from + count);
    plan.pods.drain(from..until);
    plan.other_kills.clear();
    plan
}
