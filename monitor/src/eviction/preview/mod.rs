//! What the agent would decide about the pods of files, for `simulate` and `rank`: the decider with the agent's rules, and with the figures
//! that the files hold. The rules that lack figures are named ([`MissingRule`]). Pure.

mod missing_rules;
mod readings;
#[cfg(test)]
mod tests;
mod view;

use crate::config::Mode;
use crate::units::{Bytes, CgroupId, Monotonic, Resource, Signal};
use crate::workloads::Summary;
use crate::workloads::kubelet_summary::PodStats;

use super::collection::CollectionEnd;
use super::decider::{
    AgentRules, Answer, Decider, EndedEviction, EvictionEnd, Memory, RecordedCandidate, Rules, Snapshot,
};
use super::evicted::{Cause, Eviction};
use super::rank::Ranked;
use super::synchronization::{Input, Synchronized, Turn};
use super::usage::{ActivePod, PodCandidate, active_pods};
use super::{Armed, MetThreshold, SignalValue, local_storage, signals};
use missing_rules::Known;
use readings::Readings;

pub use missing_rules::MissingRule;
pub use view::AgentView;

/// The agent on a node of files. It goes on from one moment to the next.
#[derive(Debug)]
pub struct Preview<'c> {
    view: AgentView<'c>,
    decider: Decider<RecordedCandidate>,
    readings: Readings,
    ordered: Option<Ordered>,
    ended: Vec<EndedEviction>,
    collected: Option<CollectionEnd>,
    has_begun: bool,
    has_evicted: bool,
    /// The rules that were named as not applied. Each is named once.
    named: Vec<MissingRule>,
}

/// An eviction in `mode: enforce`. The files tell only later whether it was carried out.
#[derive(Debug)]
struct Ordered {
    id: CgroupId,
    cause: Cause,
    used: Bytes,
    /// The memory of the decider if it was not carried out.
    otherwise: Memory,
}

impl<'c> Preview<'c> {
    pub fn of(view: AgentView<'c>) -> Self {
        Self {
            view,
            decider: Decider::default(),
            readings: Readings::default(),
            ordered: None,
            ended: Vec::new(),
            collected: None,
            has_begun: false,
            has_evicted: false,
            named: Vec::new(),
        }
    }

    pub fn armed(&self) -> &[Armed] {
        self.decider.armed()
    }

    /// Decides about one moment, as the agent does in one turn.
    pub fn synchronize<'a>(&mut self, input: &Input<'a>) -> Synchronized<'a> {
        let active = active_pods(input.pods, input.summary);
        let snapshot = self.take_in(input, &active);
        let now = snapshot.clock();
        let agent = self.view.agent();
        let before = (agent.mode == Mode::Enforce).then(|| self.decider.memory().clone());
        let mut done = turn((&self.view, agent), &self.readings, (input, &active), &snapshot).take(&mut self.decider);
        self.collected = (agent.mode == Mode::Enforce && done.collection_sufficed).then_some(CollectionEnd::Enough);
        let ordered = done.eviction.as_ref().or(done.local_storage.first());
        if let Some((eviction, before)) = ordered.zip(before) {
            let (mut otherwise, observing) =
                (Decider::remembering(before), AgentRules { mode: Mode::Observe, ..agent });
            turn((&self.view, observing), &self.readings, (input, &active), &snapshot).take(&mut otherwise);
            let used = stats_of(eviction, &active).map_or(Bytes::ZERO, memory_of);
            let (id, cause) = (PodCandidate::cgroup_of(eviction.pod), eviction.cause);
            self.ordered = Some(Ordered { id, cause, used, otherwise: otherwise.memory().clone() });
        }
        done.not_applied = self.name(self.missing(&done, input.summary, now));
        self.has_evicted |= done.eviction.is_some();
        self.has_begun = true;
        done
    }

    /// Takes in the figures of a moment without a decision about it.
    pub fn observe(&mut self, input: &Input<'_>) {
        let active = active_pods(input.pods, input.summary);
        let snapshot = self.take_in(input, &active);
        let observing = AgentRules { mode: Mode::Observe, ..self.view.agent() };
        // The first step takes in the signals. The turn ends with the first step of the next one.
        let _unanswered = self.decider.step(self.view.rules(observing), &snapshot, Answer::Begin);
        self.has_begun = true;
    }

    /// Returns the decider that is asked about a signal, whether or not a threshold on it is met, with its rules and the snapshot.
    pub fn ask<'a>(
        mut self,
        signal: Signal,
        input: &Input<'a>,
        active: &[ActivePod<'a>],
    ) -> (Asked<'c>, Decider<PodCandidate<'a>>) {
        let snapshot = Snapshot { question: Some(signal), ..self.take_in(input, active) };
        let rules = self.view.rules(AgentRules { mode: Mode::Observe, ..self.view.agent() });
        let decider = std::mem::take(&mut self.decider).between_turns();
        (Asked { view: self.view, readings: self.readings, rules, snapshot }, decider)
    }

    /// Takes in what the figures tell about evictions, growth and signals.
    fn take_in(&mut self, input: &Input<'_>, active: &[ActivePod<'_>]) -> Snapshot {
        self.settle(active);
        let policy = self.view.policy();
        let mut observation = signals::observe(input.summary, policy.quirks);
        // The agent samples anew at each moment.
        observation.signals.iter_mut().for_each(|value| value.at = None);
        let snapshot = Snapshot {
            now: input.now,
            layout: input.layout,
            ended: std::mem::take(&mut self.ended),
            collected: self.collected.take(),
            workloads: active.len(),
            has_limits: true,
            ..Snapshot::default()
        };
        let now = snapshot.clock();
        self.readings.take(active.iter().filter_map(|active| reading(active, now)));
        let protected_growth = self.readings.fastest(self.view.protected(active), now);
        let rules = self.view.rules(self.view.agent());
        self.decider.presume_armed(rules, input.layout, &observation);
        Snapshot { observation, protected_growth, ..snapshot }
    }

    /// Ends the eviction of the moment before, if the pod is gone or has given back half of its memory. Otherwise the eviction was not carried
    /// out: the files are what happened.
    fn settle(&mut self, active: &[ActivePod<'_>]) {
        let Some(Ordered { id, cause, used, otherwise }) = self.ordered.take() else { return };
        let is_victim = |active: &&ActivePod<'_>| {
            PodCandidate::cgroup_of(active.pod) == id && active.pod.metadata.deletion.is_none()
        };
        let left = active.iter().find(is_victim).and_then(|active| active.stats).map(memory_of);
        if left.is_some_and(|left| left.0 > used.0 / 2) {
            self.decider = Decider::remembering(otherwise);
        } else {
            self.ended.push(EndedEviction { id, cause, end: EvictionEnd::Gone });
        }
    }

    fn missing(&self, done: &Synchronized<'_>, summary: &Summary, now: Monotonic) -> Vec<MissingRule> {
        let mut missing: Vec<MissingRule> = self.view.missing_always().collect();
        let is_met_at_first = !self.has_begun && done.assessment.crossed.contains(&true);
        if is_met_at_first && !self.view.config().evictions.act_on_present_pressure {
            missing.push(MissingRule::Arming);
        }
        if let Some(met) = &done.acted_on {
            let known = known((met, summary), &done.ranking, self.decider.knows_fall(met.value, now));
            let has_pending = known.has_pending || self.has_evicted;
            missing.extend(self.view.missing_for(Known { has_pending, ..known }));
        }
        missing
    }

    /// Returns the rules that were not named before.
    fn name(&mut self, missing: Vec<MissingRule>) -> Vec<MissingRule> {
        let new: Vec<MissingRule> = missing.into_iter().filter(|rule| !self.named.contains(rule)).collect();
        self.named.extend(&new);
        new
    }
}

/// A question about one signal.
#[derive(Debug)]
pub struct Asked<'c> {
    view: AgentView<'c>,
    readings: Readings,
    pub rules: Rules<'c>,
    pub snapshot: Snapshot,
}

impl Asked<'_> {
    pub fn candidates<'a>(&self, input: &Input<'a>, signal: Signal, active: &[ActivePod<'a>]) -> Vec<PodCandidate<'a>> {
        self.view.candidates(signal, input.layout, active, &self.readings, self.snapshot.clock())
    }

    /// Returns the rules that could not be applied. Without a threshold on the signal no pod is evicted for it.
    pub fn missing(&self, summary: &Summary, decider: &Decider<PodCandidate<'_>>) -> Vec<MissingRule> {
        let has_fall = |value: SignalValue| decider.knows_fall(value, self.snapshot.clock());
        let of_threshold = decider
            .acted_on()
            .map(|met| self.view.missing_for(known((met, summary), decider.ranking(), has_fall(met.value))));
        let is_memory = self.snapshot.question.is_some_and(|signal| signal.resource() == Resource::Memory);
        let concerns = |rule: &MissingRule| is_memory || !rule.is_of_memory();
        self.view.missing_always().filter(concerns).chain(of_threshold.into_iter().flatten()).collect()
    }
}

fn turn<'t, 'a>(
    (view, agent): (&'t AgentView<'t>, AgentRules),
    readings: &'t Readings,
    (input, active): (&'t Input<'a>, &'t [ActivePod<'a>]),
    snapshot: &Snapshot,
) -> Turn<'t, 'a> {
    let now = snapshot.clock();
    let is_protected = |eviction: &Eviction<'a>| view.protection(eviction.pod).is_some();
    Turn {
        rules: view.rules(agent),
        snapshot: snapshot.clone(),
        after_collection: input.after_collection,
        candidates: Box::new(move |signal| view.candidates(signal, input.layout, active, readings, now)),
        above_limits: Box::new(move || {
            let above = local_storage::evictions(view.policy(), input.layout, active);
            above.into_iter().filter(|eviction| !is_protected(eviction)).collect()
        }),
    }
}

/// Returns what the ranking for a threshold rests on.
fn known<'k>(
    (met, summary): (&'k MetThreshold, &'k Summary),
    ranking: &[Ranked<PodCandidate<'_>>],
    has_fall: bool,
) -> Known<'k> {
    let candidates = || {
        let may_go = |candidate: &&PodCandidate<'_>| candidate.exempt.is_none() && !candidate.pod.is_critical();
        ranking.iter().map(|ranked| &ranked.candidate).filter(may_go)
    };
    Known {
        summary,
        met,
        has_growth: candidates().all(|candidate| candidate.outlook.is_growth_measured),
        has_fall,
        has_gain: candidates().all(|candidate| candidate.outlook.gain.is_some()),
        has_pending: candidates().any(|candidate| candidate.outlook.is_terminating),
    }
}

fn reading(active: &ActivePod<'_>, now: Monotonic) -> Option<(CgroupId, Bytes, Monotonic)> {
    let stats = active.stats?;
    Some((PodCandidate::cgroup_of(active.pod), view::gain(active.pod, stats)?, view::measured_at(stats, now)))
}

fn stats_of<'a>(eviction: &Eviction<'_>, active: &[ActivePod<'a>]) -> Option<&'a PodStats> {
    active.iter().find(|active| std::ptr::eq(active.pod, eviction.pod))?.stats
}

fn memory_of(stats: &PodStats) -> Bytes {
    Bytes(stats.memory.and_then(|memory| memory.working_set_bytes).unwrap_or(0))
}
