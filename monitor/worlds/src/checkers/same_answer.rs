//! Invariant 9. Observe and enforce name the same first victim.

use node_pressure_monitor::config::Mode;

use super::{Finding, Verdict, World, is_close_call, is_sampled};
use crate::run::{Options, run};

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    // With an error of the samples the two agents have other figures.
    let is_fit = is_sampled(world.plan, 8) && world.plan.error <= 0.0;
    let Some(first) = world.history.decisions.first().filter(|_| is_fit) else { return verdict };
    let (history, _) = run(world.plan, Options { mode: Mode::Observe, until_first: true, ..Options::default() });
    let named = history.decisions.first().map(|decision| decision.victim);
    // After a choice of nobody the two look again at other times.
    let is_later = history.decisions.first().is_some_and(|other| (other.at - first.at).abs() > 0.05);
    if is_later || history.chose_nobody {
        return verdict;
    }
    let name = |pod: Option<usize>| pod.map_or("nobody", |pod| world.plan.pods[pod].name.as_str());
    verdict.check((named != Some(first.victim) && !is_close_call(world)).then(|| Finding {
        at: first.at,
        what: format!("observe mode names {}", name(named)),
        right: name(Some(first.victim)).to_owned(),
    }));
    verdict
}
