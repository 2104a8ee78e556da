//! The truth about the workloads at a decision, with the margin of what the agent can know: its list and its readings are older.

use crate::history::Row;
use crate::plan::Role;
use crate::truth::Truth;

/// The agent does not know the growth of a pod that started, nor whether it goes on, for so long after its start.
const JUST_STARTED: f64 = 0.5;
/// The list of workloads is as old as this at a decision.
const LISTED: f64 = 0.6;
/// The agent reads the growth of more workloads in turn.
const IN_TURN: usize = 64;
/// The readings of the last second are looked at in these steps, in seconds.
const STEP: f64 = 0.1;

/// Returns the rows of the workloads that live.
pub fn rows(truth: &Truth<'_>, now: f64) -> Vec<Row> {
    let living = (0..truth.plan.pods.len()).filter(|pod| truth.lives(*pod) && truth.pod(*pod).is_started(now));
    living.map(|pod| row(truth, pod, now)).collect()
}

fn row(truth: &Truth<'_>, pod: usize, now: f64) -> Row {
    let plan = truth.pod(pod);
    let gain = truth.holds(pod, now);
    let excess = (gain - plan.request).max(0.0);
    let is_growing = excess > 0.0 && !plan.is_idle();
    let (slow, fast) = if is_growing { (slowest(truth, pod, now), fastest(truth, pod, now)) } else { (0.0, 0.0) };
    Row {
        pod,
        is_candidate: plan.role != Role::Protected,
        only_as_culprit: matches!(plan.role, Role::DaemonSet | Role::Service),
        gain,
        excess,
        slow,
        fast,
        may_be_unlisted: plan.starts.is_some_and(|(at, _)| now < at + LISTED),
        is_new: plan.starts.is_some_and(|(at, takes)| now < at + takes + JUST_STARTED),
    }
}

/// Returns the growths that the agent may have measured lately. A reading may be a second old where a decision is near.
fn present(truth: &Truth<'_>, pod: usize, now: f64) -> impl Iterator<Item = f64> {
    let of_spans = [0.3, 1.0, 2.0].into_iter().map(move |span| truth.growth(pod, span, now));
    // One that grows by steps makes one step more or less in the second that was measured.
    let before = (1..=10).flat_map(|step| [0.9, 1.1].map(|span| (span, STEP * f64::from(step))));
    of_spans.chain(before.map(move |(span, before)| truth.growth(pod, span, now - before)))
}

fn slowest(truth: &Truth<'_>, pod: usize, now: f64) -> f64 {
    present(truth, pod, now).fold(f64::INFINITY, f64::min)
}

/// Returns the most of the present growths and of those before: where many grow, they are read in turn.
fn fastest(truth: &Truth<'_>, pod: usize, now: f64) -> f64 {
    let before: &[f64] = if truth.plan.pods.len() > IN_TURN { &[1.0, 2.0, 3.0] } else { &[1.0] };
    let before = before.iter().flat_map(|before| [1.0, 2.0].map(|span| truth.growth(pod, span, now - before)));
    // The agent knows that a new pod held nothing at the list before. Its last reading may be a second old.
    let since = truth.pod(pod).starts.map(|(at, _)| now - at).filter(|since| *since < 3.0);
    let as_new = since.map_or(0.0, |since| truth.holds(pod, now) / (since - 1.0).max(0.05));
    before.chain([as_new]).chain(present(truth, pod, now)).fold(0.0, f64::max)
}
