//! Chooses the victim: ranks the candidates, confirms the threshold with a second sample, and takes candidates in their order until one
//! can be evicted.

use std::time::Duration;

use crate::config::Mode;
use crate::config::kubernetes_options::{EvictionMethod, EvictionMethods};
use crate::eviction::budget::Class;
use crate::eviction::evicted::{Cause, IMMEDIATE_GRACE, IMMEDIATE_GRACE_SECONDS};
use crate::eviction::fall::FallNow;
use crate::eviction::memory_benefit::{Culprits, MemoryBenefit, Worth};
use crate::eviction::mutants::rule;
use crate::eviction::rank::Candidate;
use crate::eviction::{MetThreshold, assess};
use crate::units::{Amount, CgroupId, Monotonic, Resource, Signal};

use super::memory::{PUT_OFF, cool_down};
use super::{
    Attempt, Choice, ControlPlane, Decider, EvictionStage, Measure, Next, Note, PassedOver, Phase, Place, Route, Rules,
    Snapshot, Standing, Stays,
};

/// After this many candidates have been measured one by one, measuring all at once is quicker.
const MEASURED_ONE_BY_ONE: usize = 8;

impl<C: Candidate> Decider<C> {
    pub(super) fn rank(&mut self, rules: Rules<'_>, snapshot: &Snapshot, candidates: Vec<C>) -> Next {
        let Some(signal) = self.signal(snapshot) else { return self.wait() };
        self.turn.ranking = Self::order(rules, signal).rank(candidates);
        self.turn.benefit = None;
        if !Self::weighs_memory(rules, signal) {
            (self.turn.memory_benefit, self.turn.buys) = (None, None);
        }
        self.turn.tried.clear();
        self.turn.measured = 0;
        if let Some(next) = self.charge_refaults(rules, snapshot) {
            return next;
        }
        self.measure_pick(rules, snapshot)
    }

    /// Measures the picked candidate exactly as long as its place rests on an upper bound. The other candidates may stand too far in front,
    /// but not too far back, and may seem to give back too much, but not too little: with exact figures none of them becomes the pick. Where
    /// nobody is picked, an upper bound may be all that keeps the others from going.
    fn measure_pick(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        let pick = self.pick(rules, snapshot).filter(|place| !self.is_exact(*place));
        match (pick, self.signal(snapshot)) {
            (Some(_), Some(signal)) if self.turn.measured >= rule!(OneByOne: usize::MAX, MEASURED_ONE_BY_ONE) => {
                self.candidates(signal, true)
            }
            (Some(place), _) => self.ask(Phase::Measuring(place), Next::Measure(Measure::Exact { place })),
            (None, Some(signal)) if !self.turn.is_exact && self.is_held_back() => self.candidates(signal, true),
            (None, _) => self.ranked(rules, snapshot),
        }
    }

    fn is_held_back(&self) -> bool {
        self.turn.memory_benefit.as_ref().is_some_and(MemoryBenefit::is_held_back)
    }

    fn is_exact(&self, place: usize) -> bool {
        self.turn.ranking.get(place).is_none_or(|ranked| ranked.candidate.is_exact())
    }

    /// Takes in the exact usage of the candidate at `place`, or removes a candidate that no longer exists.
    pub(super) fn measured(&mut self, rules: Rules<'_>, snapshot: &Snapshot, place: usize, exact: Option<C>) -> Next {
        let Some(signal) = self.signal(snapshot) else { return self.wait() };
        match (exact, self.turn.ranking.get_mut(place)) {
            (Some(exact), Some(ranked)) => ranked.candidate = exact,
            (None, Some(_)) => drop(self.turn.ranking.remove(place)),
            (_, None) => {}
        }
        self.turn.measured += 1;
        if let Some(from_place) = self.turn.ranking.get_mut(place..) {
            Self::order(rules, signal).settle_first(from_place);
        }
        self.turn.benefit = None;
        self.measure_pick(rules, snapshot)
    }

    fn ranked(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        if rules.agent().is_some() && snapshot.question.is_none() {
            // Measuring and ranking take time, and the signal may have recovered meanwhile.
            return self.ask(Phase::Confirming, Next::Measure(Measure::Signals));
        }
        self.take_next(rules, snapshot)
    }

    /// Judges the second sample from the state before the first. Otherwise the first sample would already let minimum reclaim hold the
    /// threshold.
    pub(super) fn confirm(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        let (Some(agent), Some(met)) = (rules.agent(), self.acted_on().cloned()) else { return self.wait() };
        if self.turn.layout != snapshot.layout {
            return self.end_turn(rules, snapshot);
        }
        let observation = &snapshot.observation;
        let (_, assessment) = assess(rules.policy, &self.armed, &self.turn.before, observation, snapshot.now);
        let fresh = assessment.met.into_iter().find(|fresh| fresh.threshold == met.threshold);
        let (Some(fresh), Some(in_hand)) = (fresh, self.turn.queue.get_mut(self.turn.in_hand)) else {
            return self.end_turn(rules, snapshot);
        };
        *in_hand = fresh.clone();
        self.turn.observation.clone_from(observation);
        self.turn.benefit = None;
        if let Some(next) = self.charge_refaults(rules, snapshot) {
            return next;
        }
        if agent.mode == Mode::Observe {
            let signal = met.threshold.signal;
            let duration = cool_down(signal.resource(), agent.mode);
            self.memory.cool_downs.set((signal, met.is_hard()), snapshot.clock(), duration);
        }
        self.memory.observe_memory(observation, snapshot.clock());
        // Meanwhile more memory of killed workloads may have come back.
        self.memory.pending.observe(&snapshot.dying, snapshot.clock());
        let is_awaited = match met.threshold.signal.resource().is_on_disk() {
            true => {
                self.memory.kubelet_turn.observe(snapshot.is_kubelets_turn, snapshot.clock());
                self.leaves_to_kubelet(agent, &fresh, snapshot.clock())
                    || self.expected_suffices(rules, snapshot, &fresh)
            }
            false => self.awaits_memory(rules, snapshot),
        };
        if is_awaited {
            return self.skip_threshold(rules, snapshot);
        }
        self.settle_shortage(snapshot.clock());
        self.take_next(rules, snapshot)
    }

    /// Takes the first candidate that was not tried yet, can be evicted and frees enough.
    pub(super) fn take_next(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        let Some(signal) = self.signal(snapshot) else { return self.wait() };
        let is_enforcing = rules.agent().is_some_and(|agent| agent.mode == Mode::Enforce);
        // In a ranking by upper bounds only an exact pick is certain, and only as long as no other one was tried.
        let is_unsure = is_enforcing && signal.resource() == Resource::Memory && !self.turn.is_exact;
        while let Some(place) = self.pick(rules, snapshot) {
            if is_unsure && (!self.turn.tried.is_empty() || !self.is_exact(place)) {
                return self.candidates(signal, true);
            }
            let standing = self.turn.ranking.get(place).and_then(|ranked| ranked.candidate.standing());
            let Some(standing) = standing else {
                let place = Place::Ranked(place);
                return self.ask(Phase::Standing(place), Next::Measure(Measure::Standing { place }));
            };
            if let Some(next) = self.evict(rules, snapshot, Place::Ranked(place), standing) {
                return next;
            }
            self.turn.tried.push(place);
        }
        self.exhausted(rules, snapshot)
    }

    /// Returns the place of the first candidate that may be evicted, was not tried yet and frees enough.
    fn pick(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Option<usize> {
        let signal = self.signal(snapshot)?;
        if !rules.weighs_benefit() {
            return (0..self.turn.ranking.len()).find(|place| !self.turn.tried.contains(place));
        }
        let hard = self.acted_on().is_none_or(MetThreshold::is_hard);
        let is_observing = rules.agent().is_some_and(|agent| agent.mode == Mode::Observe);
        if Self::weighs_memory(rules, signal) {
            let buffer = self.turn.memory_benefit.take().map(MemoryBenefit::into_buffer).unwrap_or_default();
            let benefit = self.memory_benefit(rules, snapshot, buffer, |place, candidate| {
                !self.turn.tried.contains(&place)
                    && self.refusal(rules, snapshot, candidate, (signal, hard), is_observing).is_none()
            });
            #[cfg(feature = "mutants")]
            let first = || (!self.turn.ranking.is_empty()).then_some(0);
            let pick = rule!(ObserveByRank: if is_observing { first() } else { benefit.pick() }, benefit.pick());
            self.turn.buys = pick.and_then(|place| benefit.buys_at(place));
            self.turn.memory_benefit = Some(benefit);
            return pick;
        }
        let benefit = self.turn.benefit.unwrap_or_else(|| {
            // A fork bomb that could not be killed is still the largest: smaller workloads do not help instead.
            let is_excluded_counted = signal.resource() == Resource::Pids;
            self.benefit(rules, signal, |candidate| {
                self.refusal(rules, snapshot, candidate, (signal, hard), is_excluded_counted).is_none()
            })
        });
        self.turn.benefit = Some(benefit);
        let mut ranking = self.turn.ranking.iter().map(|ranked| &ranked.candidate).enumerate();
        let pick = ranking.find(|(place, candidate)| {
            !self.turn.tried.contains(place)
                && self.refusal(rules, snapshot, candidate, (signal, hard), is_observing).is_none()
                && benefit.admits(candidate.facts().usage)
        });
        pick.map(|(place, _)| place)
    }

    /// Returns why a candidate may not be evicted at all, as far as that is known without its standing. In observe mode a candidate that lives
    /// may be named again and again.
    fn refusal(
        &self,
        rules: Rules<'_>,
        snapshot: &Snapshot,
        candidate: &C,
        (signal, hard): (Signal, bool),
        is_observing: bool,
    ) -> Option<PassedOver> {
        let outlook = candidate.outlook();
        if candidate.standing().is_some_and(|standing| standing.is_critical) {
            Some(PassedOver::Exempt)
        } else if outlook.is_daemon && !(hard && signal.resource() == Resource::Memory) {
            Some(PassedOver::Daemon)
        } else if outlook.only_as_leaker && !Self::weighs_memory(rules, signal) && !self.is_fork_bomb(signal, candidate)
        {
            Some(PassedOver::NotALeaker)
        } else if is_observing && Self::is_killed(snapshot, candidate.cgroup())
            || !is_observing && !self.is_candidate(snapshot, candidate.cgroup(), hard)
        {
            Some(PassedOver::Tried)
        } else {
            None
        }
    }

    /// Returns whether the candidate has at least half of the processes of all candidates.
    fn is_fork_bomb(&self, signal: Signal, candidate: &C) -> bool {
        if signal.resource() != Resource::Pids {
            return false;
        }
        let all: Amount = self.turn.ranking.iter().filter_map(|ranked| ranked.candidate.facts().usage).sum();
        candidate.facts().usage.is_some_and(|usage| usage + usage >= all)
    }

    /// Returns for each candidate of the ranking why it would be passed over, if it would.
    pub fn passed_over(&self, rules: Rules<'_>, snapshot: &Snapshot) -> Vec<Option<PassedOver>> {
        let is_exempt = |candidate: &C| candidate.standing().is_some_and(|standing| standing.is_critical);
        let Some(signal) = self.signal(snapshot) else { return Vec::new() };
        if Self::weighs_memory(rules, signal) {
            let benefit = self.memory_benefit(rules, snapshot, Vec::new(), |_, candidate| !is_exempt(candidate));
            let culprits_only = benefit.culprits() == Culprits::Only;
            let picked_above = benefit.pick().and_then(|place| benefit.is_above_request(place)) == Some(true);
            let reason = |(place, candidate): (usize, &C)| match benefit.worth_at(place) {
                None => Some(PassedOver::Exempt),
                Some(Worth::Leaks) => None,
                Some(_) if picked_above && benefit.is_above_request(place) == Some(false) => {
                    Some(PassedOver::WithinRequest)
                }
                Some(Worth::Helps(_)) if culprits_only => Some(PassedOver::NotACulprit),
                Some(Worth::Helps(_)) => None,
                Some(Worth::TooLittle(time)) => Some(PassedOver::WouldBuy(time)),
                Some(Worth::NotALeaker) => Some(PassedOver::NotALeaker),
                Some(Worth::Dwarf(_)) if candidate.facts().usage.is_none() => Some(PassedOver::NotMeasured),
                Some(Worth::Dwarf(_)) => Some(PassedOver::TooLittle),
            };
            return self.turn.ranking.iter().map(|ranked| &ranked.candidate).enumerate().map(reason).collect();
        }
        let benefit = self.benefit(rules, signal, |candidate| !is_exempt(candidate));
        let reason = |candidate: &C| match candidate.facts().usage {
            _ if is_exempt(candidate) => Some(PassedOver::Exempt),
            usage if !rules.weighs_benefit() || benefit.admits(usage) => None,
            Some(_) => Some(PassedOver::TooLittle),
            None => Some(PassedOver::NotMeasured),
        };
        self.turn.ranking.iter().map(|ranked| reason(&ranked.candidate)).collect()
    }

    /// Returns whether the workload may be evicted now. It may not after it was killed, and not for a while after an attempt on it failed or
    /// was refused. For a soft threshold it also may not while its eviction is under way; a hard threshold cuts the grace period short.
    pub(super) fn is_candidate(&self, snapshot: &Snapshot, id: CgroupId, hard: bool) -> bool {
        let mut of_it = snapshot.under_way.iter().filter(|under_way| under_way.id == id);
        let is_leaving = of_it.any(|under_way| !hard || under_way.stage == EvictionStage::Dying);
        !is_leaving && !Self::is_killed(snapshot, id) && !self.memory.exclusions.holds(id, hard, snapshot.clock())
    }

    fn is_killed(snapshot: &Snapshot, id: CgroupId) -> bool {
        snapshot.dying.iter().any(|dying| dying.id == id && dying.is_whole)
    }

    /// Takes in the standing of a candidate: evicts the candidate, or goes on to the next one.
    pub(super) fn judge(&mut self, rules: Rules<'_>, snapshot: &Snapshot, place: Place, standing: Standing) -> Next {
        self.evict(rules, snapshot, place, standing).unwrap_or_else(|| self.after(rules, snapshot, place))
    }

    fn after(&mut self, rules: Rules<'_>, snapshot: &Snapshot, place: Place) -> Next {
        match place {
            Place::Ranked(place) => {
                self.turn.tried.push(place);
                self.take_next(rules, snapshot)
            }
            Place::Limit(place) => self.next_limit(rules, snapshot, place + 1),
        }
    }

    /// Evicts the candidate. Returns `None` if the candidate must not be evicted, or not now.
    fn evict(&mut self, rules: Rules<'_>, snapshot: &Snapshot, place: Place, standing: Standing) -> Option<Next> {
        if standing.is_critical {
            return None;
        }
        let is_limit = matches!(place, Place::Limit(_));
        let met = self.acted_on().filter(|_| !is_limit);
        if met.is_none() && snapshot.question.is_some() {
            // `rank` on a signal without a threshold names the first candidate. Nothing would be evicted.
            let choice = Choice::named(place, Cause::Signal(snapshot.question?), Duration::ZERO);
            return Some(self.ask(Phase::Trying(place), Next::Evict(choice)));
        }
        let is_hard = met.is_none_or(MetThreshold::is_hard);
        let cause = match place {
            Place::Ranked(_) => Cause::Signal(met?.threshold.signal),
            Place::Limit(limit) => self.turn.exceeded.get(limit)?.cause,
        };
        let threshold = met.map(|met| met.place);
        let own = standing.grace_period_seconds;
        let (grace_period_seconds, grace) = match (is_hard, is_limit) {
            (true, false) => (IMMEDIATE_GRACE_SECONDS, Duration::ZERO),
            (true, true) => (IMMEDIATE_GRACE_SECONDS, IMMEDIATE_GRACE),
            (false, _) => (rules.policy.soft_grace_seconds(own), rules.policy.soft_grace(own)),
        };
        let route = match rules.agent() {
            None => Some(Route::Local),
            // Observe mode evicts nothing, so it names the candidate without waiting for a route.
            Some(agent) => {
                let named = (agent.mode == Mode::Observe).then_some(Route::Local);
                route(agent.methods, is_hard, standing).or(named)
            }
        };
        let Some(route) = route else {
            self.put_off(snapshot, place);
            return None;
        };
        let is_dry_run = rules.agent().is_none_or(|agent| agent.mode == Mode::Observe);
        let choice = Choice { place, cause, threshold, is_hard, grace_period_seconds, grace, route, is_dry_run };
        Some(self.ask(Phase::Trying(place), Next::Evict(choice)))
    }

    fn put_off(&mut self, snapshot: &Snapshot, place: Place) {
        let Place::Ranked(place) = place else { return };
        let (Some(met), Some(ranked)) = (self.acted_on(), self.turn.ranking.get(place)) else { return };
        let (kind, threshold) = ((met.threshold.signal, met.is_hard()), met.place);
        let (id, now) = (ranked.candidate.cgroup(), snapshot.clock());
        self.memory.cool_downs.set(kind, now, PUT_OFF);
        self.retry_at(now.after(PUT_OFF));
        self.turn.notes.push(Note::PutOff { threshold, id });
    }

    pub(super) fn tried(&mut self, rules: Rules<'_>, snapshot: &Snapshot, place: Place, attempt: Attempt) -> Next {
        if attempt == Attempt::Failed
            && let Some(id) = self.cgroup(place)
        {
            self.memory.fail(id, snapshot.clock());
        }
        if attempt == Attempt::PutOff {
            self.put_off(snapshot, place);
        }
        match (attempt, place) {
            (Attempt::Started, Place::Ranked(ranked)) => {
                let is_enforcing = rules.agent().is_some_and(|agent| agent.mode == Mode::Enforce);
                if let Some(met) = self.acted_on().filter(|_| is_enforcing) {
                    let (signal, hard) = (met.threshold.signal, met.is_hard());
                    self.charge(place, Class::of(signal, hard), snapshot.clock());
                    self.memory.cool_disks(signal.resource(), snapshot.clock());
                    self.record_memory_eviction(rules, ranked, snapshot.clock());
                }
                self.end_turn(rules, snapshot)
            }
            (Attempt::Started, Place::Limit(limit)) => self.limit_started(rules, snapshot, limit),
            (Attempt::Gone | Attempt::Critical | Attempt::PutOff | Attempt::Failed, _) => {
                self.after(rules, snapshot, place)
            }
        }
    }

    /// Charges an eviction that began to its budget.
    pub(super) fn charge(&mut self, place: Place, class: Class, now: Monotonic) {
        if let Some(id) = self.cgroup(place) {
            self.memory.budget.charge(class, id, now);
        }
    }

    fn cgroup(&self, place: Place) -> Option<CgroupId> {
        match place {
            Place::Ranked(place) => self.turn.ranking.get(place).map(|ranked| ranked.candidate.cgroup()),
            Place::Limit(limit) => self.turn.exceeded.get(limit).map(|exceeded| exceeded.id),
        }
    }

    /// Returns the candidate whose end would give back most, and why it is not evicted. Of equal ones it is the first of the ranking.
    fn largest_that_stays(&self, rules: Rules<'_>, snapshot: &Snapshot) -> Option<Stays> {
        let met = self.acted_on()?;
        let weighs_memory = Self::weighs_memory(rules, met.threshold.signal);
        let gain = |candidate: &C| {
            let memory = candidate.outlook().gain.filter(|_| weighs_memory);
            memory.map(Amount::from).or(candidate.facts().usage)
        };
        let ranked = self.turn.ranking.iter().map(|ranked| &ranked.candidate).zip(self.passed_over(rules, snapshot));
        let (place, (candidate, why)) = ranked.enumerate().rev().max_by_key(|(_, (candidate, _))| gain(candidate))?;
        let refusal = self.refusal(rules, snapshot, candidate, (met.threshold.signal, met.is_hard()), false);
        // Only its standing, which is read last, keeps one that was tried and neither failed nor is under way.
        let by_standing = self.turn.tried.contains(&place).then_some(PassedOver::Exempt);
        let why = rule!(ExemptForAll: PassedOver::Exempt, refusal.or(by_standing).or(why)?);
        let fall = self.memory.fall(met.value, snapshot.clock()).filter(|_| weighs_memory).map(FallNow::assumed);
        Some(Stays { id: candidate.cgroup(), why, growth: candidate.outlook().growth, fall })
    }

    /// Ends the turn when no candidate is left. In enforce mode it leaves out the cool-down and the note if a candidate was put off,
    /// because that candidate is tried again and has a note of its own.
    fn exhausted(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> Next {
        let (Some(agent), Some(met)) = (rules.agent(), self.acted_on()) else { return self.wait() };
        let (signal, hard, threshold) = (met.threshold.signal, met.is_hard(), met.place);
        let now: Monotonic = snapshot.clock();
        let candidates = self.turn.ranking.len();
        self.note_protected_leak(snapshot);
        let is_put_off = self.memory.cool_downs.until((signal, hard), now).is_some();
        if agent.mode == Mode::Observe || !is_put_off {
            let usual = cool_down(signal.resource(), agent.mode);
            let duration = self.acted_on().map_or(usual, |met| self.sought_again(met, usual, now));
            self.memory.cool_downs.set((signal, hard), now, duration);
            self.retry_at(now.after(duration));
            let largest = self.largest_that_stays(rules, snapshot);
            self.turn.notes.push(Note::Exhausted { threshold, candidates, largest });
        }
        self.end_turn(rules, snapshot)
    }
}

/// Returns the route of an eviction by the configuration and the state of the API server, or `None` if no eviction is possible now.
pub(super) fn route(methods: EvictionMethods, is_hard: bool, standing: Standing) -> Option<Route> {
    use EvictionMethod::{Delete, Evict, Fail, Off};
    let (is_up, is_read) = match standing.control_plane {
        ControlPlane::None => return Some(Route::Local),
        ControlPlane::Up { is_read } => (true, is_read),
        ControlPlane::Down => (false, false),
    };
    if !standing.is_pod {
        return Some(Route::Local);
    }
    let method = if is_hard { methods.hard } else { methods.soft };
    match (method, is_hard) {
        (Off, _) => Some(Route::Local),
        // Only the Eviction API respects disruption budgets, so the agent insists on the others.
        (_, false) if standing.is_known && is_up => Some(Route::Requested { insists: method != Evict }),
        (Fail | Delete, _) | (Evict, true) if standing.is_known => Some(Route::Reported),
        // Either the API server does not answer or it does not list the pod, so no disruption budget can be respected.
        (Evict, false) => None,
        // The API server answers but has not listed the pods yet, so protection is unknown. A hard threshold does not wait for the list.
        (Fail | Delete, false) if is_up && !is_read => None,
        (Fail | Delete | Evict, _) => Some(Route::Unlisted),
    }
}
