//! Drives the decider: one turn from a sample to its actions and their report.

use std::time::Duration;

use crate::actions::{ActionError, ActionFacts, EvictionOrder, Reason, Started};
use crate::config::{Mode, MonitorConfig, Semantics};
use crate::eviction::decider::{
    AgentRules, Answer, Attempt, Choice, Decider, DyingMemory, EvictionStage, Measure, Next, Pace, Place, PodList,
    Recording, Rules, Snapshot, UnderWay,
};
use crate::eviction::{MetThreshold, Observation};
use crate::report::eviction_report::BenefitReport;
use crate::report::eviction_reporting::StartedEviction;
use crate::sensors::control_plane::SoftEvictions;
use crate::sensors::local_storage_limits::Above;
use crate::sensors::workload_scan::LIST_AGE;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::WorkloadUsage;

use super::{Agent, Wakeup};

/// Time before the expected crossing of a threshold at which the list of workloads is prepared.
const PREPARE_WITHIN: Duration = Duration::from_millis(20);

/// The growth of workloads is measured while a threshold on memory is less than this away.
const LEAK_HORIZON: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
struct TurnStart {
    wakeup: Wakeup,
    woken: Monotonic,
    /// When the observation was sampled.
    sampled: Monotonic,
    observation: Observation,
}

/// Measurements and actions of the present turn.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) recording: Recording<WorkloadUsage>,
    ordered: Monotonic,
    decided: Monotonic,
    /// Pods above a limit of their own, in the order of the decider's places.
    above: Vec<Above>,
    evicted: Option<(Choice, Started)>,
    limits: Vec<(Choice, Started)>,
}

impl Turn {
    pub(super) fn begin(decision: &Decider<WorkloadUsage>) -> Self {
        Self {
            recording: Recording::begin(decision),
            ordered: Monotonic::default(),
            decided: Monotonic::default(),
            above: Vec::new(),
            evicted: None,
            limits: Vec::new(),
        }
    }
}

impl Agent {
    /// Takes a turn on a fresh sample, and reports what happened in it.
    pub(super) fn decide(&mut self, wakeup: Wakeup, woken: Monotonic) {
        let polled = Monotonic::now();
        let ended = self.actions.poll(&self.config.evictions, &mut self.sensors, polled);
        let Some((sampled, observation)) = self.observe() else {
            return self.reporter.report_ended(&ended, polled, None);
        };
        let start = TurnStart { wakeup, woken, sampled, observation };
        // The action precedes the report: writing a log record takes as long as a decision.
        let turn = self.take_turn(&start);
        let eviction = self.started_eviction(&start, &turn);
        self.pass_on_samples();
        self.reporter.report_ended(&ended, polled, Some(&start.observation));
        self.report_turn(&start, &turn, eviction.as_ref(), Monotonic::now());
    }

    /// Steps the decider until the turn is over, and carries out each requested step.
    fn take_turn(&mut self, start: &TurnStart) -> Turn {
        let mut snapshot = self.snapshot(start);
        let mut turn = Turn::begin(&self.decision);
        let mut answer = Answer::Begin;
        loop {
            let next = turn.recording.step(&mut self.decision, rules(&self.config), &snapshot, answer);
            answer = match next {
                Next::Wait { .. } => return turn,
                Next::Measure(Measure::Signals) => {
                    turn.ordered = Monotonic::now();
                    let Some((sampled, observation)) = self.observe() else { return turn };
                    snapshot.dying = self.dying_memory(&snapshot.under_way, sampled);
                    snapshot.on_cpu_lists = self.on_cpu_lists(sampled);
                    turn.decided = Monotonic::now();
                    snapshot.layout = self.sensors.signals.filesystems.layout();
                    (snapshot.now, snapshot.observation) = (sampled.into(), observation);
                    Answer::Sampled
                }
                Next::Measure(what) => self.measure(what, &mut turn),
                Next::CollectGarbage { signal, .. } => {
                    let Self { config, sensors, decision, actions, .. } = self;
                    Answer::CollectionStarted(actions.collect_garbage(signal, config, decision.armed(), sensors))
                }
                Next::Reclaim { place, bytes, deadline } => {
                    Answer::ReclaimStarted(self.begin_reclaim(place, bytes, deadline))
                }
                Next::EndReclaim { outcome, interrupt } => {
                    let freed = self.actions.end_reclaim(outcome, interrupt, &snapshot.observation);
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

    fn snapshot(&mut self, start: &TurnStart) -> Snapshot {
        let now = start.sampled;
        let ActionFacts { under_way, ended, collected, expected, reclaim } =
            self.actions.take_facts(&self.sensors, now);
        let killed = under_way.iter().filter(|it| it.stage == EvictionStage::Dying).map(|it| it.id);
        killed.for_each(|id| self.sensors.note_own_kill(id, None, now));
        self.sensors.note_oom_victims(now);
        let dying = self.dying_memory(&under_way, now);
        Snapshot {
            dying,
            on_cpu_lists: self.on_cpu_lists(now),
            protected_growth: self.sensors.protected_growth(),
            workloads: self.sensors.workloads.tree().tracked().len(),
            now: now.into(),
            layout: self.sensors.signals.filesystems.layout(),
            observation: start.observation.clone(),
            question: None,
            under_way,
            ended,
            collected,
            expected,
            refaults: self.sensors.refaults(),
            in_maintenance: self.in_maintenance(now),
            pod_list: match &self.sensors.platform.cluster {
                _ if self.sensors.pods.is_listed() => PodList::Seen,
                cluster if cluster.is_there() => PodList::Due { since: cluster.begun() },
                _ => PodList::None,
            },
            first_sample: self.first_sample(now),
            reclaim,
            memory_stalled: self.decision.awaits_stalls().then(|| self.sensors.pressure.memory_stalled()).flatten(),
            swap: self.sensors.swap_out(),
            oom_killed: self.sensors.oom_kills.last_of_node(),
            has_limits: self.sensors.pods.has_any(),
        }
    }

    /// Returns when the agent began to sample, if it has begun within the last second.
    fn first_sample(&mut self, now: Monotonic) -> Option<Monotonic> {
        let first = *self.last.first_sample.get_or_insert(now);
        (now.since(first) < Duration::from_secs(1)).then_some(first)
    }

    /// Returns what `MemAvailable` lacks after a kill. The kubelet's figure does not lack it.
    fn on_cpu_lists(&mut self, now: Monotonic) -> Option<Bytes> {
        let is_corrected = self.config.policy.semantics == Semantics::Corrected;
        is_corrected.then(|| self.sensors.on_cpu_lists(now)).flatten()
    }

    fn dying_memory(&mut self, under_way: &[UnderWay], now: Monotonic) -> Vec<DyingMemory> {
        let is_dying = |id| under_way.iter().any(|it| it.id == id && it.stage == EvictionStage::Dying);
        self.sensors.dying_memory(is_dying, now)
    }

    /// Returns whether soft evictions wait for the control plane.
    fn in_maintenance(&mut self, now: Monotonic) -> bool {
        let has_soft = self.config.policy.thresholds.iter().any(|threshold| !threshold.is_hard());
        if !has_soft || !self.config.kubernetes.defer_soft_in_maintenance || !self.sensors.platform.cluster.is_there() {
            return false;
        }
        match self.sensors.platform.cluster.soft_evictions(now) {
            SoftEvictions::Allowed => false,
            SoftEvictions::Outdated(age) => {
                if self.decision.assessment().met.iter().any(|met| !met.is_hard()) {
                    self.reporter.report_outdated_maintenance(Some(age), now);
                }
                false
            }
            SoftEvictions::Deferred => {
                self.reporter.report_outdated_maintenance(None, now);
                true
            }
        }
    }

    pub(super) fn measure(&mut self, what: Measure, turn: &mut Turn) -> Answer<WorkloadUsage> {
        match what {
            // The signals are sampled by the driver, which owns the snapshot.
            Measure::Signals => Answer::Sampled,
            Measure::Runtime => Answer::Runtime(self.sensors.runtime_facts()),
            Measure::Candidates { signal, exact } => {
                Answer::Candidates(self.sensors.candidates(signal, exact, &self.config))
            }
            Measure::Exact { place } => {
                let id = self.ranked_at(place).map(|usage| usage.workload.id);
                Answer::Exact(id.and_then(|id| self.sensors.measure_candidate(id)))
            }
            Measure::Standing { place } => {
                let id = self.cgroup_at(place, turn);
                let standing = id.map(|id| self.sensors.standing(id, &self.config.proc_root));
                Answer::Standing(standing.unwrap_or_default())
            }
            Measure::Holding { place } => {
                let Self { sensors, decision, .. } = self;
                let usage = decision.ranking().get(place).map(|ranked| &ranked.candidate);
                Answer::Holding(usage.and_then(|usage| sensors.holding(usage)))
            }
            Measure::Disks { since, tolerated, renew } => {
                Answer::DisksMeasured(self.sensors.is_disk_measured(since, tolerated, renew))
            }
            Measure::Limits => {
                let now = Monotonic::now();
                self.read_pods(now);
                turn.above = self.sensors.above_limits(&self.config.policy);
                Answer::Limits(self.sensors.exceeded(&turn.above, now))
            }
        }
    }

    fn ranked_at(&self, place: usize) -> Option<&WorkloadUsage> {
        self.decision.ranking().get(place).map(|ranked| &ranked.candidate)
    }

    fn cgroup_at(&self, place: Place, turn: &Turn) -> Option<CgroupId> {
        match place {
            Place::Ranked(place) => self.ranked_at(place).map(|usage| usage.workload.id),
            Place::Limit(place) => turn.above.get(place).map(|above| above.id),
        }
    }

    fn begin_reclaim(&mut self, place: usize, bytes: Bytes, deadline: Monotonic) -> bool {
        let Self { sensors, decision, actions, .. } = self;
        let Some(ranked) = decision.ranking().get(place) else { return false };
        let available = decision.acted_on().map_or(Bytes::ZERO, |met| met.value.available_bytes());
        actions.begin_reclaim(&ranked.candidate, (bytes, deadline), available, sensors)
    }

    /// Starts the chosen eviction.
    fn attempt(&mut self, choice: &Choice, turn: &mut Turn) -> Attempt {
        let Some(id) = self.cgroup_at(choice.place, turn) else { return Attempt::Gone };
        let Self { config, sensors, decision, actions, .. } = self;
        let reason = match choice.place {
            Place::Ranked(place) => decision
                .acted_on()
                .zip(decision.ranking().get(place))
                .map(|(met, ranked)| Reason::Threshold(met, ranked)),
            Place::Limit(place) => turn.above.get(place).map(Reason::Limit),
        };
        match actions.evict(EvictionOrder { choice, id, reason }, sensors, config) {
            Ok(started) => {
                if choice.grace.is_zero() && !choice.is_dry_run {
                    let ranked = match choice.place {
                        Place::Ranked(place) => decision.ranking().get(place),
                        Place::Limit(_) => None,
                    };
                    sensors.note_own_kill(id, ranked.map(|ranked| &ranked.candidate), started.at);
                }
                match choice.place {
                    Place::Ranked(_) => turn.evicted = Some((*choice, started)),
                    Place::Limit(_) => turn.limits.push((*choice, started)),
                }
                Attempt::Started
            }
            Err(ActionError::Gone) => Attempt::Gone,
            Err(ActionError::Critical) => Attempt::Critical,
            Err(ActionError::PutOff(_)) => Attempt::PutOff,
            Err(ActionError::Refused { .. } | ActionError::StillAlive { .. }) => Attempt::Failed,
        }
    }

    /// Returns the turn's eviction for a threshold, with all facts that explain it. Called after the kill.
    fn started_eviction(&mut self, start: &TurnStart, turn: &Turn) -> Option<StartedEviction> {
        let (choice, started) = turn.evicted?;
        let threshold = &self.decision.armed().get(choice.threshold?)?.threshold;
        let met: MetThreshold = self.decision.acted_on().filter(|met| met.threshold == *threshold)?.clone();
        let Place::Ranked(place) = choice.place else { return None };
        let candidates = self.decision.take_ranking();
        let ranked = candidates.get(place)?.clone();
        let benefit = BenefitReport::of(&self.decision, place, &candidates);
        let victim = ranked.candidate.workload.id;
        if choice.is_dry_run && !self.reporter.is_dry_run_due(met.threshold.signal, victim, turn.decided) {
            return None;
        }
        Some(StartedEviction {
            turn: turn.recording.recorded(),
            candidates,
            benefit,
            started,
            wakeup: start.wakeup.as_str(),
            woken: start.woken,
            sampled: start.sampled,
            ordered: turn.ordered,
            decided: turn.decided,
            reclaimed: self.actions.reclaim.take_in_vain(turn.decided),
            met,
            ranked,
        })
    }

    fn report_turn(&mut self, start: &TurnStart, turn: &Turn, eviction: Option<&StartedEviction>, now: Monotonic) {
        for note in self.actions.take_notes() {
            self.reporter.report_action_note(&note, now);
        }
        let observation = &start.observation;
        let woken_by = (start.wakeup.as_str(), start.sampled);
        let (armed, assessment) = (self.decision.armed(), self.decision.assessment());
        self.reporter.report_thresholds(armed, assessment, observation, woken_by, now);
        let of_eviction = eviction.map(|eviction| eviction.met.threshold.signal);
        let is_armed = |met: &MetThreshold| self.decision.unarmed().iter().all(|(place, ..)| *place != met.place);
        let is_deferred = |met: &MetThreshold| self.decision.defers(met.place);
        let acted_on = |met: &&MetThreshold| is_armed(met) && !is_deferred(met);
        let first = || assessment.to_act_on().into_iter().find(acted_on).map(|met| met.threshold.signal);
        let is_reclaiming = self.config.mode == Mode::Enforce && !assessment.met.is_empty();
        if let Some(signal) = of_eviction.or_else(first).filter(|_| is_reclaiming) {
            self.reporter.report_reclaiming(signal.resource(), eviction.is_some(), now);
        }
        if let Some(eviction) = eviction {
            let (reporter, mut state) = self.reporting();
            let rules = rules(state.config);
            reporter.report_eviction(&mut state, rules, eviction, now);
        }
        for (index, (choice, started)) in turn.limits.iter().enumerate() {
            let Place::Limit(place) = choice.place else { continue };
            if let Some(above) = turn.above.get(place) {
                let (reporter, state) = self.reporting();
                let rules = rules(state.config);
                // Observe mode goes through every pod above a limit: one trace has them all.
                let recorded = (index == 0).then(|| turn.recording.recorded());
                reporter.report_limit_eviction(&state, rules, above, *started, recorded, (start.woken, now));
            }
        }
        let pods_expected = self.actions.pods_expected();
        let notes: Vec<_> = self.decision.notes().collect();
        let (reporter, state) = self.reporting();
        for note in notes {
            reporter.report_note(note, &state, observation, pods_expected, now);
        }
        reporter.report_unarmed(state.decision.unarmed(), now);
        for (condition, holds) in state.node_conditions() {
            reporter.report_condition(condition.as_str(), holds, Some(condition), now);
        }
        self.publish_status(now);
    }

    /// Watches who grows, and what is swapped out, while a threshold on memory may be met within half a minute.
    pub(super) fn watch_growth(&mut self) {
        let now = Monotonic::now();
        let is_near = self.decision.is_memory_near(&self.config.policy, LEAK_HORIZON, now);
        // Reading the workloads takes longer than a decision, which must not wait for it.
        let is_urgent = self.is_near();
        if is_near && !is_urgent {
            self.rehearse_if_due(now);
        }
        self.sensors.watch_growth((is_near, is_urgent), &self.config.proc_root, now);
        self.sensors.watch_swap(is_near, now);
    }

    /// Refreshes the list of workloads near a threshold, so that the decision need not wait for it.
    pub(super) fn prepare(&mut self) {
        if self.is_near() {
            self.sensors.workloads.list_if_older(LIST_AGE, Monotonic::now());
        }
    }

    /// Returns whether a threshold may be met soon. Slow work waits while this holds.
    pub(super) fn is_near(&self) -> bool {
        self.next_event(Monotonic::now()).0 <= PREPARE_WITHIN
    }
}

fn rules(config: &MonitorConfig) -> Rules<'_> {
    let agent = AgentRules {
        mode: config.mode,
        limits: config.evictions,
        methods: config.kubernetes.evictions,
        defers_soft: config.kubernetes.defer_soft_in_maintenance,
    };
    Rules { policy: &config.policy, pace: Pace::Agent(agent) }
}
