//! One whole pass: from statistics and pods to what is to be done about them (`eviction-semantics.md` §3).
//!
//! Made of steps that can be taken one by one, which whoever acts has to: it looks again between garbage collection and ranking.

use crate::config::{Policy, Quirk};
use crate::units::Moment;
use crate::workloads::{Pod, Summary};

use super::evicted::IMMEDIATE_GRACE_SECONDS;
use super::rank::{Order, Ranked};
use super::usage::{ActivePod, active_pods, candidates};
use super::{
    Armed, Assessment, Layout, MetThreshold, Observation, State, assess, garbage, local_storage, message, signals,
};

pub use super::conditions::NodeEvent;
pub use super::evicted::{Cause, Eviction, REASON};
pub use super::garbage::Collector;
pub use super::usage::PodCandidate;

/// What a pass looks at.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The time, for grace and transition periods.
    pub now: Moment,
    /// Which filesystems the node has.
    pub layout: Layout,
    /// What is used.
    pub summary: &'a Summary,
    /// What is used once garbage has been collected; without it, that freed nothing.
    pub after_collection: Option<&'a Summary>,
    /// The pods of the node, ended ones too.
    pub pods: &'a [Pod],
}

/// What is to be done, and what that rests on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision<'a> {
    /// The signals, before garbage collection.
    pub observation: Observation,
    /// The thresholds and conditions.
    pub assessment: Assessment,
    /// Pods that are above a limit of local storage. When there are any nothing else is done.
    pub local_storage: Vec<Eviction<'a>>,
    /// The threshold that is acted on.
    pub acted_on: Option<MetThreshold>,
    /// What to remove first, in this order.
    pub garbage_collection: &'static [Collector],
    /// That was enough: no pod has to go.
    pub collection_sufficed: bool,
    /// The candidates, first to be evicted first, critical pods among them; empty when nobody has to go.
    pub ranking: Vec<Ranked<PodCandidate<'a>>>,
    /// The first of them that may be evicted.
    pub eviction: Option<Eviction<'a>>,
    /// What to tell about the node.
    pub node_event: Option<NodeEvent>,
}

/// Makes one pass.
#[must_use]
pub fn pass<'a>(policy: &Policy, armed: &[Armed], state: &State, input: &Input<'a>) -> (State, Decision<'a>) {
    let observation = signals::observe(input.summary, policy.quirks);
    let (state, assessment) = assess(policy, armed, state, &observation, input.now);
    let active = active_pods(input.pods, input.summary);
    let local_storage = local_storage::evictions(policy, input.layout, &active);
    let acted_on = assessment.to_act_on().first().map(|met| (*met).clone());
    let decision = Decision { observation, assessment, local_storage, ..Decision::default() };
    let Some(acted_on) = acted_on.filter(|_| decision.local_storage.is_empty()) else { return (state, decision) };

    let garbage_collection = garbage::collectors(acted_on.threshold.signal, input.layout);
    let collection_sufficed = !garbage_collection.is_empty() && {
        let after = input.after_collection.map(|summary| signals::observe(summary, policy.quirks));
        garbage::is_enough(policy, armed, after.as_ref().unwrap_or(&decision.observation))
    };
    let ranking = if collection_sufficed { Vec::new() } else { rank(policy, &acted_on, input.layout, &active) };
    let eviction = first_evictable(policy, &acted_on, &ranking);
    let node_event = node_event(policy, &acted_on, garbage_collection, eviction.as_ref());
    let acted_on = Some(acted_on);
    let decision =
        Decision { acted_on, garbage_collection, collection_sufficed, ranking, eviction, node_event, ..decision };
    (state, decision)
}

/// Orders the active pods, first to be evicted first. They are ranked by the statistics from before garbage collection.
#[must_use]
pub fn rank<'a>(
    policy: &Policy,
    acted_on: &MetThreshold,
    layout: Layout,
    active: &[ActivePod<'a>],
) -> Vec<Ranked<PodCandidate<'a>>> {
    let signal = acted_on.threshold.signal;
    Order::of(policy, signal.resource()).rank(candidates(policy, signal, layout, active))
}

/// The eviction of the first pod that is not critical. One at a time: the next pass sees what it has brought.
#[must_use]
pub fn first_evictable<'a>(
    policy: &Policy,
    acted_on: &MetThreshold,
    ranking: &[Ranked<PodCandidate<'a>>],
) -> Option<Eviction<'a>> {
    let candidate = ranking.iter().map(|ranked| &ranked.candidate).find(|candidate| !candidate.pod.is_critical())?;
    let grace_period_seconds = if acted_on.is_hard() {
        IMMEDIATE_GRACE_SECONDS
    } else {
        policy.soft_grace_seconds(candidate.pod.spec.termination_grace_period_seconds)
    };
    let (message, annotations) = message::compose(policy, acted_on, candidate.pod, candidate.stats);
    Some(Eviction {
        pod: candidate.pod,
        cause: Cause::Signal(acted_on.threshold.signal),
        grace_period_seconds,
        message,
        annotations,
        has_disruption_target: true,
    })
}

/// The event on the node: the kubelet sends it on every pass on which something is to be got back, whether or not that can be.
#[must_use]
pub fn node_event(
    policy: &Policy,
    acted_on: &MetThreshold,
    garbage_collection: &[Collector],
    eviction: Option<&Eviction<'_>>,
) -> Option<NodeEvent> {
    let can_act = !garbage_collection.is_empty() || eviction.is_some();
    let resource = acted_on.threshold.signal.resource();
    (can_act || policy.quirks.has(Quirk::EventWithoutCandidate)).then_some(NodeEvent { resource })
}

#[cfg(test)]
#[path = "pass_tests.rs"]
mod tests;
