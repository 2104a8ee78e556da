//! From a threshold that is met to a workload that goes.

use std::time::Duration;

use crate::actions::{ActionError, Ended, FreezeRecord, Outcome, Target};
use crate::config::Mode;
use crate::eviction::budget::Refusal;
use crate::eviction::evicted::Cause;
use crate::eviction::rank::{Order, Ranked};
use crate::eviction::{MetThreshold, State, assess};
use crate::report::eviction_report::Action;
use crate::report::reclaim_report::ReclaimAttempt;
use crate::report::record::Record;
use crate::units::{CgroupId, Monotonic, Resource, Signal};
use crate::workloads::WorkloadUsage;

use super::evictions::Why;
use super::last::Scan;
use super::local_storage::PodUsages as _;
use super::others::{is_of_disk, pause};
use super::stop::action;
use super::{Agent, Look};

/// Near a threshold the list of workloads is renewed this often.
pub(super) const LIST_AGE: Duration = Duration::from_millis(250);
/// A decision takes a list that was renewed so, and makes a new one only when it is older. Usage is always read anew.
const LIST_AGE_AT_DECISION: Duration = Duration::from_millis(500);
/// On a large tree a scan takes long: then the list may be this many times as old as a scan takes.
const SCAN_SHARE: u32 = 10;
/// How far from a threshold, in time, the list of workloads is made ready.
const PREPARE_WITHIN: Duration = Duration::from_millis(20);
/// While a threshold stays met observe mode works out this often whom it would evict: events may call for a look at any time.
pub(super) const OBSERVE_PAUSE: Duration = Duration::from_millis(100);

/// A workload in its place.
pub(super) type RankedWorkload = Ranked<WorkloadUsage>;

/// What was done, or in observe mode would have been, and when each step was taken.
pub(super) struct Deed {
    pub(super) met: MetThreshold,
    pub(super) ranked: RankedWorkload,
    /// The whole ranking.
    pub(super) candidates: Vec<RankedWorkload>,
    pub(super) action: Action,
    pub(super) processes: usize,
    /// The list of candidates was in order.
    pub(super) ordered: Monotonic,
    /// Numbers taken after that still called for it.
    pub(super) decided: Monotonic,
    /// The signals were sent.
    pub(super) acted: Monotonic,
    /// Who was asked to give memory back before, in vain.
    pub(super) reclaimed: Option<ReclaimAttempt>,
}

impl Agent {
    /// Acts on the most urgent threshold that is met.
    pub(super) fn act(&mut self, look: &Look, before: &State) -> Option<Deed> {
        self.decision.retry = None;
        let to_act_on = look.assessment.to_act_on();
        let is_memory = |met: &&&MetThreshold| met.threshold.signal.resource() == Resource::Memory;
        if self.waits_for_reclaim(to_act_on.iter().find(is_memory).copied(), look) {
            return None;
        }
        let now = Monotonic::now();
        // One resource that nobody can give back, or not yet, must not keep another from being looked after.
        let met = to_act_on.into_iter().find(|met| self.may_act_on(met, now) && !self.has_something_first(met, now))?;
        self.scan_if_older(LIST_AGE_AT_DECISION);
        let signal = met.threshold.signal;
        if signal.resource() == Resource::Memory && self.asks_first(met) {
            return None;
        }
        let ranking = self.rank_for(signal);
        let ordered = Monotonic::now();
        // Ranking takes a moment, in which the pressure may be gone: decide on numbers taken after it.
        let layout = self.sensors.signals.layout();
        let (sampled, fresh) = self.observe()?;
        if self.sensors.signals.layout() != layout {
            // Other thresholds are armed now: the next look goes by them.
            return None;
        }
        // As if for the first time: minimum reclaim holds a threshold after an eviction, not after the look before this one.
        let (_, assessment) = assess(&self.config.policy, &self.decision.armed, before, &fresh, sampled.into());
        let met = assessment.met.into_iter().find(|fresh| fresh.threshold == met.threshold)?;
        let decided = Monotonic::now();
        let (ranked, action, processes) = match self.config.mode {
            Mode::Observe => (self.would_evict(&met, &ranking, decided)?, Action::DryRun, 0),
            Mode::Enforce => self.evict_one(&met, &ranking, decided)?,
        };
        if self.config.mode == Mode::Enforce {
            self.rest_disks(signal.resource(), decided);
        }
        let acted = Monotonic::now();
        let reclaimed = self.actions.gentle.take_in_vain(now);
        let candidates = ranking;
        Some(Deed { met, ranked, candidates, action, processes, ordered, decided, acted, reclaimed })
    }

    /// Whether something may be done about a threshold now.
    fn may_act_on(&mut self, met: &MetThreshold, now: Monotonic) -> bool {
        if let Err(refusal) =
            self.actions.evictor.may_start(met.threshold.signal, met.is_hard(), &self.config.evictions, now)
        {
            self.wait(refusal, now);
            return false;
        }
        if self.defers(met, now) || self.was_just_answered(met, now) {
            return false;
        }
        !(is_of_disk(met.threshold.signal.resource()) && self.is_enough_pending(met, now))
    }

    /// For a disk: whether garbage is being collected, which may be enough, or everybody measured once more.
    fn has_something_first(&mut self, met: &MetThreshold, now: Monotonic) -> bool {
        let resource = met.threshold.signal.resource();
        is_of_disk(resource) && (self.collects_first(met, now) || self.measures_first(resource, now))
    }

    /// Whether it was just found that nobody can be evicted, or said who would be: to rank everybody at each look costs what the node is
    /// short of.
    fn was_just_answered(&mut self, met: &MetThreshold, now: Monotonic) -> bool {
        let resource = met.threshold.signal.resource();
        let until = self.decision.answered.until((met.threshold.signal, met.is_hard()), now);
        // What is on disks is looked at again by itself for as long as a threshold is crossed.
        if !is_of_disk(resource) {
            self.retry_at(until);
        }
        until.is_some()
    }

    pub(super) fn retry_at(&mut self, at: Option<Monotonic>) {
        self.decision.retry = self.decision.retry.into_iter().chain(at).min();
    }

    /// Orders the candidates for a signal.
    fn rank_for(&mut self, signal: Signal) -> Vec<RankedWorkload> {
        match signal.resource() {
            Resource::Memory => self.rank_first(),
            Resource::EphemeralStorage | Resource::Inodes | Resource::Pids => self.rank_others(signal),
        }
    }

    /// Orders the candidates so that the first is right, for the price of few reads.
    fn rank_first(&mut self) -> Vec<RankedWorkload> {
        let at_most = candidates(self.sensors.tree.usage_upper_bounds());
        let order = Order::of(&self.config.policy, Resource::Memory);
        let tree = &mut self.sensors.tree;
        let measure = |usage: &WorkloadUsage| tree.measure(usage.workload.id);
        rank_first(order, at_most, measure).unwrap_or_else(|| self.rank_all())
    }

    /// Orders the candidates by the exact working set of each.
    fn rank_all(&mut self) -> Vec<RankedWorkload> {
        let usages = candidates(self.sensors.tree.usages());
        Order::of(&self.config.policy, Resource::Memory).rank(usages)
    }

    /// Evicts the first candidate, or the first after it that can be.
    fn evict_one(
        &mut self,
        met: &MetThreshold,
        ranking: &[RankedWorkload],
        now: Monotonic,
    ) -> Option<(RankedWorkload, Action, usize)> {
        let is_memory = met.threshold.signal.resource() == Resource::Memory;
        let sure = if is_memory { ranking.get(..1).unwrap_or_default() } else { ranking };
        if let Some(evicted) = self.evict_first_possible(met, sure, now) {
            return Some(evicted);
        }
        let (evicted, candidates) = if is_memory {
            let ranking = self.rank_all();
            (self.evict_first_possible(met, &ranking, now), ranking.len())
        } else {
            (None, ranking.len())
        };
        // Nothing was waited for when this began.
        let is_put_off = self.decision.answered.until((met.threshold.signal, met.is_hard()), now).is_some();
        if evicted.is_none() && !is_put_off {
            self.report_exhausted(met, candidates);
        }
        evicted
    }

    /// Tries the candidates in their order until one can be evicted.
    fn evict_first_possible(
        &mut self,
        met: &MetThreshold,
        ranking: &[RankedWorkload],
        now: Monotonic,
    ) -> Option<(RankedWorkload, Action, usize)> {
        let hard = met.is_hard();
        let grace = if hard { Duration::ZERO } else { self.config.policy.soft_grace(None) };
        let worth = self.worth(met, ranking, now);
        for ranked in ranking {
            let workload = &ranked.candidate.workload;
            if !worth.admits(ranked.facts().usage) || !self.actions.evictor.is_candidate(workload.id, hard, now) {
                continue;
            }
            match self.evict(met, ranked, grace) {
                Ok(processes) => {
                    let is_asking = self.actions.evictor.is_asking(workload.id);
                    let action =
                        if is_asking { Action::Ask } else { action(workload, met.threshold.signal.into(), grace) };
                    return Some((ranked.clone(), action, processes));
                }
                Err(ActionError::Gone | ActionError::Critical) => {}
                Err(ActionError::PutOff(reason)) => self.put_off(met, &workload.name, &reason),
                Err(error) => {
                    let (cause, reason) = (met.threshold.signal.into(), error.to_string());
                    let record = Record::EvictionNotStarted { cause, workload: &workload.name, reason: &reason };
                    self.reporter.report(&record, now);
                }
            }
        }
        None
    }

    fn report_exhausted(&mut self, met: &MetThreshold, candidates: usize) {
        let now = Monotonic::now();
        let resource = met.threshold.signal.resource();
        let pause = pause(resource, self.config.mode);
        self.decision.answered.set((met.threshold.signal, met.is_hard()), now, pause);
        self.retry_at(Some(now.after(pause)));
        self.reporter.report(&Record::CandidatesExhausted { met, candidates }, now);
    }

    fn evict(&mut self, met: &MetThreshold, ranked: &RankedWorkload, grace: Duration) -> Result<usize, ActionError> {
        let tracked = self.sensors.tree.find(ranked.candidate.workload.id).ok_or(ActionError::Gone)?;
        if self.is_critical(tracked) {
            return Err(ActionError::Critical);
        }
        let record = FreezeRecord::beside(&self.config.lock_file);
        let target = Target::new(tracked, self.sensors.tree.hierarchy(), &self.config.proc_root)?.recorded_in(record);
        let pod = ranked.candidate.workload.kind.pod_uid().cloned();
        self.start_eviction(target, pod, Why::Threshold(met, ranked), grace)
    }

    pub(super) fn is_node_critical(&self, id: CgroupId) -> bool {
        self.sensors.tree.find(id).is_some_and(|tracked| self.is_critical(tracked))
    }

    /// The dry-run twin of an eviction: whom it would be, each once a minute.
    fn would_evict(
        &mut self,
        met: &MetThreshold,
        ranking: &[RankedWorkload],
        now: Monotonic,
    ) -> Option<RankedWorkload> {
        let resource = met.threshold.signal.resource();
        let pause = pause(resource, self.config.mode);
        self.decision.answered.set((met.threshold.signal, met.is_hard()), now, pause);
        let worth = self.worth(met, ranking, now);
        let may_go = |ranked: &&RankedWorkload| {
            worth.admits(ranked.facts().usage) && !self.is_node_critical(ranked.candidate.workload.id)
        };
        let Some(ranked) = ranking.iter().find(may_go) else {
            self.report_exhausted(met, ranking.len());
            return None;
        };
        let victim = ranked.candidate.workload.id;
        self.reporter.is_dry_run_due(met.threshold.signal, victim, now).then(|| ranked.clone())
    }

    /// Looks at the evictions under way; those that ended are to be told of when what is next has been done.
    pub(super) fn poll_evictions(&mut self, now: Monotonic) -> Vec<Ended> {
        let ended = self.actions.evictor.poll(&self.config.evictions, now);
        if ended.iter().any(|ended| ended.outcome == Outcome::Gone) {
            // The list of workloads is out of date.
            self.sensors.scan = Scan::default();
            self.sensors.figures.forget_refaults();
        }
        for ended in &ended {
            match ended.outcome {
                Outcome::Gone => {
                    self.sensors.local.note_gone(ended.id, now);
                    self.sensors.measured.iter().for_each(|measured| measured.hurry(&ended.name));
                }
                Outcome::Failed(_) | Outcome::Refused(_) => self.actions.pending.forget(&ended.name),
            }
            match ended.cause {
                // Nothing was done: the next candidate is tried at once.
                Cause::Signal(signal) if matches!(ended.outcome, Outcome::Refused(_)) => {
                    self.decision.answered.forget((signal, false));
                }
                Cause::Signal(signal) => self.rest_disks(signal.resource(), now),
                // A limit of its own has nothing to do with how full the disk is.
                Cause::EmptyDirLimit | Cause::PodLimit | Cause::ContainerLimit => self.sensors.signals.look_at_disks(),
            }
        }
        ended
    }

    /// Near a threshold the list of workloads is kept fresh, so that the decision need not wait for it.
    pub(super) fn prepare(&mut self) {
        if self.is_near() {
            self.scan_if_old();
        }
    }

    /// Whether a threshold may be met before long: what takes its time had better wait.
    pub(super) fn is_near(&self) -> bool {
        self.next_event().0 <= PREPARE_WITHIN
    }

    pub(super) fn scan_if_old(&mut self) {
        self.scan_if_older(LIST_AGE);
    }

    pub(super) fn scan_if_older(&mut self, age: Duration) {
        let Scan { at, took } = self.sensors.scan;
        let allowed = age.max(took.saturating_mul(SCAN_SHARE));
        if at.is_none_or(|at| Monotonic::now().since(at) > allowed) {
            self.scan();
        }
    }

    fn wait(&mut self, refusal: Refusal, now: Monotonic) {
        let (Refusal::CoolDown(left) | Refusal::Spent(left)) = refusal;
        self.decision.retry = Some(now.after(left));
        if let Refusal::Spent(left) = refusal {
            self.reporter.report(&Record::BudgetSpent { left }, now);
        }
    }
}

fn rank_first(
    order: Order<'_>,
    at_most: impl Iterator<Item = WorkloadUsage>,
    mut measure: impl FnMut(&WorkloadUsage) -> Option<WorkloadUsage>,
) -> Option<Vec<RankedWorkload>> {
    let mut ranked = order.rank(at_most);
    for _ in 0..8 {
        match ranked.first_mut() {
            Some(first) if !first.candidate.exact => match measure(&first.candidate) {
                Some(exact) => first.candidate = exact,
                None => drop(ranked.remove(0)),
            },
            _ => return Some(ranked),
        }
        order.settle_first(&mut ranked);
    }
    None
}

/// Those that may be evicted at all.
pub(super) fn candidates(usages: Vec<WorkloadUsage>) -> impl Iterator<Item = WorkloadUsage> {
    usages.into_iter().filter(|usage| usage.workload.protection.is_none())
}
