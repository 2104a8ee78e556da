//! Drives the decider: one turn from a sample to its actions.

use std::time::Duration;

use crate::actions::{ActionError, Ended, Outcome};
use crate::eviction::decider::{
    AgentRules, Answer, Attempt, Choice, EndedEviction, Measure, Memory, Next, Pace, Place, RecordedStep, RecordedTurn,
    Rules, Snapshot,
};
use crate::eviction::evicted::Cause;
use crate::eviction::rank::Ranked;
use crate::eviction::{MetThreshold, Observation};
use crate::report::eviction_report::Action;
use crate::report::reclaim_report::ReclaimAttempt;
use crate::report::record::Record;
use crate::sensors::workload_scan::LIST_AGE;
use crate::units::Monotonic;
use crate::workloads::WorkloadUsage;

use super::local_storage::Above;
use super::{Agent, TurnStart};

/// Maximum age of the list of workloads at a decision. Usage is always read anew.
pub(super) const LIST_AGE_AT_DECISION: Duration = Duration::from_millis(500);
/// Time before the expected crossing of a threshold at which the list of workloads is prepared.
const PREPARE_WITHIN: Duration = Duration::from_millis(20);

pub(super) type RankedWorkload = Ranked<WorkloadUsage>;

/// One eviction or dry run, with the time of each step.
pub(super) struct StartedEviction {
    pub(super) met: MetThreshold,
    pub(super) ranked: RankedWorkload,
    pub(super) candidates: Vec<RankedWorkload>,
    pub(super) action: Action,
    pub(super) processes: usize,
    pub(super) ordered: Monotonic,
    /// When the confirming second sample was taken.
    pub(super) decided: Monotonic,
    pub(super) acted: Monotonic,
    /// The reclaim attempt that failed before the eviction.
    pub(super) reclaimed: Option<ReclaimAttempt>,
    pub(super) turn: RecordedTurn,
}

/// Measurements and actions of the present turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    memory: Memory,
    /// Serialized only after the kill, to keep the decision fast.
    steps: Vec<(Snapshot, Answer<WorkloadUsage>, Next)>,
    ordered: Monotonic,
    decided: Monotonic,
    /// Pods above a limit of their own, in the order of the decider's places.
    pub(super) above: Vec<Above>,
    evicted: Option<(Choice, Started)>,
    limits: Vec<(Choice, Started)>,
}

/// An eviction that was started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started {
    pub(super) processes: usize,
    pub(super) action: Action,
    pub(super) at: Monotonic,
}

impl Agent {
    /// Steps the decider until the turn is over, and carries out each requested step.
    pub(super) fn take_turn(&mut self, start: &TurnStart) -> Turn {
        let mut snapshot = self.snapshot(start);
        let pace = Pace::Agent(self.agent_rules());
        let mut turn = Turn { memory: self.decision.memory().clone(), ..Turn::default() };
        let mut answer = Answer::Begin;
        loop {
            let given = answer.clone();
            let rules = Rules { policy: &self.config.policy, pace };
            let next = self.decision.step(rules, &snapshot, answer);
            if !turn.steps.is_empty() || !matches!(next, Next::Wait { .. }) {
                turn.steps.push((snapshot.clone(), given, next));
            }
            answer = match next {
                Next::Wait { .. } => return turn,
                Next::Measure(Measure::Signals) => {
                    turn.ordered = Monotonic::now();
                    let Some((sampled, observation)) = self.observe() else { return turn };
                    turn.decided = Monotonic::now();
                    snapshot.layout = self.sensors.signals.filesystems.layout();
                    (snapshot.now, snapshot.observation) = (sampled.into(), observation);
                    Answer::Sampled
                }
                Next::Measure(what) => self.measure(what, &mut turn),
                Next::CollectGarbage { signal, .. } => Answer::CollectionStarted(self.collect_garbage(signal)),
                Next::Reclaim { place, bytes, deadline } => {
                    Answer::ReclaimStarted(self.begin_reclaim(place, bytes, deadline))
                }
                Next::EndReclaim { outcome, interrupt } => {
                    let freed = self.end_reclaim(outcome, interrupt, &snapshot.observation);
                    snapshot.reclaim = self.actions.reclaim.facts();
                    Answer::Reclaimed(freed)
                }
                Next::Evict(choice) => {
                    let attempt = self.attempt(&choice, &mut turn);
                    // Evictions of this turn count for the rest of the turn.
                    snapshot.under_way = self.actions.evictor.under_way().collect();
                    Answer::Attempt(attempt)
                }
            };
        }
    }

    fn agent_rules(&self) -> AgentRules {
        AgentRules {
            mode: self.config.mode,
            limits: self.config.evictions,
            methods: self.config.kubernetes.evictions,
            defers_soft: self.config.kubernetes.defer_soft_in_maintenance,
        }
    }

    fn attempt(&mut self, choice: &Choice, turn: &mut Turn) -> Attempt {
        match self.carry_out(choice, turn) {
            Ok(started) => {
                match choice.place {
                    Place::Ranked(_) => turn.evicted = Some((*choice, started)),
                    Place::Limit(_) => turn.limits.push((*choice, started)),
                }
                if !choice.is_dry_run && choice.cause.is_for_disk() {
                    self.sensors.signals.filesystems.ask_now();
                }
                Attempt::Started
            }
            Err(ActionError::Gone) => Attempt::Gone,
            Err(ActionError::Critical) => Attempt::Critical,
            Err(error) => {
                let is_put_off = matches!(error, ActionError::PutOff(_));
                if !is_put_off || matches!(choice.place, Place::Limit(_)) {
                    let (workload, reason) = (self.name_of(choice.place, turn), error.to_string());
                    let record =
                        Record::EvictionNotStarted { cause: choice.cause, workload: &workload, reason: &reason };
                    self.reporter.report(&record, Monotonic::now());
                }
                if is_put_off { Attempt::PutOff } else { Attempt::Failed }
            }
        }
    }

    fn name_of(&self, place: Place, turn: &Turn) -> String {
        match place {
            Place::Ranked(place) => {
                let ranked = self.decision.ranking().get(place);
                ranked.map(|ranked| ranked.candidate.workload.name.clone()).unwrap_or_default()
            }
            Place::Limit(place) => turn.above.get(place).map(|above| above.workload.clone()).unwrap_or_default(),
        }
    }

    /// Returns the turn's eviction for a threshold, with all facts that explain it. Called after the kill.
    pub(super) fn started_eviction(&mut self, turn: &mut Turn) -> Option<StartedEviction> {
        let (choice, started) = turn.evicted?;
        let met = self.decision.armed().get(choice.threshold?).map(|armed| armed.threshold.clone());
        let met = self.decision.acted_on().filter(|acted_on| Some(&acted_on.threshold) == met.as_ref()).cloned()?;
        let Place::Ranked(place) = choice.place else { return None };
        let candidates = self.decision.take_ranking();
        let ranked = candidates.get(place)?.clone();
        if choice.is_dry_run
            && !self.reporter.is_dry_run_due(met.threshold.signal, ranked.candidate.workload.id, turn.decided)
        {
            return None;
        }
        let steps = turn.steps.drain(..).map(|(snapshot, answer, next)| RecordedStep {
            snapshot,
            answer: answer.recorded(),
            next,
        });
        let steps = steps.collect();
        Some(StartedEviction {
            candidates,
            action: started.action,
            processes: started.processes,
            ordered: turn.ordered,
            decided: turn.decided,
            acted: started.at,
            reclaimed: self.actions.reclaim.take_in_vain(turn.decided),
            turn: RecordedTurn { memory: std::mem::take(&mut turn.memory), steps },
            met,
            ranked,
        })
    }

    /// Returns the rules with which a recorded turn is replayed.
    pub(super) fn recorded_rules(&self) -> impl serde::Serialize + '_ {
        Rules { policy: &self.config.policy, pace: Pace::Agent(self.agent_rules()) }
    }

    /// Reports the turn's evictions for limits of the pods' own.
    pub(super) fn report_limits(&mut self, turn: &mut Turn, now: Monotonic) {
        for (choice, started) in std::mem::take(&mut turn.limits) {
            let Place::Limit(place) = choice.place else { continue };
            if let Some(above) = turn.above.get(place).cloned() {
                self.report_limit_eviction(&above, started, choice.is_dry_run, now);
            }
        }
    }

    /// Polls the evictions under way. Ended evictions are reported after the decision.
    pub(super) fn poll_evictions(&mut self, now: Monotonic) -> Vec<Ended> {
        let ended = self.actions.evictor.poll(&self.config.evictions, now);
        if ended.iter().any(|ended| ended.outcome == Outcome::Gone) {
            self.sensors.note_evicted();
        }
        // Ended evictions are kept until the next turn: without a sample there is no turn, and a budget must count
        // them.
        let facts = ended.iter().map(|ended| EndedEviction { id: ended.id, cause: ended.cause, end: ended.end });
        self.actions.ended.extend(facts);
        for ended in &ended {
            match ended.outcome {
                Outcome::Gone => {
                    self.actions.local.note_gone(ended.id, now);
                    self.sensors.disk.hurry(&ended.name);
                }
                Outcome::Failed(_) | Outcome::Refused(_) => self.actions.pending.forget(&ended.name),
            }
            let is_refused = matches!((ended.cause, &ended.outcome), (Cause::Signal(_), Outcome::Refused(_)));
            if ended.cause.is_for_disk() && !is_refused {
                self.sensors.signals.filesystems.ask_now();
            }
        }
        ended
    }

    /// Refreshes the list of workloads near a threshold, so that the decision need not wait for it.
    pub(super) fn prepare(&mut self) {
        if self.is_near() {
            self.sensors.workloads.scan_if_older(LIST_AGE, Monotonic::now());
        }
    }

    /// Returns whether a threshold may be met soon. Slow work waits while this holds.
    pub(super) fn is_near(&self) -> bool {
        self.next_event(Monotonic::now()).0 <= PREPARE_WITHIN
    }

    /// Reports the decider's notes of the turn.
    pub(super) fn report_notes(&mut self, observation: &Observation, now: Monotonic) {
        let notes: Vec<_> = self.decision.notes().collect();
        for note in notes {
            self.report_note(note, observation, now);
        }
    }
}
