//! Invariant 11. The reason given is the reason.

use node_pressure_monitor::eviction::decider::PassedOver;

use super::{Finding, Verdict, World};
use crate::plan::Role;

pub fn check(world: &World<'_>) -> Verdict {
    let mut verdict = Verdict::default();
    for (pod, why) in &world.history.stayed {
        let plan = &world.plan.pods[*pod];
        let is_true = match why {
            // No workload of a world is critical.
            PassedOver::Exempt => false,
            PassedOver::NotALeaker => matches!(plan.role, Role::DaemonSet | Role::Service),
            PassedOver::Daemon => plan.role == Role::DaemonSet,
            PassedOver::WithinRequest => plan.request > 0.0,
            PassedOver::Tried => world.history.killed[*pod].is_some(),
            PassedOver::NotMeasured | PassedOver::TooLittle | PassedOver::WouldBuy(_) | PassedOver::NotACulprit => true,
        };
        verdict.check((!is_true).then(|| Finding {
            at: world.history.ended,
            what: format!("{} stays because {why}", plan.name),
            right: "the true reason".to_owned(),
        }));
    }
    verdict
}
