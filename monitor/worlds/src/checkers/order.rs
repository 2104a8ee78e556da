//! Invariant 7. All else equal, a workload with a lower class or priority, or with more excess, is never safer than before.

use super::{Finding, Verdict, World, is_close_call, is_sampled};
use crate::history::Decision;
use crate::plan::{Curve, Plan, Pod};
use crate::run::{Options, run};

/// A change that lowers the workload in the order.
type Worse = (&'static str, fn(&mut Pod));

const WORSE: [Worse; 2] =
    [("with a lower priority", |pod| pod.priority -= 1_000), ("with half of its request", halve_request)];

/// A workload that warms up stops to grow at its request, so with another request it would be another workload.
fn halve_request(pod: &mut Pod) {
    if !matches!(pod.growth, Curve::WarmUp { .. }) {
        pod.request /= 2.0;
    }
}

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    let Some(first) = world.history.decisions.first().filter(|_| is_sampled(world.plan, 8)) else { return verdict };
    for (name, change) in WORSE {
        let mut plan = Plan::clone(world.plan);
        change(&mut plan.pods[first.victim]);
        let (history, _) = run(&plan, Options { until_first: true, ..Options::default() });
        // With more excess the victim may be one of several culprits, of which another one ranks first.
        let is_culprit = |other: &Decision| other.victim().is_some_and(|row| other.may_be_culprit(row, world.plan));
        let is_other = |other: &&Decision| other.victim != first.victim && !is_culprit(other) && !is_close_call(world);
        let other = history.decisions.first().filter(is_other);
        verdict.check(other.map(|other| Finding {
            at: other.at,
            what: format!("{} is safer {name}: {} goes", plan.pods[first.victim].name, plan.pods[other.victim].name),
            right: plan.pods[first.victim].name.clone(),
        }));
    }
    verdict
}
