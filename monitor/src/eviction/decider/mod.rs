//! The decider: from the facts of one moment it derives what to do now.
//!
//! [`Decider::step`] is pure: it does no I/O, reads no clock and logs nothing. The time is a field of the snapshot. A turn is a sequence
//! of steps that ends with [`Next::Wait`]. The decider asks for each expensive measurement, gets the result with the next step, and in the
//! end names the victim. The agent, `simulate`, `rank`, the fuzz targets, the property tests and the benchmark drive it. No other code
//! picks a victim.

mod arming;
mod before;
mod between_steps;
mod choose;
mod kept;
mod kubelet_turn;
mod limits;
mod memory;
mod memory_victim;
mod next;
mod pending;
mod recorded;
mod refault_rule;
mod rules;
mod shortage;
mod snapshot;
mod start;
mod swap_rule;
mod timing;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Monotonic, Resource, Signal};

use super::benefit::Benefit;
use super::memory_benefit::MemoryBenefit;
use super::proactive_reclaim::ReclaimOutcome;
use super::rank::{Candidate, Order, Ranked};
use arming::Verdicts;

use super::{Armed, Assessment, Layout, MetThreshold, Observation, State as ThresholdState, assess, is_below};

pub use super::collection::RuntimeFacts;
pub use super::standing::{ControlPlane, Standing};
pub use arming::{ArmedBy, Unarmed, at_arrival, is_plausible};
pub use kept::Kept;
pub use memory::{DISK_COOL_DOWN, Memory, Renewal};
pub use next::{Choice, Measure, Next, Note, PassedOver, Place, Route, Stays, SwapLimit};
pub use pending::DyingMemory;
pub use recorded::{RecordedCandidate, RecordedLine, RecordedRules, RecordedStep, RecordedTurn, Recording, Replayed};
pub use rules::{AgentRules, OwnedRules, Pace, Rules};
pub use shortage::ProtectedLeak;
pub use snapshot::{
    Answer, Attempt, EndedEviction, EvictionEnd, EvictionStage, LimitExceeded, ReclaimFacts, Refaults, Snapshot,
    SwapOut, UnderWay,
};
pub use start::PodList;
pub use timing::blocks;

/// The answer that the decider expects in the next step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
enum Phase {
    /// The next step begins a turn.
    #[default]
    Idle,
    /// The bytes that a reclaim attempt freed. The fields are its outcome, and whether the kernel has answered.
    EndingReclaim(ReclaimOutcome, bool),
    /// The result of garbage collection, or whether a collection was started.
    Collecting,
    /// The state of the container runtime.
    AskingRuntime,
    /// Whether the disk usage of every candidate is measured anew.
    Renewing,
    /// The candidates, to reclaim memory from the one furthest above its request.
    ReclaimCandidates,
    /// The standing of that candidate.
    ReclaimStanding,
    /// The memory that reclaim could take from that candidate.
    ReclaimHolding,
    /// Whether the kernel was asked to reclaim.
    ReclaimStarting,
    /// The candidates, to rank them.
    Ranking,
    /// The exact usage of the candidate at this place.
    Measuring(usize),
    /// A second sample of the signals, which may confirm the first.
    Confirming,
    /// The standing of the candidate at this place.
    Standing(Place),
    /// The result of the attempt to evict the candidate at this place.
    Trying(Place),
    /// The pods above a limit of their own.
    Limits,
}

/// The state of the step machine: what it remembers between turns, and the present turn.
#[derive(Debug)]
pub struct Decider<C> {
    armed: Vec<Armed>,
    layout: Option<Layout>,
    memory: Memory,
    verdicts: Verdicts,
    turn: Turn<C>,
}

/// The present turn. Its buffers stay allocated from one turn to the next.
#[derive(Debug)]
struct Turn<C> {
    phase: Phase,
    layout: Layout,
    /// The state of the thresholds before the turn. The second sample of the turn is judged from this state.
    before: ThresholdState,
    observation: Observation,
    assessment: Assessment,
    /// The thresholds that may be acted on, most urgent first. `in_hand` is the place of the present one.
    queue: Vec<MetThreshold>,
    in_hand: usize,
    ranking: Vec<Ranked<C>>,
    /// The number of candidates that were measured one by one.
    measured: usize,
    /// Whether the ranking rests on exact figures alone.
    is_exact: bool,
    /// The judge of benefit for the candidates as they were ranked. A candidate whose eviction failed since then still counts.
    benefit: Option<Benefit>,
    /// The places of the ranking that were tried in vain.
    tried: Vec<usize>,
    /// The judge of the last victim for memory.
    memory_benefit: Option<MemoryBenefit>,
    /// The time that the eviction of the present candidate would buy.
    buys: Option<Duration>,
    exceeded: Vec<LimitExceeded>,
    /// Whether limits were checked in this turn.
    has_checked_limits: bool,
    /// The place of the candidate that memory is reclaimed from.
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
            tried: Vec::new(),
            memory_benefit: None,
            buys: None,
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
        let (armed, memory, verdicts) = (Vec::new(), Memory::default(), Verdicts::default());
        Self { armed, layout: None, memory, verdicts, turn: Turn::default() }
    }
}

impl<C: Candidate> Decider<C> {
    /// Takes one step. `answer` is the result of what the previous step asked for. [`Answer::Begin`] begins a turn. An answer that the
    /// previous step did not ask for ends the turn without an eviction.
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
            (Phase::Measuring(place), Answer::Exact(exact)) => self.measured(rules, snapshot, place, exact),
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
        turn.tried.clear();
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
        if !turn.assessment.met.iter().any(|met| met.threshold.signal.resource().is_on_disk()) {
            self.memory.expected_since.clear();
        }
        self.judge_arming(rules, snapshot);
        if rules.agent().is_some() {
            self.observe_shortages(rules, snapshot);
            self.memory.kubelet_turn.observe(snapshot.is_kubelets_turn, snapshot.clock());
        }
        if rules.agent().is_none() && rules.policy.local_storage_isolation && snapshot.has_limits {
            return self.ask(Phase::Limits, Next::Measure(Measure::Limits));
        }
        if let Some(next) = self.reclaim_under_way(rules, snapshot) {
            return next;
        }
        self.next_threshold(rules, snapshot)
    }

    /// Answers `rank`: takes the threshold on the signal that would be acted on. A met threshold comes before an unmet one, then a hard one
    /// before a soft one.
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

    /// Returns the signal for which candidates are ranked.
    fn signal(&self, snapshot: &Snapshot) -> Option<Signal> {
        snapshot.question.or_else(|| self.acted_on().map(|met| met.threshold.signal))
    }

    /// Proceeds to the next threshold that may be acted on. A resource that cannot be freed now must not delay the freeing of another.
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

    /// Ends the turn, after a check of the limits of local storage if it is due.
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

    /// Returns the judge of which candidates free enough. The largest candidate is taken from those that can be evicted.
    fn benefit(&self, rules: Rules<'_>, signal: Signal, can_be_evicted: impl Fn(&C) -> bool) -> Benefit {
        let usable = self.turn.ranking.iter().filter(|ranked| can_be_evicted(&ranked.candidate));
        let largest = usable.filter_map(|ranked| ranked.candidate.facts().usage).max();
        Benefit::of(rules.policy, signal, self.turn.observation.get(signal), self.acted_on(), largest)
    }
}

#[cfg(test)]
mod ordering_tests;
