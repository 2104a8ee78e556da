//! Picks the victim for memory by what its end buys, and waits for the memory of earlier victims.

use std::time::Duration;

use crate::config::{Policy, Semantics};
use crate::eviction::fall::FallNow;
use crate::eviction::growth;
use crate::eviction::memory_benefit::{Culprits, MemoryBenefit, Need, Row, Worth, is_cliff};
use crate::eviction::mutants::rule;
use crate::eviction::rank::{Candidate, Facts};
use crate::eviction::{MetThreshold, Observation, is_below};
use crate::units::{Amount, Bytes, CgroupId, Monotonic, Resource, Signal, signed_float};

use super::pending::{DyingMemory, Level};
use super::shortage::ProtectedLeak;
use super::swap_rule::{SwapLevel, SwapWait};
use super::{Decider, Note, Rules, Snapshot, start};

/// The decider asks this often whether the memory of victims has come back, and whether swap-out still keeps up.
const POLL: Duration = Duration::from_millis(10);
/// Candidates are sought at most this often after none was left.
const SOUGHT_EVERY: Duration = Duration::from_millis(50);
/// A protected workload that grows by less than this share of the fall is not named as what leaks.
const NAMED_SHARE: f64 = 0.1;
/// Memory is sampled at least this often while growth is measured, and growth is read as often.
const SAMPLED_EVERY: Duration = Duration::from_millis(200);
/// A wait is reported once the victim was killed this long ago.
const REPORTED_AFTER: Duration = Duration::from_millis(500);

impl<C: Candidate> Decider<C> {
    /// Takes in the facts that the rules about memory need in later turns.
    pub(super) fn observe_shortages(&mut self, rules: Rules<'_>, snapshot: &Snapshot) {
        let now = snapshot.clock();
        self.memory.observe_memory(&snapshot.observation, now);
        self.memory.pending.observe(&snapshot.dying, now);
        let crossed = self.armed.iter().zip(&self.turn.assessment.crossed).filter(|(_, crossed)| **crossed);
        let signals = crossed.map(|(armed, _)| armed.threshold.signal);
        self.memory.shortages.observe(signals, rules.policy.pressure_transition_period, now);
        self.fade_shortages(&snapshot.observation, now);
        let is_short = self.turn.assessment.met.iter().any(|met| met.threshold.signal.resource() == Resource::Memory);
        if !is_short {
            self.memory.swap_wait = SwapWait::default();
        }
        if !is_short && self.memory.shortages.is_empty() {
            self.memory.pending.end_shortage();
        }
    }

    fn fade_shortages(&mut self, observation: &Observation, now: Monotonic) {
        for value in &observation.signals {
            let is_falling = self.memory.fall(*value, now).map(FallNow::is_falling);
            if let (Some(is_falling), Some(shortage)) = (is_falling, self.memory.shortages.of(value.signal)) {
                shortage.fade(is_falling, now);
            }
        }
    }

    /// Returns whether the kernel's OOM killer is near. No rule of pace holds then. A soft threshold is met long before that: the hard one
    /// below it tells. The kernel empties the CPUs' lists of free pages before it kills (mm/page_alloc.c, `__alloc_pages_direct_reclaim`).
    pub(super) fn is_at_cliff(&self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        let now = snapshot.clock();
        if !met.is_hard() || !rule!(NoCliff: false, Self::weighs_memory(rules, met.threshold.signal)) {
            return false;
        }
        // The memory that comes back after an eviction hides the fall for a second.
        let is_hidden = self.memory.shortages.get(met.threshold.signal).is_some_and(|shortage| shortage.has_evicted());
        let shown = |fall: FallNow| if is_hidden { fall.measured.max(fall.present) } else { fall.measured };
        let fall = self.memory.fall(met.value, now).map(shown);
        let usual = Policy::default_hard_threshold().value.resolve(met.value.capacity, rules.policy.quirks);
        let on_cpu_lists = on_cpu_lists(snapshot, met.value.signal).unwrap_or_default();
        is_cliff(signed_float(met.value.available) + on_cpu_lists.as_f64(), met.quantity.as_f64(), usual.as_f64(), fall)
    }

    /// Returns whether the first eviction for memory waits until the agent has seen what leaks.
    pub(super) fn awaits_first_fall(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        if !Self::weighs_memory(rules, met.threshold.signal) {
            return false;
        }
        let now = snapshot.clock();
        let (available, threshold) = (signed_float(met.value.available), met.quantity.as_f64());
        let fall = self.memory.fall(met.value, now).map_or(0.0, FallNow::assumed);
        let waits =
            start::knows_no_fall(snapshot.first_sample, Level { available, threshold, fall, is_cliff: None }, now);
        if waits {
            self.retry_at(now.after(POLL));
        }
        waits
    }

    /// Returns whether the next eviction waits for the memory of workloads that were killed.
    pub(super) fn awaits_memory(&mut self, rules: Rules<'_>, snapshot: &Snapshot) -> bool {
        let Some(met) = self.acted_on() else { return false };
        let &MetThreshold { place, quantity, value, .. } = met;
        if value.signal.resource() != Resource::Memory {
            return false;
        }
        if rule!(NoPending: true, false) {
            return false;
        }
        let now = snapshot.clock();
        let (available, threshold) = (signed_float(value.available), quantity.as_f64());
        let has_cliff = met.is_hard() && Self::weighs_memory(rules, value.signal);
        let is_cliff = has_cliff.then(|| self.is_at_cliff(rules, snapshot, met));
        let is_scarce = is_cliff == Some(true) && available < threshold / 4.0;
        let fall = self.memory.fall_after(value, &snapshot.dying, is_scarce, now);
        let level = Level { available, threshold, fall, is_cliff };
        if let Some(left) = on_cpu_lists(snapshot, value.signal).filter(|free| level.is_over_with(*free)) {
            self.retry_at(now.after(POLL));
            self.turn.notes.push(Note::MemoryExpected { threshold: place, left, of: None });
            return true;
        }
        let Some(left) = self.memory.pending.waits(&snapshot.dying, level, now) else { return false };
        self.retry_at(now.after(POLL));
        let is_long = |dying: &DyingMemory| dying.is_recent(now) && now.since(dying.killed) >= REPORTED_AFTER;
        if snapshot.dying.iter().any(is_long) {
            let of = self.memory.pending.most_awaited(&snapshot.dying, now);
            self.turn.notes.push(Note::MemoryExpected { threshold: place, left, of });
        }
        true
    }

    /// Returns whether the eviction waits because the kernel swaps out as fast as available memory falls.
    pub(super) fn awaits_swap(&mut self, rules: Rules<'_>, snapshot: &Snapshot, met: &MetThreshold) -> bool {
        let Some(agent) = rules.agent() else { return false };
        let is_in_force = agent.limits.wait_for_swap
            && rules.policy.semantics == Semantics::Corrected
            && met.threshold.signal == Signal::MemoryAvailable;
        if !is_in_force || snapshot.swap.is_none() && !self.memory.swap_wait.is_waiting() {
            return false;
        }
        let now = snapshot.clock();
        let available = Amount::from_units(met.value.available);
        let level = SwapLevel {
            available: available.as_f64(),
            threshold: met.quantity.as_f64(),
            missing: (met.wanted(rules.policy.quirks) - available).as_f64(),
            fall: self.memory.fall(met.value, now),
            minimum: agent.limits.minimum_gain,
        };
        let wait = &mut self.memory.swap_wait;
        let verdict = wait.judge(snapshot.swap, level, snapshot.oom_killed, now);
        self.turn.notes.extend(wait.settle(met.place, verdict, now));
        if verdict.is_ok() {
            self.retry_at(now.after(POLL));
        }
        verdict.is_ok()
    }

    /// Returns whether the victim is picked by what its end buys.
    pub(super) fn weighs_memory(rules: Rules<'_>, signal: Signal) -> bool {
        rules.weighs_benefit()
            && rules.policy.semantics == Semantics::Corrected
            && signal.resource() == Resource::Memory
    }

    /// Compares what the last eviction of this shortage has bought with what it promised. Called when another victim is needed.
    pub(super) fn settle_shortage(&mut self, now: Monotonic) {
        let Some(value) = self.acted_on().map(|met| met.value) else { return };
        // Without a fall nothing leaks: what is missing has to come from several.
        let is_falling = self.memory.fall(value, now).is_some_and(FallNow::is_falling);
        if let Some(shortage) = self.memory.shortages.of(value.signal) {
            shortage.settle(is_falling, now);
        }
    }

    /// Returns the judge of the candidates that `may_go`, in the order of the ranking. `buffer` is that of the judge before.
    pub(super) fn memory_benefit(
        &self,
        rules: Rules<'_>,
        snapshot: &Snapshot,
        mut buffer: Vec<Row>,
        may_go: impl Fn(usize, &C) -> bool,
    ) -> MemoryBenefit {
        let need = self.need(rules, snapshot);
        let candidates = self.turn.ranking.iter().map(|ranked| &ranked.candidate).enumerate();
        let rows = candidates.filter(|(place, candidate)| may_go(*place, candidate)).map(|(place, candidate)| {
            let outlook = candidate.outlook();
            let Facts { usage, request, .. } = candidate.facts();
            let gain = outlook.gain.map(Amount::from).or(usage).unwrap_or(Amount::ZERO).as_f64();
            let counted = rule!(FilePagesCount: usage.unwrap_or_default().as_f64(), gain);
            let excess = (counted - request.unwrap_or(Amount::ZERO).as_f64()).max(0.0);
            Row { place, gain, excess, outlook }
        });
        let is_unlisted =
            |place: usize| self.turn.ranking.get(place).is_some_and(|ranked| ranked.candidate.is_unlisted());
        buffer.reserve(self.turn.ranking.len());
        buffer.extend(rows);
        start::listed_first(need, buffer, is_unlisted)
    }

    fn need(&self, rules: Rules<'_>, snapshot: &Snapshot) -> Need {
        let Some(met) = self.acted_on() else { return Need::default() };
        let missing = met.wanted(rules.policy.quirks) - Amount::from_units(met.value.available);
        let plain = Need { missing: missing.as_f64(), ..Need::default() };
        let Some(agent) = rules.agent() else { return plain };
        let now = snapshot.clock();
        let fall = self.memory.fall(met.value, now);
        let need = Need {
            expected: self.memory.pending.expected(&snapshot.dying, now).as_f64(),
            fall: fall.map(|fall| fall.measured),
            fall_that_goes_on: fall.map(FallNow::that_goes_on),
            fall_since_kill: self.memory.fall_since_kill(met.value, &snapshot.dying, now).map(|(whole, _)| whole),
            protected_growth: snapshot.protected_growth.map_or(0.0, |(_, growth)| signed_float(growth)),
            threshold: met.quantity.as_f64(),
            minimum: agent.limits.minimum_gain,
            is_cliff: self.is_at_cliff(rules, snapshot, met),
            terminating_first: met.is_hard(),
            ..plain
        };
        let shortage = self.memory.shortages.get(met.threshold.signal);
        shortage.map_or(need, |shortage| shortage.need(agent.limits.minimum_gain, need))
    }

    pub(super) fn record_memory_eviction(&mut self, rules: Rules<'_>, place: usize, now: Monotonic) {
        // A soft eviction has its effect only after its grace period.
        let (Some(agent), Some(met)) = (rules.agent(), self.acted_on().filter(|met| met.is_hard())) else { return };
        let signal = met.threshold.signal;
        let (leaks, buys) = (self.worth_at(place) == Some(Worth::Leaks), self.turn.buys.unwrap_or_default());
        self.memory.shortages.record(signal, (leaks, buys), agent.limits.minimum_gain, now);
    }

    /// Returns when candidates are sought again after none was left: before a quarter of the threshold is reached, where one more eviction
    /// is allowed, and before half of what is left is gone.
    pub(super) fn sought_again(&self, met: &MetThreshold, usual: Duration, now: Monotonic) -> Duration {
        let fall = self.memory.fall(met.value, now).map_or(0.0, FallNow::assumed);
        if met.threshold.signal.resource() != Resource::Memory || fall <= 0.0 {
            return usual;
        }
        let available = signed_float(met.value.available).max(0.0);
        let above = available - met.quantity.as_f64() / 4.0;
        let lost = if above > 0.0 { above } else { available / 2.0 };
        Duration::from_secs_f64((lost / fall).min(usual.as_secs_f64())).max(SOUGHT_EVERY)
    }

    /// Reports that what leaks cannot be evicted, if that is why no victim was found.
    pub(super) fn note_protected_leak(&mut self, snapshot: &Snapshot) {
        let Some(met) = self.acted_on() else { return };
        let (threshold, value) = (met.place, met.value);
        let Some(benefit) = self.turn.memory_benefit.as_ref().filter(|benefit| benefit.culprits() == Culprits::Only)
        else {
            return;
        };
        let fall = self.memory.fall(value, snapshot.clock()).map_or(0.0, |fall| fall.measured);
        let leaks = |(_, growth): &(CgroupId, i64)| {
            let growth = signed_float(*growth);
            // The fall may be the average over a time in which something else grew as well.
            growth >= fall / 2.0 || growth >= fall * NAMED_SHARE && growth > benefit.growth_of_all()
        };
        let id = snapshot.protected_growth.filter(leaks).map(|(id, _)| id);
        self.turn.notes.push(Note::ProtectedLeak { threshold, id, fall });
        if let Some(shortage) = self.memory.shortages.of(value.signal) {
            shortage.note_protected_leak(ProtectedLeak { id, fall });
        }
    }

    /// Returns what leaks in the present shortage of memory and cannot be evicted.
    pub fn protected_leak(&self) -> Option<ProtectedLeak> {
        self.memory.shortages.protected_leak()
    }

    /// Returns whether a threshold on memory is met, or would be within `horizon` at the present fall.
    pub fn is_memory_near(&self, policy: &Policy, horizon: Duration, now: Monotonic) -> bool {
        self.armed.iter().any(|armed| {
            let value = self.turn.observation.get(armed.threshold.signal);
            value.filter(|value| value.signal.resource() == Resource::Memory).is_some_and(|value| {
                let quantity = armed.threshold.value.resolve(value.capacity, policy.quirks).as_f64();
                let falls = self.memory.fall(value, now).map_or(0.0, FallNow::assumed) * horizon.as_secs_f64();
                signed_float(value.available) - falls < quantity
            })
        })
    }

    /// Takes a sample in if nothing in it is below a threshold. Returns whether that is so.
    pub fn passes_by(&mut self, policy: &Policy, observation: &Observation, now: Monotonic) -> bool {
        if self.armed.iter().any(|armed| is_below(policy, &armed.threshold, observation, false)) {
            return false;
        }
        self.memory.observe_memory(observation, now);
        self.turn.observation.clone_from(observation);
        true
    }

    /// Returns whether no threshold is met, and no condition holds.
    pub fn is_calm(&self) -> bool {
        let assessment = &self.turn.assessment;
        assessment.conditions.is_empty() && !assessment.crossed.contains(&true) && self.memory.shortages.is_empty()
    }

    /// Returns within which time of the last sample the next one is due, by what is measured. The fastest fall that is possible may allow a
    /// longer pause, which would hide what has stopped to grow since.
    pub fn sampled_within(&self, policy: &Policy, now: Monotonic) -> Option<Duration> {
        self.is_memory_near(policy, growth::HORIZON, now).then_some(SAMPLED_EVERY)
    }

    /// Returns what the end of the candidate at this place of the ranking was worth, as the last pick judged it.
    pub fn worth_at(&self, place: usize) -> Option<Worth> {
        self.turn.memory_benefit.as_ref()?.worth_at(place)
    }
}

/// Returns the free pages that the figure of this signal lacks after a kill.
fn on_cpu_lists(snapshot: &Snapshot, signal: Signal) -> Option<Bytes> {
    snapshot.on_cpu_lists.filter(|_| signal == Signal::MemoryAvailable)
}
