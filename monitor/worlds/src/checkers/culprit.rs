//! Invariant 3. After the first eviction of a shortage culprits go before bystanders; before it, a bystander goes only if its end alone buys the minimum.
//! A culprit is never within its request, and its growth was measured.

use node_pressure_monitor::eviction::memory_benefit::Worth;

use super::{Finding, Verdict, World, is_blind};
use crate::history::{Decision, Row};

/// The seconds that the first eviction has to buy, less a fifth for the accuracy of the rates.
const MINIMUM: f64 = 8.0;

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for decision in &world.history.decisions {
        let Some(victim) = decision.victim() else { continue };
        verdict.check(named(world, decision, victim).or_else(|| bystander(world, decision, victim)));
    }
    verdict
}

/// Judges whether a victim that was called a culprit is one.
fn named(world: &World<'_>, decision: &Decision, victim: &Row) -> Option<Finding> {
    let name = &world.plan.pods[victim.pod].name;
    let what = match decision.worth {
        Some(Worth::Leaks) if victim.excess <= 0.0 => format!("{name} is within its request, and was called a culprit"),
        Some(Worth::Leaks) if !decision.is_growth_known => {
            format!("the growth of {name} is not known, and it was called a culprit")
        }
        Some(Worth::Leaks) if !decision.may_be_culprit(victim, world.plan) && !is_blind(world.plan, decision.at) => {
            format!("{name} grows by {:.2} of {:.2} MiB/s, and was called a culprit", victim.fast, decision.fall)
        }
        _ => return None,
    };
    Some(Finding { at: decision.at, what, right: "another, or no culprit".to_owned() })
}

fn bystander(world: &World<'_>, decision: &Decision, victim: &Row) -> Option<Finding> {
    // The agent takes the jumps of the kernel's counters off the fall.
    let noise = world.plan.noise();
    let buys = victim.gain / (decision.fall - noise).max(1e-6);
    let helps = decision.before == 0 && buys >= MINIMUM && victim.gain >= decision.missing * 0.9;
    if decision.may_be_culprit(victim, world.plan) || helps || is_blind(world.plan, decision.at) {
        return None;
    }
    let right =
        decision.others().find(|row| decision.is_certain_culprit(row, noise) && row.gain >= decision.missing * 0.12)?;
    let what = format!(
        "{} is a bystander and buys {:.1} s, after {} evictions",
        world.plan.pods[victim.pod].name,
        decision.buys(victim),
        decision.before
    );
    let name = &world.plan.pods[right.pod].name;
    let right = format!("{name}, which grows by {:.1} of {:.1} MiB/s", right.slow, decision.fall);
    Some(Finding { at: decision.at, what, right })
}
