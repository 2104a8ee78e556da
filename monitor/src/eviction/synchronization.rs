//! Drives the decider with what a kubelet knows, one synchronization at a time (`eviction-semantics.md` §3).

use crate::config::{Policy, Quirk};
use crate::units::{CgroupId, Moment, Resource};
use crate::workloads::{Pod, Summary};

use super::decider::{
    Answer, Attempt, Choice, Decider, LimitExceeded, Measure, Next, Pace, Place, RecordedCandidate, Rules, Snapshot,
};
use super::evicted::Eviction;
use super::garbage::Collector;
use super::rank::Ranked;
use super::usage::{ActivePod, PodCandidate, active_pods, candidates};
use super::{Assessment, Layout, MetThreshold, Observation, local_storage, message, signals};

/// The statistics and pods of one moment.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    pub now: Moment,
    pub layout: Layout,
    pub summary: &'a Summary,
    /// The statistics after garbage collection, or `None` if it freed nothing.
    pub after_collection: Option<&'a Summary>,
    /// The pods of the node, including those that have ended.
    pub pods: &'a [Pod],
}

/// The decision of one synchronization, with the facts behind it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Synchronized<'a> {
    /// The signals before garbage collection.
    pub observation: Observation,
    pub assessment: Assessment,
    /// Evictions of pods above a limit of local storage. If there are any, the synchronization does nothing else.
    pub local_storage: Vec<Eviction<'a>>,
    pub acted_on: Option<MetThreshold>,
    /// The garbage that is collected first, in this order.
    pub garbage_collection: &'static [Collector],
    pub collection_sufficed: bool,
    /// The candidates including critical pods, first to be evicted first. The list is empty if no pod has to be evicted.
    pub ranking: Vec<Ranked<PodCandidate<'a>>>,
    /// The eviction of the first candidate that is not critical.
    pub eviction: Option<Eviction<'a>>,
    /// The resource that the event on the node names.
    pub node_event: Option<Resource>,
}

pub fn synchronize<'a>(
    decider: &mut Decider<RecordedCandidate>,
    policy: &Policy,
    input: &Input<'a>,
) -> Synchronized<'a> {
    let rules = Rules { policy, pace: Pace::Kubelet };
    let observation = signals::observe(input.summary, policy.quirks);
    let snapshot =
        Snapshot { now: input.now, layout: input.layout, observation, has_limits: true, ..Snapshot::default() };
    let active = active_pods(input.pods, input.summary);
    let mut driven: Decider<PodCandidate<'a>> = std::mem::take(decider).between_turns();
    let mut done = Synchronized::default();
    let mut answer = Answer::Begin;
    loop {
        answer = match driven.step(rules, &snapshot, answer) {
            Next::Measure(Measure::Candidates { signal, .. }) => {
                done.collection_sufficed = false;
                Answer::Candidates(candidates(policy, signal, input.layout, &active).collect())
            }
            Next::Measure(Measure::Limits) => Answer::Limits(limits(&mut done, policy, input.layout, &active)),
            Next::CollectGarbage { collectors, .. } => {
                (done.garbage_collection, done.collection_sufficed) = (collectors, true);
                let after = input.after_collection.map(|summary| signals::observe(summary, policy.quirks));
                Answer::Collected(after.unwrap_or_else(|| snapshot.observation.clone()))
            }
            Next::Evict(choice) => {
                if let Place::Ranked(place) = choice.place {
                    done.eviction = eviction(policy, &driven, &choice, place);
                }
                Answer::Attempt(Attempt::Started)
            }
            // At the pace of a kubelet the decider asks for nothing else.
            Next::Measure(_) | Next::Reclaim { .. } | Next::EndReclaim { .. } | Next::Wait { .. } => break,
        };
    }
    done.acted_on = driven.acted_on().cloned();
    (done.ranking, done.assessment) = (driven.take_ranking(), driven.take_assessment());
    *decider = driven.between_turns();
    done.node_event = node_event(policy, &done);
    done.observation = snapshot.observation;
    done
}

fn limits<'a>(
    done: &mut Synchronized<'a>,
    policy: &Policy,
    layout: Layout,
    active: &[ActivePod<'a>],
) -> Vec<LimitExceeded> {
    done.local_storage = local_storage::evictions(policy, layout, active);
    let exceeded = |eviction: &Eviction<'_>| LimitExceeded { id: CgroupId(0), cause: eviction.cause, is_stale: false };
    done.local_storage.iter().map(exceeded).collect()
}

fn eviction<'a>(
    policy: &Policy,
    decider: &Decider<PodCandidate<'a>>,
    choice: &Choice,
    place: usize,
) -> Option<Eviction<'a>> {
    let PodCandidate { pod, stats, .. } = decider.ranking().get(place)?.candidate;
    let (message, annotations) = message::compose(policy, decider.acted_on()?, pod, stats);
    let Choice { cause, grace_period_seconds, .. } = *choice;
    Some(Eviction { pod, cause, grace_period_seconds, message, annotations, has_disruption_target: true })
}

/// Returns the resource of the event on the node. A kubelet sends it on every synchronization that has a threshold to act on. Without
/// [`Quirk::EventWithoutCandidate`] it is sent only if garbage is collected or a pod is evicted.
fn node_event(policy: &Policy, done: &Synchronized<'_>) -> Option<Resource> {
    let resource = done.acted_on.as_ref()?.threshold.signal.resource();
    let can_act = !done.garbage_collection.is_empty() || done.eviction.is_some();
    (can_act || policy.quirks.has(Quirk::EventWithoutCandidate)).then_some(resource)
}

#[cfg(test)]
#[path = "synchronization_tests.rs"]
mod tests;
