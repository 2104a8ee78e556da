//! Drives the decider: one turn from a sample to the actions that it calls for.

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

/// A decision uses a list up to this old. Usage is always read anew.
pub(super) const LIST_AGE_AT_DECISION: Duration = Duration::from_millis(500);
/// How far from a threshold, in time, the list of workloads is prepared.
const PREPARE_WITHIN: Duration = Duration::from_millis(20);

pub(super) type RankedWorkload = Ranked<WorkloadUsage>;

/// One eviction that was started, or in observe mode recorded, and when each step was taken.
pub(super) struct StartedEviction {
    pub(super) met: MetThreshold,
    pub(super) ranked: RankedWorkload,
    pub(super) candidates: Vec<RankedWorkload>,
    pub(super) action: Action,
    pub(super) processes: usize,
    pub(super) ordered: Monotonic,
    /// When the second sample, which confirmed the first, was taken.
    pub(super) decided: Monotonic,
    pub(super) acted: Monotonic,
    /// The reclaim attempt that failed before.
    pub(super) reclaimed: Option<ReclaimAttempt>,
    pub(super) turn: RecordedTurn,
}

/// What the present turn has measured and done.
#[derive(Debug, Default)]
pub(super) struct Turn {
    memory: Memory,
    /// Converted to what can be written down only after the kill.
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
    /// Steps the decider until the turn is over, and carries out what each step asks for.
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
                    // What the turn has started counts for the rest of it.
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

    /// The eviction that the turn started for a threshold, with everything needed to explain it. Called after the kill.
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

    /// The rules as a recorded turn is replayed by.
    pub(super) fn recorded_rules(&self) -> impl serde::Serialize + '_ {
        Rules { policy: &self.config.policy, pace: Pace::Agent(self.agent_rules()) }
    }

    /// The evictions that the turn started for limits of the pods' own.
    pub(super) fn report_limits(&mut self, turn: &mut Turn, now: Monotonic) {
        for (choice, started) in std::mem::take(&mut turn.limits) {
            let Place::Limit(place) = choice.place else { continue };
            if let Some(above) = turn.above.get(place).cloned() {
                self.report_limit_eviction(&above, started, choice.is_dry_run, now);
            }
        }
    }

    /// Polls the evictions under way; those that ended are reported after the decision.
    pub(super) fn poll_evictions(&mut self, now: Monotonic) -> Vec<Ended> {
        let ended = self.actions.evictor.poll(&self.config.evictions, now);
        if ended.iter().any(|ended| ended.outcome == Outcome::Gone) {
            self.sensors.note_evicted();
        }
        // Kept until a turn is taken: without a sample there is none, and a budget must not forget.
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

    /// Near a threshold the list of workloads is kept fresh, so that the decision need not wait for it.
    pub(super) fn prepare(&mut self) {
        if self.is_near() {
            self.sensors.workloads.scan_if_older(LIST_AGE, Monotonic::now());
        }
    }

    /// Whether a threshold may be met before long: slow work waits.
    pub(super) fn is_near(&self) -> bool {
        self.next_event(Monotonic::now()).0 <= PREPARE_WITHIN
    }

    /// What the decider noted in the turn.
    pub(super) fn report_notes(&mut self, observation: &Observation, now: Monotonic) {
        let notes: Vec<_> = self.decision.notes().collect();
        for note in notes {
            self.report_note(note, observation, now);
        }
    }
}
