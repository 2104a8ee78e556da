//! The one decision: from the facts of a moment to what is to be done now.
//!
//! [`Decider::step`] is pure: no I/O, no clock, no logging; time is a field of the snapshot. A turn is a sequence of steps that ends with
//! [`Next::Wait`]: the decider asks for what costs something, is stepped again with the answer, and in the end names the victim. The
//! agent, `simulate`, `rank`, the fuzz targets, the property tests and the bench drive it; no other code picks a victim.

mod before;
mod between_steps;
mod choose;
mod limits;
mod memory;
mod next;
mod recorded;
mod rules;
mod snapshot;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Amount, Monotonic, Resource, Signal};

use super::benefit::Benefit;
use super::budget::Refusal;
use super::proactive_reclaim::ReclaimOutcome;
use super::rank::{Candidate, Order, Ranked};
use super::{Armed, Assessment, Layout, MetThreshold, Observation, State as ThresholdState, assess, is_below};

pub use super::collection::RuntimeFacts;
pub use super::standing::{ControlPlane, Standing};
pub use memory::{DISK_COOL_DOWN, Memory, Renewal};
pub use next::{Choice, Measure, Next, Note, PassedOver, Place, Route};
pub use recorded::{RecordedCandidate, RecordedLine, RecordedRules, RecordedStep, RecordedTurn, Recording, Replayed};
pub use rules::{AgentRules, OwnedRules, Pace, Rules};
pub use snapshot::{
    Answer, Attempt, EndedEviction, EvictionEnd, EvictionStage, LimitExceeded, ReclaimFacts, Snapshot, UnderWay,
};

/// What the decider waits for between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
enum Phase {
    /// The next step begins a turn.
    #[default]
    Idle,
    /// The freed bytes of a reclaim attempt that has come to this; whether the kernel has answered.
    EndingReclaim(ReclaimOutcome, bool),
    /// Garbage collection, within the turn or begun.
    Collecting,
    /// The state of the container runtime.
    AskingRuntime,
    /// Whether disk usage is measured anew.
    Renewing,
    /// Candidates, to ask the one furthest above its request for memory.
    ReclaimCandidates,
    /// The standing, then the holding of that one.
    ReclaimStanding,
    ReclaimHolding,
    ReclaimStarting,
    /// Candidates, to rank them.
    Ranking,
    /// The exact figure of the first.
    Measuring,
    /// A second sample, which confirms the first.
    Confirming,
    /// The standing of the candidate at this place.
    Standing(Place),
    /// The outcome of the attempt at this place.
    Trying(Place),
    /// Pods above a limit of their own.
    Limits,
}

/// The step machine's state: what it remembers, and how far the present turn is.
#[derive(Debug)]
pub struct Decider<C> {
    armed: Vec<Armed>,
    layout: Option<Layout>,
    memory: Memory,
    turn: Turn<C>,
}

/// The present turn. Buffers stay allocated from one turn to the next.
#[derive(Debug)]
struct Turn<C> {
    phase: Phase,
    layout: Layout,
    /// The memory of thresholds when the turn began: a second sample in the turn is judged from there.
    before: ThresholdState,
    observation: Observation,
    assessment: Assessment,
    /// The thresholds that may be acted on, the most urgent first, and the one in hand.
    queue: Vec<MetThreshold>,
    in_hand: usize,
    ranking: Vec<Ranked<C>>,
    /// How many candidates were measured one by one.
    measured: usize,
    /// The ranking rests on exact figures alone.
    is_exact: bool,
    /// By the candidates as they were ranked: one that fails meanwhile still counts.
    benefit: Option<Benefit>,
    exceeded: Vec<LimitExceeded>,
    /// Limits were checked in this turn.
    has_checked_limits: bool,
    /// The candidate that reclaim is tried on.
    reclaim_place: usize,
    retry: Option<Monotonic>,
    notes: Vec<Note>,
}

impl<C> Default for Turn<C> {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            layout: Layout::default(),
            before: ThresholdState::default(),
            observation: Observation::default(),
            assessment: Assessment::default(),
            queue: Vec::new(),
            in_hand: 0,
            ranking: Vec::new(),
            measured: 0,
            is_exact: false,
            benefit: None,
            exceeded: Vec::new(),
            has_checked_limits: false,
            reclaim_place: 0,
            retry: None,
            notes: Vec::new(),
        }
    }
}

impl<C> Default for Decider<C> {
    fn default() -> Self {
        Self { armed: Vec::new(), layout: None, memory: Memory::default(), turn: Turn::default() }
    }
}

impl<C: Candidate> Decider<C> {
    /// Takes one step. `answer` is what the step before asked for; [`Answer::Begin`] begins a turn. An answer to another question than was
    /// asked ends the turn: nothing is evicted on it.
    pub fn step(&mut self, rules: Rules<'_>, snapshot: &Snapshot, answer: Answer<C>) -> Next {
        let phase = std::mem::take(&mut self.turn.phase);
        match (phase, answer) {
            (_, Answer::Begin) => self.begin(rules, snapshot),
            (Phase::EndingReclaim(outcome, answered), Answer::Reclaimed(freed)) => {
                if let Some(agent) = rules.agent() {
                    self.end_reclaim(agent, snapshot.clock(), (outcome, answered), freed);
                }
                self.next_threshold(rules, snapshot)
            }
            (Phase::Collecting, Answer::Collected(after)) => self.collected(rules, &after),
            (Phase::Collecting, Answer::CollectionStarted(started)) => {
                self.collection_started(rules, snapshot, started)
            }
            (Phase::AskingRuntime, Answer::Runtime(facts)) => self.with_runtime(rules, snapshot, facts),
            (Phase::Renewing, Answer::DisksMeasured(all)) => self.renewed(rules, snapshot, all),
            (Phase::ReclaimCandidates, Answer::Candidates(candidates)) => {
                self.reclaim_candidates(rules, snapshot, candidates)
            }
            (Phase::ReclaimStanding, Answer::Standing(standing)) => self.reclaim_standing(rules, snapshot, standing),
            (Phase::ReclaimHolding, Answer::Holding(holding)) => self.reclaim_holding(rules, snapshot, holding),
            (Phase::ReclaimStarting, Answer::ReclaimStarted(started)) => self.reclaim_started(rules, snapshot, started),
            (Phase::Ranking, Answer::Candidates(candidates)) => self.rank(rules, snapshot, candidates),
            (Phase::Measuring, Answer::Exact(exact)) => self.measured(rules, snapshot, exact),
            (Phase::Confirming, Answer::Sampled) => self.confirm(rules, snapshot),
            (Phase::Standing(place), Answer::Standing(standing)) => self.judge(rules, snapshot, place, standing),
            (Phase::Trying(place), Answer::Attempt(attempt)) => self.tried(rules, snapshot, place, attempt),
            (Phase::Limits, Answer::Limits(exceeded)) => self.check_limits(rules, snapshot, exceeded),
            _ => self.wait(),
        }
    }

    fn ask(&mut self, phase: Phase, next: Next) -> Next {
        self.turn.phase = phase;
        next
    }

    fn wait(&mut self) -> Next {
        Next::Wait { retry: self.turn.retry, next_change: self.turn.assessment.next_change }
    }

    fn begin(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        if self.layout != Some(snapshot.layout) {
            self.arm(rules, snapshot.layout);
        }
        self.memory.take_in(snapshot);
        if let Some(end) = snapshot.collected {
            self.memory.collection.end(end, snapshot.clock());
        }
        let turn = &mut self.turn;
        turn.queue.clear();
        turn.ranking.clear();
        turn.exceeded.clear();
        (turn.in_hand, turn.retry, turn.has_checked_limits, turn.layout) = (0, None, false, snapshot.layout);
        turn.observation.clone_from(&snapshot.observation);
        if let Some(signal) = snapshot.question {
            return self.answer_question(rules, snapshot, signal);
        }
        let observation = &snapshot.observation;
        let (after, assessment) = assess(rules.policy, &self.armed, &self.memory.thresholds, observation, snapshot.now);
        turn.before = std::mem::replace(&mut self.memory.thresholds, after);
        turn.queue.extend(assessment.to_act_on().into_iter().cloned());
        turn.assessment = assessment;
        if rules.agent().is_none() && rules.policy.local_storage_isolation && snapshot.has_limits {
            return self.ask(Phase::Limits, Next::Measure(Measure::Limits));
        }
        if let Some(next) = self.reclaim_under_way(rules, snapshot) {
            return next;
        }
        self.next_threshold(rules, snapshot)
    }

    /// `rank`: the threshold that would be acted on is one that is met before one that is not, then a hard one.
    fn answer_question(&mut self, rules: Rules<'_>, snapshot: &Snapshot, signal: Signal) -> Next {
        let observation = &snapshot.observation;
        if let Some(value) = observation.get(signal) {
            let of_signal = |(_, armed): &(usize, &Armed)| armed.threshold.signal == signal && armed.counts(false);
            let urgency = |(_, armed): &(usize, &Armed)| {
                (!is_below(rules.policy, &armed.threshold, observation, false), !armed.threshold.is_hard())
            };
            let first = self.armed.iter().enumerate().filter(of_signal).min_by_key(urgency);
            self.turn.queue.extend(first.map(|(place, armed)| MetThreshold {
                place,
                threshold: armed.threshold.clone(),
                quantity: armed.threshold.value.resolve(value.capacity, rules.policy.quirks),
                value,
                is_fresh: true,
            }));
        }
        self.ask(Phase::Ranking, Next::Measure(Measure::Candidates { signal, exact: true }))
    }

    /// The signal that is ranked for.
    fn signal(&self, snapshot: &Snapshot) -> Option<Signal> {
        snapshot.question.or_else(|| self.acted_on().map(|met| met.threshold.signal))
    }

    /// Takes the next threshold in hand that may be acted on. One resource that cannot be freed, or not yet, must not keep another waiting.
    fn next_threshold(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        while let Some(met) = self.acted_on().cloned() {
            if !self.may_act_on(rules, snapshot, &met) {
                self.turn.in_hand += 1;
                continue;
            }
            return match met.threshold.signal.resource() {
                Resource::EphemeralStorage | Resource::Inodes => self.garbage_first(rules, snapshot, &met),
                Resource::Memory => self.reclaim_first(rules, snapshot, &met),
                Resource::Pids => self.candidates(met.threshold.signal, false),
            };
        }
        self.end_turn(rules, snapshot)
    }

    fn skip_threshold(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        self.turn.in_hand += 1;
        self.next_threshold(rules, snapshot)
    }

    /// Whether anything may be done about a threshold now.
    fn may_act_on(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        let Some(agent) = rules.agent() else { return true };
        let now = snapshot.clock();
        let (signal, hard) = (met.threshold.signal, met.is_hard());
        let is_on_disk = signal.resource().is_on_disk();
        if let Err(refusal) = self.may_start(agent, snapshot, is_on_disk, hard) {
            let (Refusal::CoolDown(left) | Refusal::Spent(left)) = refusal;
            self.turn.retry = Some(now.after(left));
            if let Refusal::Spent(left) = refusal {
                self.turn.notes.push(Note::BudgetSpent { left });
            }
            return false;
        }
        if !hard && agent.defers_soft && snapshot.in_maintenance {
            self.turn.notes.push(Note::Deferred { threshold: met.place });
            return false;
        }
        if let Some(until) = self.memory.cool_downs.until((signal, hard), now) {
            // A filesystem is sampled again by itself for as long as a threshold on it is crossed.
            if !is_on_disk {
                self.retry_at(until);
            }
            return false;
        }
        !(is_on_disk && self.expected_suffices(rules, snapshot, met))
    }

    fn may_start(&self, agent: AgentRules, snapshot: &Snapshot, is_on_disk: bool, hard: bool) -> Result<(), Refusal> {
        if blocks(snapshot.under_way.iter().copied(), is_on_disk, hard) {
            // How soon the evictions under way are polled again.
            let is_dying = snapshot.under_way.iter().any(|under_way| under_way.stage == EvictionStage::Dying);
            return Err(Refusal::CoolDown(Duration::from_millis(if is_dying { 5 } else { 100 })));
        }
        self.memory.budget.check(&agent.limits, snapshot.clock())
    }

    fn retry_at(&mut self, at: Monotonic) {
        self.turn.retry = Some(self.turn.retry.map_or(at, |retry| retry.min(at)));
    }

    /// Whether what evicted pods still occupy suffices once it is freed: not when half of what was left is gone meanwhile.
    fn expected_suffices(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        let signal = met.threshold.signal;
        if snapshot.expected.is_empty() {
            self.memory.expected_since.clear();
            return false;
        }
        let amount = snapshot.expected.iter().find(|(of, _)| *of == signal).map_or(Amount::ZERO, |(_, amount)| *amount);
        let suffices = amount > Amount::ZERO
            && Amount::from_units(met.value.available) + amount >= met.wanted(rules.policy.quirks)
            && self.is_worth_waiting(signal, met.value.available);
        if suffices {
            self.turn.notes.push(Note::Expected { threshold: met.place, amount });
        }
        suffices
    }

    fn is_worth_waiting(&mut self, signal: Signal, available: i64) -> bool {
        let began = &mut self.memory.expected_since;
        if let Some((_, at_first)) = began.iter().find(|(of, _)| *of == signal) {
            return available >= at_first / 2;
        }
        began.push((signal, available));
        true
    }

    /// What the agent does when no threshold is left to act on: limits of local storage, when they are due.
    fn end_turn(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        if self.limits_are_due(rules, snapshot) {
            return self.ask(Phase::Limits, Next::Measure(Measure::Limits));
        }
        self.wait()
    }

    fn candidates(&mut self, signal: Signal, exact: bool) -> Next {
        self.turn.is_exact = exact;
        self.ask(Phase::Ranking, Next::Measure(Measure::Candidates { signal, exact }))
    }

    fn order<'p>(rules: Rules<'p>, signal: Signal) -> Order<'p> {
        Order::of(rules.policy, signal.resource())
    }

    /// Which candidates free enough, given those that can be evicted at all.
    fn benefit(&self, rules: Rules<'_>, signal: Signal, can_be_evicted: impl Fn(&C) -> bool) -> Benefit {
        let usable = self.turn.ranking.iter().filter(|ranked| can_be_evicted(&ranked.candidate));
        let largest = usable.filter_map(|ranked| ranked.facts().usage).max();
        Benefit::of(rules.policy, signal, self.turn.observation.get(signal), self.acted_on(), largest)
    }
}

/// Whether the evictions under way delay another one. A hard eviction never waits for the grace period of another, only for processes
/// that were killed already and whose memory is being freed; and for a disk, for another whose disk is.
pub fn blocks(under_way: impl IntoIterator<Item = UnderWay>, is_on_disk: bool, hard: bool) -> bool {
    under_way.into_iter().any(|under_way| match under_way.stage {
        EvictionStage::Dying => true,
        EvictionStage::Removing => !hard || is_on_disk,
        EvictionStage::Leaving => !hard || is_on_disk && under_way.is_urgent,
    })
}

#[cfg(test)]
mod ordering_tests;
