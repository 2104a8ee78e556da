//! Arming: a threshold that is met when it arrives does not evict at once, because its value may be a mistake. It evicts after a sign that
//! the shortage is real. A threshold that was armed stays armed, also over a restart of the agent in the same boot.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::{Policy, Quirks, Threshold};
use crate::eviction::{Armed, NodeCondition, Observation, SignalValue, is_below};
use crate::units::{Amount, Monotonic, Signal, named_enum};

use super::snapshot::Snapshot;

/// Thresholds that are remembered. The oldest one is forgotten first.
const MOST: usize = 64;
/// The least time over which stalls for memory are measured.
const STALL_WINDOW: Duration = Duration::from_secs(1);
/// The longest such time. An average over more time says nothing about the present.
const LONGEST_STALL_WINDOW: Duration = Duration::from_secs(3);
/// The least time between two readings that are kept.
const STALL_STEP: Duration = Duration::from_millis(100);

/// The state that is kept over a restart.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Arming {
    armed: Vec<ArmedThreshold>,
    waiting: Vec<Waiting>,
}

/// A threshold that was armed in this boot, and the capacity of its signal then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ArmedThreshold {
    threshold: Threshold,
    capacity: i64,
}

/// A threshold that was met when it arrived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Waiting {
    threshold: Threshold,
    /// The available amount of the signal when the threshold arrived.
    available: i64,
    since: Monotonic,
}

/// Why a threshold that is met does not evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unarmed {
    /// The threshold was met when it arrived, with this much available.
    Present { available: i64 },
    /// The threshold is above half of this capacity, or can never be unmet with its minimum reclaim.
    Implausible { capacity: i64 },
}

impl Unarmed {
    /// Returns the reason and what arms the threshold, as part of a sentence that names the threshold first.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Present { .. } => {
                "was met already when the agent first saw it; it evicts once it has been unmet, the signal has fallen by a quarter, \
                 or, for memory, the node stalls or its OOM killer has acted"
            }
            Self::Implausible { .. } => {
                "cannot be meant for this node: it is above half of the capacity, or its minimum reclaim is above all of it; \
                 correct the value"
            }
        }
    }
}

named_enum! {
    #[derive(Serialize, Deserialize)]
    pub enum ArmedBy {
        /// The threshold is not met.
        Unmet = "unmet",
        /// The signal fell below 75 % of its value at the threshold's arrival, or nothing is left.
        Fell = "signal_fell",
        /// All tasks waited for memory that the node lacked for more than a tenth of the last second.
        Stalls = "memory_stalls",
        /// The kernel's OOM killer acted for the whole node, or for the limit of all pods where that is what the threshold is on.
        OomKill = "oom_kill",
        /// The configuration has `evictions.actOnPresentPressure`, or an armed threshold would act as well.
        Told = "configuration",
    }
}

/// Returns whether a threshold can be meant for a node on which the signal has this capacity.
pub fn is_plausible(threshold: &Threshold, capacity: i64, quirks: Quirks) -> bool {
    let all = Amount::from_units(capacity);
    let quantity = threshold.value.resolve(capacity, quirks);
    quantity + quantity <= all && quantity + reclaim(threshold, capacity, quirks) <= all
}

/// Returns why a threshold that arrives with this observation would not evict, if it would not.
pub fn at_arrival(policy: &Policy, threshold: &Threshold, observation: &Observation) -> Option<Unarmed> {
    let SignalValue { available, capacity, .. } = observation.get(threshold.signal)?;
    if !is_plausible(threshold, capacity, policy.quirks) {
        return Some(Unarmed::Implausible { capacity });
    }
    is_below(policy, threshold, observation, false).then_some(Unarmed::Present { available })
}

fn reclaim(threshold: &Threshold, capacity: i64, quirks: Quirks) -> Amount {
    threshold.min_reclaim.as_ref().map_or(Amount::ZERO, |value| value.resolve(capacity, quirks))
}

impl ArmedThreshold {
    /// Returns whether this threshold, which is armed, acts no later and for no less than `new`. The capacity of some filesystems varies with
    /// their usage: a percentage may stand for up to a quarter more than when it was armed.
    fn covers(&self, new: &Threshold, capacity: i64, quirks: Quirks) -> bool {
        let Self { threshold: own, capacity: then } = self;
        if own.signal != new.signal || own.grace_period > new.grace_period {
            return false;
        }
        let (before, after) = (own.value.resolve(*then, quirks), new.value.resolve(capacity, quirks));
        if own == new {
            return after.billionths() / 5 <= before.billionths() / 4;
        }
        after <= before && reclaim(new, capacity, quirks) <= reclaim(own, *then, quirks)
    }
}

impl Arming {
    /// Judges one threshold in this turn, and remembers the verdict. Returns `None` while the signal is not observed.
    fn judge(
        &mut self,
        policy: &Policy,
        threshold: &Threshold,
        snapshot: &Snapshot,
        is_waived: bool,
        is_stalled: bool,
    ) -> Option<Result<ArmedBy, Unarmed>> {
        let observation = &snapshot.observation;
        let SignalValue { available, capacity, .. } = observation.get(threshold.signal)?;
        let is_met = is_below(policy, threshold, observation, false);
        if self.covers(threshold, capacity, policy.quirks) {
            // A value that is not met is remembered with the present capacity, unless the capacity is about the same.
            if !is_met {
                self.arm(threshold, capacity);
            }
            return Some(Ok(if is_met { ArmedBy::Told } else { ArmedBy::Unmet }));
        }
        if !is_plausible(threshold, capacity, policy.quirks) {
            self.waiting.retain(|waiting| waiting.threshold != *threshold);
            // This is not remembered: without the field in the configuration the threshold is not armed any more.
            return Some(if is_waived { Ok(ArmedBy::Told) } else { Err(Unarmed::Implausible { capacity }) });
        }
        if is_waived || !is_met {
            self.arm(threshold, capacity);
            return Some(Ok(if is_waived { ArmedBy::Told } else { ArmedBy::Unmet }));
        }
        let Some(waiting) = self.waiting.iter().find(|waiting| waiting.threshold == *threshold) else {
            let waiting = Waiting { threshold: threshold.clone(), available, since: snapshot.clock() };
            if available > 0 {
                keep(&mut self.waiting, waiting);
                return Some(Err(Unarmed::Present { available }));
            }
            self.arm(threshold, capacity);
            return Some(Ok(ArmedBy::Fell));
        };
        let by = waiting.exit(available, snapshot, is_stalled);
        let at_arrival = waiting.available;
        if by.is_some() {
            self.arm(threshold, capacity);
        }
        Some(by.ok_or(Unarmed::Present { available: at_arrival }))
    }

    /// Returns whether an agent that goes on from here acts on the threshold when it arrives.
    pub(super) fn covers(&self, threshold: &Threshold, capacity: i64, quirks: Quirks) -> bool {
        self.armed.iter().any(|armed| armed.covers(threshold, capacity, quirks))
    }

    pub(super) fn armed(&self) -> impl Iterator<Item = &Threshold> {
        self.armed.iter().map(|armed| &armed.threshold)
    }

    /// Returns the thresholds that were met when they arrived, and when that was.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Threshold, Monotonic)> {
        self.waiting.iter().map(|waiting| (&waiting.threshold, waiting.since))
    }

    /// Arms the threshold, unless it cannot be meant for this node: an agent saw it unmet before.
    pub(super) fn presume(&mut self, threshold: &Threshold, capacity: i64, quirks: Quirks) {
        if is_plausible(threshold, capacity, quirks) {
            self.arm(threshold, capacity);
        }
    }

    fn arm(&mut self, threshold: &Threshold, capacity: i64) {
        self.waiting.retain(|waiting| waiting.threshold != *threshold);
        let is_it = |armed: &ArmedThreshold| armed.threshold == *threshold;
        if let Some(known) = self.armed.iter_mut().find(|armed| is_it(armed)) {
            // Not for every change: each one is written to the disk.
            if known.capacity.abs_diff(capacity) > capacity.unsigned_abs() / 10 {
                known.capacity = capacity;
            }
            return;
        }
        keep(&mut self.armed, ArmedThreshold { threshold: threshold.clone(), capacity });
    }
}

fn keep<T>(list: &mut Vec<T>, item: T) {
    if list.len() >= MOST {
        list.remove(0);
    }
    list.push(item);
}

impl Waiting {
    /// Returns what arms the threshold now, while it is met.
    fn exit(&self, available: i64, snapshot: &Snapshot, is_stalled: bool) -> Option<ArmedBy> {
        let is_memory = NodeCondition::of(self.threshold.signal) == NodeCondition::MemoryPressure;
        if available <= 0 || i128::from(available) * 4 < i128::from(self.available) * 3 {
            Some(ArmedBy::Fell)
        } else if is_memory && is_stalled {
            Some(ArmedBy::Stalls)
        } else if is_memory && self.oom_killed(snapshot).is_some_and(|at| at > self.since) {
            Some(ArmedBy::OomKill)
        } else {
            None
        }
    }

    /// Returns when the OOM killer last acted for lack of what the threshold is on. A kill for the node counts for all pods too.
    fn oom_killed(&self, snapshot: &Snapshot) -> Option<Monotonic> {
        let of_pods = snapshot.pods_oom_killed.filter(|_| self.threshold.signal == Signal::AllocatableMemoryAvailable);
        snapshot.oom_killed.max(of_pods)
    }
}

/// The readings of the time for which all tasks waited for memory, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Stalls(Vec<(Monotonic, Duration)>);

impl Stalls {
    /// Takes in a reading. Returns whether all tasks waited for more than a tenth of the time since a reading of at least a second ago.
    fn observe(&mut self, now: Monotonic, total: Option<Duration>) -> bool {
        let Some(total) = total else {
            self.0.clear();
            return false;
        };
        self.0.retain(|(at, _)| now.since(*at) <= LONGEST_STALL_WINDOW);
        let old = self.0.iter().rev().find(|(at, _)| now.since(*at) >= STALL_WINDOW);
        let is_stalled = old.is_some_and(|(at, before)| total.saturating_sub(*before) * 10 > now.since(*at));
        if self.0.last().is_none_or(|(at, _)| now.since(*at) >= STALL_STEP) {
            self.0.push((now, total));
        }
        is_stalled
    }
}

/// The verdicts of a turn, and what changed since the turn before.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// The thresholds that are not armed, by their place among the watched ones.
    pub(super) unarmed: Vec<(usize, Threshold, Unarmed)>,
    /// The thresholds that became unarmed or armed, by their place.
    pub(super) changes: Vec<(usize, Result<ArmedBy, Unarmed>)>,
}

impl Verdicts {
    /// Judges every watched threshold.
    pub(super) fn renew(
        &mut self,
        (arming, stalls): (&mut Arming, &mut Stalls),
        policy: &Policy,
        watched: &[Armed],
        snapshot: &Snapshot,
        is_waived: bool,
    ) {
        let is_stalled = stalls.observe(snapshot.clock(), snapshot.memory_stalled);
        let before = std::mem::take(&mut self.unarmed);
        self.changes.clear();
        for (place, Armed { threshold, .. }) in watched.iter().enumerate() {
            let known = before.iter().find(|(_, known, _)| known == threshold).map(|(.., why)| *why);
            match arming.judge(policy, threshold, snapshot, is_waived, is_stalled) {
                Some(Err(why)) => {
                    self.unarmed.push((place, threshold.clone(), why));
                    let is_same =
                        known.is_some_and(|known| std::mem::discriminant(&known) == std::mem::discriminant(&why));
                    self.changes.extend((!is_same).then_some((place, Err(why))));
                }
                Some(Ok(by)) => self.changes.extend(known.map(|_| (place, Ok(by)))),
                None => self.unarmed.extend(known.map(|why| (place, threshold.clone(), why))),
            }
        }
    }

    pub(super) fn is_armed(&self, place: usize) -> bool {
        self.unarmed.iter().all(|(unarmed, ..)| *unarmed != place)
    }

    /// Returns whether a threshold on memory waits for a sign that the shortage is real.
    pub(super) fn awaits_stalls(&self) -> bool {
        let is_memory = |threshold: &Threshold| NodeCondition::of(threshold.signal) == NodeCondition::MemoryPressure;
        self.unarmed.iter().any(|(_, threshold, why)| is_memory(threshold) && matches!(why, Unarmed::Present { .. }))
    }
}

#[cfg(test)]
#[path = "arming_tests.rs"]
mod tests;
