//! Tells a world so that a person can read it: the node, its pods, what was chosen when, and what would have been right.

use std::fmt::Write as _;

use node_pressure_monitor::eviction::memory_benefit::Worth;

use crate::checkers::{Checker, Finding, World};
use crate::judge::played;
use crate::plan::{Curve, Plan, Pod, Role};

const MOST_PODS: usize = 14;

/// Returns the story of a world in which an invariant breaks.
pub fn tell(plan: &Plan, checker: Checker, findings: &[Finding]) -> String {
    let world = played(plan);
    let mut text = format!("invariant {} ({}) breaks, seed {}\n", checker.number, checker.name, plan.seed);
    node(&mut text, plan);
    for pod in plan.pods.iter().take(MOST_PODS) {
        _ = writeln!(text, "  {}", words(pod));
    }
    if let Some(more) = plan.pods.len().checked_sub(MOST_PODS).filter(|more| *more > 0) {
        _ = writeln!(text, "  and {more} more");
    }
    happened(&mut text, &world);
    for finding in findings {
        _ = writeln!(text, "  WRONG at {:.2} s: {}; right: {}", finding.at, finding.what, finding.right);
    }
    text
}

fn node(text: &mut String, plan: &Plan) {
    let Plan { capacity, threshold, minimum_reclaim, available, ranking, history, error, .. } = plan;
    _ = writeln!(
        text,
        "  node of {capacity:.0} MiB, threshold {threshold:.0} MiB, minimum reclaim {minimum_reclaim:.0}, {available:.0} available, \
         ranking {ranking:?}, evictions and poor ones before {history:?}, error {error:.1}"
    );
    if plan.other_leak.0 > 0.0 {
        _ = writeln!(text, "  the kernel leaks {:.2} MiB/s from {:.1} s on", plan.other_leak.0, plan.other_leak.1);
    }
    for (name, times) in [("stands still", &plan.standstills), ("agent restarts", &plan.restarts)] {
        for (at, lasts) in times {
            _ = writeln!(text, "  {name} at {at:.2} s for {lasts:.2} s");
        }
    }
    for (at, pod) in &plan.other_kills {
        _ = writeln!(text, "  another program kills {} at {at:.2} s", plan.pods[*pod].name);
    }
}

fn words(pod: &Pod) -> String {
    let growth = match pod.growth {
        Curve::Idle => "idle".to_owned(),
        growth => format!("{growth:.2?}"),
    };
    let growth = match pod.starts {
        Some((at, takes)) => format!("{growth}, starts at {at:.2} s for {takes:.2} s"),
        None => growth,
    };
    let role = if pod.role == Role::Pod { String::new() } else { format!("{:?} ", pod.role) };
    let dies = match pod.dies_after {
        None => ", never gives its memory back".to_owned(),
        Some(after) if after + pod.dies_for > 0.3 => format!(", dies after {after:.1} s for {:.1} s", pod.dies_for),
        Some(_) => String::new(),
    };
    let cache =
        if pod.cache > 0.0 { format!(", {:.0} cache +{:.1}/s", pod.cache, pod.cache_growth) } else { String::new() };
    format!(
        "{role}{} {:?} priority {}: {:.1} of {:.1} MiB requested{cache}, {growth}{dies}",
        pod.name, pod.class, pod.priority, pod.memory, pod.request
    )
}

fn happened(text: &mut String, world: &World<'_>) {
    for decision in &world.history.decisions {
        let worth = decision.worth.map(Worth::words).unwrap_or_default();
        _ = writeln!(
            text,
            "  at {:.2} s, {:.1} available, {:.1} missing, fall {:.2} MiB/s: killed {} ({worth})",
            decision.at, decision.available, decision.missing, decision.fall, world.plan.pods[decision.victim].name
        );
    }
    if let Some(at) = world.history.oom {
        _ = writeln!(text, "  at {at:.2} s: the kernel's OOM killer");
    }
}
