//! The steps before an eviction: garbage collection, new measurements of disk usage, and proactive reclaim.

use std::time::Duration;

use crate::config::{Mode, Semantics};
use crate::eviction::collection::Advice;
use crate::eviction::garbage::{collectors, is_enough};
use crate::eviction::proactive_reclaim::{self as reclaim, Answer as ReclaimAnswer, Futile, Holding, ReclaimOutcome};
use crate::eviction::rank::{Candidate, Ranked};
use crate::eviction::{MetThreshold, Observation};
use crate::units::{Bytes, Monotonic, Resource, Signal};

use super::memory::{Episode, ReclaimAttempt};
use super::{
    AgentRules, Decider, Measure, Next, Note, Phase, Place, ReclaimFacts, Rules, RuntimeFacts, Snapshot, Standing,
};

/// Before an eviction for a disk every candidate is measured anew. The eviction waits for this at most this long.
const RENEWAL: Duration = Duration::from_secs(5);
/// The same for inodes. Workloads that create inodes are measured all the time, and inodes may run out sooner.
const RENEWAL_OF_INODES: Duration = Duration::from_secs(1);
/// A figure of inodes may be this old, which is as old as a kubelet's may be.
const TOLERATED_OF_INODES: Duration = Duration::from_secs(10);
/// How often the decider asks whether all candidates are measured.
const RENEWAL_POLL: Duration = Duration::from_millis(50);

impl<C: Candidate> Decider<C> {
    pub(super) fn garbage_first(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> Next {
        let signal = met.threshold.signal;
        let collectors = collectors(signal, snapshot.layout, rules.policy.quirks);
        if collectors.is_empty() {
            return self.measure_disks(rules, snapshot, signal);
        }
        if rules.agent().is_none() {
            return self.ask(Phase::Collecting, Next::CollectGarbage { signal, collectors });
        }
        self.ask(Phase::AskingRuntime, Next::Measure(Measure::Runtime))
    }

    pub(super) fn with_runtime(&mut self, rules: Rules<'_>, snapshot: &Snapshot, runtime: RuntimeFacts) -> Next {
        let Some(signal) = self.acted_on().map(|met| met.threshold.signal) else { return self.wait() };
        let is_dry_run = rules.agent().is_some_and(|agent| agent.mode == Mode::Observe);
        match self.memory.collection.advise(runtime, is_dry_run, snapshot.clock()) {
            Advice::Collect => {
                let collectors = collectors(signal, snapshot.layout, rules.policy.quirks);
                self.ask(Phase::Collecting, Next::CollectGarbage { signal, collectors })
            }
            Advice::Wait => self.skip_threshold(rules, snapshot),
            Advice::GoOn => self.measure_disks(rules, snapshot, signal),
        }
    }

    /// Goes on after the garbage collection of a kubelet, which is part of the synchronization.
    pub(super) fn collected(&mut self, rules: Rules<'_>, after: &Observation) -> Next {
        let Some(met) = self.acted_on().filter(|_| !is_enough(rules.policy, &self.armed, after)) else {
            return self.wait();
        };
        let signal = met.threshold.signal;
        self.candidates(signal, true)
    }

    pub(super) fn collection_started(&mut self, rules: Rules<'_>, snapshot: &Snapshot, started: bool) -> Next {
        if started {
            self.memory.collection.start(snapshot.clock());
        }
        // A dry run frees nothing, so it goes on to the eviction that it reports.
        let is_dry_run = rules.agent().is_some_and(|agent| agent.mode == Mode::Observe);
        match self.acted_on().map(|met| met.threshold.signal) {
            Some(signal) if !started || is_dry_run => self.measure_disks(rules, snapshot, signal),
            _ => self.skip_threshold(rules, snapshot),
        }
    }

    fn measure_disks(&mut self, rules: Rules<'_>, snapshot: &Snapshot, signal: Signal) -> Next {
        if rules.agent().is_none() {
            return self.candidates(signal, true);
        }
        let now = snapshot.clock();
        let (limit, tolerated) = match signal.resource() {
            Resource::Inodes => (RENEWAL_OF_INODES, TOLERATED_OF_INODES),
            Resource::EphemeralStorage | Resource::Memory | Resource::Pids => (RENEWAL, Duration::ZERO),
        };
        let renewal = &mut self.memory.renewal;
        let ordered = renewal.since.filter(|since| now.since(*since) < renewal.fresh());
        let renew = ordered.is_none();
        // An earlier order is forgotten once a victim is evicted. One that is still here was therefore in vain.
        if renew && renewal.since.replace(now).is_some() {
            renewal.in_vain = renewal.in_vain.saturating_add(1);
        }
        let since = ordered.unwrap_or(now);
        if now.since(since) >= limit {
            return self.candidates(signal, true);
        }
        self.ask(Phase::Renewing, Next::Measure(Measure::Disks { since, tolerated, renew }))
    }

    pub(super) fn renewed(&mut self, rules: Rules<'_>, snapshot: &Snapshot, all: bool) -> Next {
        match self.acted_on().map(|met| met.threshold.signal).filter(|_| all) {
            Some(signal) => self.candidates(signal, true),
            None => {
                self.retry_at(snapshot.clock().after(RENEWAL_POLL));
                self.skip_threshold(rules, snapshot)
            }
        }
    }

    /// Judges the reclaim attempt under way, if any. While the attempt may still succeed, no threshold is acted on.
    pub(super) fn reclaim_under_way(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Option<Next> {
        let attempt = self.memory.reclaim.attempt?;
        let available = snapshot.observation.get(Signal::MemoryAvailable);
        let available = available.map_or(Bytes::ZERO, |value| value.available_bytes());
        let answer = match snapshot.reclaim {
            ReclaimFacts::Busy(answer) => answer,
            ReclaimFacts::Off | ReclaimFacts::DryRun | ReclaimFacts::Idle => ReclaimAnswer::Done,
        };
        let is_met = self.turn.queue.iter().any(|met| met.threshold.signal.resource() == Resource::Memory);
        let is_late = snapshot.clock() >= attempt.deadline;
        let worth = reclaim::is_worth_waiting(attempt.available_before, available);
        let Some(outcome) = reclaim::outcome(answer, is_met, is_late, worth) else {
            return Some(self.end_turn(rules, snapshot));
        };
        let interrupt = answer == ReclaimAnswer::Pending;
        Some(self.ask(Phase::EndingReclaim(outcome, !interrupt), Next::EndReclaim { outcome, interrupt }))
    }

    pub(super) fn end_reclaim(
        &mut self,
        agent: AgentRules,
        now: Monotonic,
        (outcome, answered): (ReclaimOutcome, bool),
        freed: Bytes,
    ) {
        let memory = &mut self.memory.reclaim;
        let Some(attempt) = memory.attempt.take() else { return };
        let episode = memory.episode.take();
        let since = now.since(episode.map_or(attempt.started, |episode| episode.started));
        memory.not_before = Some(now.after(reclaim::rest(since, agent.limits.cool_down)));
        let answer = if answered { ReclaimAnswer::Done } else { ReclaimAnswer::Pending };
        let goes_on = reclaim::goes_on(outcome, answer, freed);
        memory.episode = episode.filter(|episode| goes_on && now < episode.deadline);
    }

    /// Tries, for a memory threshold, to reclaim memory from a candidate above its request before one is evicted.
    pub(super) fn reclaim_first(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> Next {
        let signal = met.threshold.signal;
        if rules.agent().is_none() {
            return self.candidates(signal, true);
        }
        let now = snapshot.clock();
        let memory = &mut self.memory.reclaim;
        let resting = memory.not_before.is_some_and(|until| now < until);
        memory.episode = memory.episode.filter(|episode| resting && now < episode.deadline);
        let is_possible = matches!(snapshot.reclaim, ReclaimFacts::DryRun | ReclaimFacts::Idle);
        if !is_possible || resting && memory.episode.is_none() {
            return self.candidates(signal, false);
        }
        self.ask(Phase::ReclaimCandidates, Next::Measure(Measure::Candidates { signal, exact: true }))
    }

    pub(super) fn reclaim_candidates(&mut self, rules: Rules<'_>, snapshot: &Snapshot, candidates: Vec<C>) -> Next {
        let hard = self.acted_on().is_some_and(MetThreshold::is_hard);
        let is_usable = |candidate: &C| {
            !candidate.outlook().only_as_leaker && self.is_candidate(snapshot, candidate.cgroup(), hard)
        };
        let usable = candidates.into_iter().filter(is_usable);
        let usable: Vec<Ranked<C>> = usable.map(|candidate| Ranked { candidate }).collect();
        self.turn.ranking = usable;
        self.reclaim_from_furthest(rules, snapshot)
    }

    fn reclaim_from_furthest(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        let Some(place) = reclaim::furthest_above_request(&self.turn.ranking) else {
            return self.reclaim_is_futile(rules, snapshot, Futile::NobodyAboveRequest);
        };
        self.turn.reclaim_place = place;
        self.ask(Phase::ReclaimStanding, Next::Measure(Measure::Standing { place: Place::Ranked(place) }))
    }

    pub(super) fn reclaim_standing(&mut self, rules: Rules<'_>, snapshot: &Snapshot, standing: Standing) -> Next {
        let place = self.turn.reclaim_place;
        if standing.is_critical {
            if place < self.turn.ranking.len() {
                self.turn.ranking.swap_remove(place);
            }
            return self.reclaim_from_furthest(rules, snapshot);
        }
        self.ask(Phase::ReclaimHolding, Next::Measure(Measure::Holding { place }))
    }

    pub(super) fn reclaim_holding(&mut self, rules: Rules<'_>, snapshot: &Snapshot, holding: Option<Holding>) -> Next {
        let (Some(agent), Some(met)) = (rules.agent(), self.acted_on().cloned()) else { return self.wait() };
        let missing = reclaim::missing(rules.policy, &met);
        let semantics: Semantics = rules.policy.semantics;
        let asked = holding.ok_or(Futile::TooLittle).and_then(|holding| reclaim::ask(semantics, missing, &holding));
        let bytes = match asked {
            Ok(bytes) => bytes,
            Err(why) => return self.reclaim_is_futile(rules, snapshot, why),
        };
        let place = self.turn.reclaim_place;
        if snapshot.reclaim == ReclaimFacts::DryRun {
            let id = self.turn.ranking.get(place).map(|ranked| ranked.candidate.cgroup());
            let note = |id| Note::ReclaimDryRun { threshold: met.place, id, bytes };
            self.turn.notes.extend(id.map(note));
            return self.candidates(met.threshold.signal, false);
        }
        let started = snapshot.clock();
        let whole = Episode { started, deadline: started.after(agent.limits.reclaim_deadline) };
        let deadline = self.memory.reclaim.episode.unwrap_or(whole).deadline;
        self.ask(Phase::ReclaimStarting, Next::Reclaim { place, bytes, deadline })
    }

    pub(super) fn reclaim_started(&mut self, rules: Rules<'_>, snapshot: &Snapshot, started: bool) -> Next {
        let (Some(agent), Some(met)) = (rules.agent(), self.acted_on().cloned()) else { return self.wait() };
        let now = snapshot.clock();
        let memory = &mut self.memory.reclaim;
        if !started {
            memory.not_before = Some(now.after(reclaim::rest(Duration::ZERO, agent.limits.cool_down)));
            return self.candidates(met.threshold.signal, false);
        }
        let whole = Episode { started: now, deadline: now.after(agent.limits.reclaim_deadline) };
        let deadline = memory.episode.get_or_insert(whole).deadline;
        let available_before = met.value.available_bytes();
        memory.attempt = Some(ReclaimAttempt { available_before, started: now, deadline });
        memory.futile = None;
        self.end_turn(rules, snapshot)
    }

    fn reclaim_is_futile(&mut self, rules: Rules<'_>, snapshot: &Snapshot, why: Futile) -> Next {
        let (Some(agent), Some(met)) = (rules.agent(), self.acted_on().cloned()) else { return self.wait() };
        let rest = snapshot.clock().after(reclaim::rest(Duration::ZERO, agent.limits.cool_down));
        let memory = &mut self.memory.reclaim;
        memory.not_before = memory.not_before.max(Some(rest));
        memory.episode = None;
        if memory.futile.replace(why) != Some(why) {
            self.turn.notes.push(Note::ReclaimFutile { threshold: met.place, why });
        }
        self.candidates(met.threshold.signal, false)
    }
}
