//! Reports one turn of the loop, after its actions.

use crate::actions::{Actions, Started};
use crate::config::{Mode, Threshold};
use crate::eviction::decider::{Choice, Decider, Note, Place, Recording, Rules, Unarmed};
use crate::eviction::{Assessment, MetThreshold, Observation};
use crate::sensors::local_storage_limits::Above;
use crate::units::Monotonic;
use crate::workloads::WorkloadUsage;

use super::eviction_report::{BenefitReport, StartedEviction};
use super::{LoopState, Reporter, waiting};

/// The observation, the decider's steps and the evictions of one turn.
#[derive(Debug)]
pub struct Turn {
    pub wakeup: &'static str,
    pub woken: Monotonic,
    /// When the observation was sampled.
    pub sampled: Monotonic,
    pub observation: Observation,
    pub recording: Recording<WorkloadUsage>,
    /// When the candidates were ranked.
    pub ordered: Monotonic,
    /// When the sample that confirmed the decision was taken.
    pub decided: Monotonic,
    /// Pods above a limit of their own, in the order of the decider's places.
    pub above: Vec<Above>,
    evicted: Option<(Choice, Started)>,
    limits: Vec<(usize, Started)>,
}

impl Turn {
    pub fn begin(
        (wakeup, woken): (&'static str, Monotonic),
        (sampled, observation): (Monotonic, Observation),
        decider: &Decider<WorkloadUsage>,
    ) -> Self {
        Self {
            wakeup,
            woken,
            sampled,
            observation,
            recording: Recording::begin(decider),
            ordered: Monotonic::default(),
            decided: Monotonic::default(),
            above: Vec::new(),
            evicted: None,
            limits: Vec::new(),
        }
    }

    pub fn note_started(&mut self, choice: Choice, started: Started) {
        match choice.place {
            Place::Ranked(_) => self.evicted = Some((choice, started)),
            Place::Limit(place) => self.limits.push((place, started)),
        }
    }
}

/// Returns the most urgent threshold for which the agent evicts: it is armed, and its evictions are not deferred.
pub(super) fn first_acted_on<'a>(
    assessment: &'a Assessment,
    unarmed: &[(usize, Threshold, Unarmed)],
    notes: &[Note],
) -> Option<&'a MetThreshold> {
    let is_unarmed = |met: &MetThreshold| unarmed.iter().any(|(place, ..)| *place == met.place);
    let is_deferred = |met: &MetThreshold| {
        let threshold = met.place;
        notes.contains(&Note::Deferred { threshold }) || notes.contains(&Note::LeftToKubelet { threshold })
    };
    assessment.to_act_on().into_iter().find(|met| !is_unarmed(met) && !is_deferred(met))
}

impl Reporter {
    /// Returns the turn's eviction for a threshold, with all facts that explain it. Called after the kill.
    pub fn started_eviction(
        &mut self,
        turn: &Turn,
        decider: &mut Decider<WorkloadUsage>,
        actions: &mut Actions,
    ) -> Option<StartedEviction> {
        let (choice, started) = turn.evicted?;
        let threshold = &decider.armed().get(choice.threshold?)?.threshold;
        let met: MetThreshold = decider.acted_on().filter(|met| met.threshold == *threshold)?.clone();
        let Place::Ranked(place) = choice.place else { return None };
        let ranking = decider.take_ranking();
        let victim = ranking.get(place)?.clone();
        let benefit = BenefitReport::of(decider, place, &ranking, &self.names);
        let key = (met.threshold.signal, victim.candidate.workload.id);
        if choice.is_dry_run && !self.dry_runs.is_due(key, turn.decided) {
            return None;
        }
        Some(StartedEviction {
            met,
            victim,
            ranking,
            benefit,
            reclaim: actions.reclaim.take_in_vain(turn.decided),
            started,
            wakeup: turn.wakeup,
            woken: turn.woken,
            sampled: turn.sampled,
            ordered: turn.ordered,
            decided: turn.decided,
            turn: turn.recording.recorded(),
        })
    }

    /// Reports the thresholds, the evictions, and the decider's notes. `pods_expected` is the number of evicted and ended pods whose disk usage is
    /// about to be freed.
    pub fn report_turn(
        &mut self,
        state: &mut LoopState<'_>,
        turn: &Turn,
        eviction: Option<&StartedEviction>,
        notes: Vec<Note>,
        pods_expected: usize,
        now: Monotonic,
    ) {
        self.names = state.sensors.names();
        let decision = state.decision;
        let assessment = decision.assessment();
        let metrics = &self.outlets.metrics.evictions;
        self.times.note_turn(&assessment.met, &turn.observation, turn.woken, metrics);
        self.report_thresholds(decision.armed(), assessment, &turn.observation, (turn.wakeup, turn.sampled), now);
        let first = || first_acted_on(assessment, decision.unarmed(), &notes);
        let scarce = eviction.map(|eviction| &eviction.met).or_else(first).map(|met| met.threshold.signal);
        let is_reclaiming = state.config.mode == Mode::Enforce && !assessment.met.is_empty();
        if let Some(signal) = scarce.filter(|_| is_reclaiming) {
            self.report_reclaiming(signal.resource(), eviction.is_some(), now);
        }
        let rules = Rules::of_agent(state.config);
        if let Some(eviction) = eviction {
            self.report_eviction(state, rules, eviction, now);
        }
        for (index, (place, started)) in turn.limits.iter().enumerate() {
            let Some(above) = turn.above.get(*place) else { continue };
            // Observe mode goes through every pod above a limit: one trace has them all.
            let recorded = (index == 0).then(|| turn.recording.recorded());
            self.report_limit_eviction(state, rules, above, *started, recorded, (turn.woken, now));
        }
        self.waits = None;
        for note in notes {
            if self.waits.is_none() {
                self.waits = waiting::because(&note, state, &self.names, now);
            }
            self.report_note(note, state, &turn.observation, pods_expected, now);
        }
        self.report_unarmed(decision.unarmed(), now);
        for (condition, holds) in state.node_conditions() {
            self.report_condition(condition.as_str(), holds, Some(condition), now);
        }
    }
}
