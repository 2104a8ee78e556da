//! Drives the decider with the statistics of one moment: by the kubelet's rules, one synchronization at a time (`eviction-semantics.md` §3),
//! or by the agent's, for [`super::preview`].

use crate::config::{Policy, Quirk};
use crate::units::{Moment, Resource, Signal};
use crate::workloads::{Pod, Summary};

use super::decider::{
    Answer, Attempt, Choice, Decider, LimitExceeded, Measure, Next, Note, Pace, Place, RecordedCandidate, Rules,
    RuntimeFacts, Snapshot,
};
use super::evicted::Eviction;
use super::garbage::{self, Collector};
use super::memory_benefit::Worth;
use super::preview::MissingRule;
use super::rank::Ranked;
use super::usage::{PodCandidate, active_pods, candidates, standing};
use super::{Armed, Assessment, Layout, MetThreshold, Observation, local_storage, message, signals};

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
    /// What the end of the evicted pod is worth, by the agent's rules for memory.
    pub worth: Option<Worth>,
    pub notes: Vec<Note>,
    /// The agent's rules that could not be applied here.
    pub not_applied: Vec<MissingRule>,
}

/// Decides by the kubelet's rules.
pub fn synchronize<'a>(
    decider: &mut Decider<RecordedCandidate>,
    policy: &Policy,
    input: &Input<'a>,
) -> Synchronized<'a> {
    let observation = signals::observe(input.summary, policy.quirks);
    let snapshot =
        Snapshot { now: input.now, layout: input.layout, observation, has_limits: true, ..Snapshot::default() };
    let active = active_pods(input.pods, input.summary);
    let turn = Turn {
        rules: Rules { policy, pace: Pace::Kubelet },
        snapshot,
        after_collection: input.after_collection,
        candidates: Box::new(|signal| candidates(policy, signal, input.layout, &active).collect()),
        above_limits: Box::new(|| local_storage::evictions(policy, input.layout, &active)),
    };
    turn.take(decider)
}

/// One turn of the decider, with the facts of one moment.
pub(super) struct Turn<'t, 'a> {
    pub(super) rules: Rules<'t>,
    pub(super) snapshot: Snapshot,
    pub(super) after_collection: Option<&'a Summary>,
    /// Returns the candidates for a signal.
    pub(super) candidates: Box<dyn Fn(Signal) -> Vec<PodCandidate<'a>> + 't>,
    /// Returns the evictions of pods above a limit of their own.
    pub(super) above_limits: Box<dyn Fn() -> Vec<Eviction<'a>> + 't>,
}

impl<'a> Turn<'_, 'a> {
    pub(super) fn take(self, decider: &mut Decider<RecordedCandidate>) -> Synchronized<'a> {
        let mut driven: Decider<PodCandidate<'a>> = std::mem::take(decider).between_turns();
        let (mut done, mut above) = (Synchronized::default(), Vec::new());
        let mut answer = Answer::Begin;
        loop {
            answer = match driven.step(self.rules, &self.snapshot, answer) {
                Next::Measure(what) => self.measure(what, &mut done, &mut above),
                Next::CollectGarbage { collectors, .. } => {
                    (done.garbage_collection, done.collection_sufficed) = (collectors, true);
                    self.collected(driven.armed())
                }
                Next::Evict(choice) => {
                    self.evict(&driven, &choice, &above, &mut done);
                    Answer::Attempt(Attempt::Started)
                }
                // Files hold no figures that reclaim could use.
                Next::Reclaim { .. } | Next::EndReclaim { .. } | Next::Wait { .. } => break,
            };
        }
        done.acted_on = driven.acted_on().cloned();
        done.notes.extend(driven.notes());
        (done.ranking, done.assessment) = (driven.take_ranking(), driven.take_assessment());
        *decider = driven.between_turns();
        done.node_event = node_event(self.rules.policy, &done);
        done.observation = self.snapshot.observation;
        done
    }

    fn measure(
        &self,
        what: Measure,
        done: &mut Synchronized<'a>,
        above: &mut Vec<Eviction<'a>>,
    ) -> Answer<PodCandidate<'a>> {
        match what {
            Measure::Candidates { signal, .. } => {
                done.collection_sufficed = false;
                Answer::Candidates((self.candidates)(signal))
            }
            Measure::Limits => {
                *above = (self.above_limits)();
                Answer::Limits(above.iter().map(exceeded).collect())
            }
            // The statistics of one moment hold all figures, and they are exact.
            Measure::Signals => Answer::Sampled,
            Measure::Runtime => Answer::Runtime(RuntimeFacts::Up),
            Measure::Disks { .. } => Answer::DisksMeasured(true),
            Measure::Standing { place: Place::Limit(place) } => {
                Answer::Standing(above.get(place).map(|eviction| standing(eviction.pod)).unwrap_or_default())
            }
            Measure::Standing { .. } | Measure::Exact { .. } | Measure::Holding { .. } => Answer::Begin,
        }
    }

    /// Returns what the collection of garbage freed. That of a kubelet is a part of the synchronization, and that of the agent goes on beside it.
    fn collected(&self, armed: &[Armed]) -> Answer<PodCandidate<'a>> {
        let policy = self.rules.policy;
        let after = self.after_collection.map(|summary| signals::observe(summary, policy.quirks));
        match self.rules.pace {
            Pace::Kubelet | Pace::Ranking => {
                Answer::Collected(after.unwrap_or_else(|| self.snapshot.observation.clone()))
            }
            Pace::Agent(_) => {
                let is_enough = after.is_some_and(|after| garbage::is_enough(policy, armed, &after));
                Answer::CollectionStarted(is_enough)
            }
        }
    }

    fn evict(
        &self,
        decider: &Decider<PodCandidate<'a>>,
        choice: &Choice,
        above: &[Eviction<'a>],
        done: &mut Synchronized<'a>,
    ) {
        match choice.place {
            Place::Ranked(place) => {
                done.eviction = eviction(self.rules.policy, self.snapshot.layout, decider, choice, place);
                done.worth = decider.worth_at(place);
            }
            Place::Limit(place) => done.local_storage.extend(above.get(place).cloned()),
        }
    }
}

fn exceeded(eviction: &Eviction<'_>) -> LimitExceeded {
    LimitExceeded { id: PodCandidate::cgroup_of(eviction.pod), cause: eviction.cause, is_stale: false }
}

fn eviction<'a>(
    policy: &Policy,
    layout: Layout,
    decider: &Decider<PodCandidate<'a>>,
    choice: &Choice,
    place: usize,
) -> Option<Eviction<'a>> {
    let PodCandidate { pod, stats, .. } = decider.ranking().get(place)?.candidate;
    let met = decider.acted_on()?;
    let (message, annotations) = message::compose(policy, layout, met, pod, stats);
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
