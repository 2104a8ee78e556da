//! Which thresholds are met, for how long, and which node conditions follow.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::config::{Policy, Quirk, Quirks, Threshold};
use crate::units::{Amount, Moment, Signal};

use super::{Armed, Observation, SignalValue};

/// A node condition that eviction thresholds raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NodeCondition {
    /// `memory.available` or `allocatableMemory.available`.
    MemoryPressure,
    /// Any filesystem signal.
    DiskPressure,
    /// `pid.available`.
    PidPressure,
}

impl NodeCondition {
    /// The condition that `signal` raises.
    pub fn of(signal: Signal) -> Self {
        match signal {
            Signal::MemoryAvailable | Signal::AllocatableMemoryAvailable => Self::MemoryPressure,
            Signal::PidAvailable => Self::PidPressure,
            Signal::NodeFsAvailable
            | Signal::NodeFsInodesFree
            | Signal::ImageFsAvailable
            | Signal::ImageFsInodesFree
            | Signal::ContainerFsAvailable
            | Signal::ContainerFsInodesFree => Self::DiskPressure,
        }
    }

    /// Kubernetes' name for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PidPressure => "PIDPressure",
        }
    }
}

/// What one pass must remember for the next. Thresholds are known by their place among the armed ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// Since when each threshold has been met.
    first_observed: Vec<Option<Span>>,
    /// When each condition was last seen.
    last_observed: Vec<(NodeCondition, Moment)>,
    /// Thresholds past their grace period at the last pass: minimum reclaim holds only these.
    held: Vec<bool>,
    /// When the statistics of the last pass were taken, for each signal of which that is known.
    statistics: Vec<(Signal, Moment)>,
    /// There was a pass before.
    has_passed: bool,
}

impl State {
    /// Tells whether no pass has been made yet.
    pub fn is_first_pass(&self) -> bool {
        !self.has_passed
    }

    /// The same with other thresholds armed, as when filesystems are found to lie elsewhere: those that stay keep how long they have been
    /// met, and conditions how long ago they were seen.
    pub fn rearmed(&self, before: &[Armed], after: &[Armed]) -> Self {
        let place = |armed: &Armed| before.iter().position(|it| it.threshold == armed.threshold);
        let first = |place: Option<usize>| self.first_observed.get(place?).copied().flatten();
        let held = |place: Option<usize>| place.and_then(|place| self.held.get(place)).copied().unwrap_or(false);
        Self {
            first_observed: after.iter().map(|armed| first(place(armed))).collect(),
            held: after.iter().map(|armed| held(place(armed))).collect(),
            ..self.clone()
        }
    }
}

/// How long a threshold has been met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Span {
    /// Since when, had it not been interrupted.
    first: Moment,
    /// When it was last met.
    last: Moment,
    /// Since when it has not been.
    interrupted: Option<Moment>,
}

impl Span {
    fn met(self, now: Moment) -> Self {
        // An interruption does not count as time in which it was met.
        let gap = self.interrupted.map_or(0, |_| now.nanos_since(self.last));
        Self { first: Moment(self.first.0.saturating_add(gap)), last: now, interrupted: None }
    }

    fn unmet(self, now: Moment) -> Self {
        Self { interrupted: self.interrupted.or(Some(now)), ..self }
    }

    /// Well for so long that a next time is another time.
    fn is_over(self, now: Moment) -> bool {
        self.interrupted.is_some_and(|since| now.nanos_since(since) >= nanos(RECOVERED_AFTER))
    }
}

/// A threshold that is met and past its grace period.
#[derive(Debug, Clone, PartialEq)]
pub struct MetThreshold {
    /// Its place among the armed ones.
    pub place: usize,
    /// The threshold.
    pub threshold: Threshold,
    /// Its value as an amount of this node.
    pub quantity: Amount,
    /// What was observed.
    pub value: SignalValue,
    /// The statistics are newer than those of the pass before: it may be acted on.
    pub is_fresh: bool,
}

impl MetThreshold {
    /// Acts at once.
    pub fn is_hard(&self) -> bool {
        self.threshold.is_hard()
    }

    /// So much has to be available for it not to be met any more, by its minimum reclaim too.
    pub fn wanted(&self, quirks: Quirks) -> Amount {
        let on_top = self.threshold.min_reclaim.as_ref().map(|it| it.resolve(self.value.capacity, quirks));
        self.quantity + on_top.unwrap_or(Amount::ZERO)
    }

    /// Memory before all else, hard before soft.
    fn urgency(&self) -> (bool, bool) {
        (NodeCondition::of(self.threshold.signal) != NodeCondition::MemoryPressure, !self.is_hard())
    }
}

/// What the signals amount to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Assessment {
    /// Thresholds met and past their grace period, fresh or not, in the order in which they are armed.
    pub met: Vec<MetThreshold>,
    /// Conditions that hold, those inside their transition period included.
    pub conditions: Vec<NodeCondition>,
    /// For each armed threshold, whether it is met now, its grace period ignored.
    pub crossed: Vec<bool>,
    /// When the next grace or transition period ends: the time to look again at the latest.
    pub next_change: Option<Duration>,
}

impl Assessment {
    /// The thresholds that may be acted on, the most urgent first: memory before others, hard before soft, then as armed.
    pub fn to_act_on(&self) -> Vec<&MetThreshold> {
        let mut fresh: Vec<&MetThreshold> = self.met.iter().filter(|met| met.is_fresh).collect();
        fresh.sort_by_key(|met| met.urgency());
        fresh
    }
}

/// How long all must be well before a grace period starts anew: the kubelet's monitoring interval, which is what one good sample of
/// its own stands for.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// One pass over the signals at `now`.
pub fn assess(
    policy: &Policy,
    armed: &[Armed],
    state: &State,
    observation: &Observation,
    now: Moment,
) -> (State, Assessment) {
    let crossed = crossed(policy, armed, state, observation);
    let first_observed = first_observed(policy, state, &crossed, now);
    let past_grace = past_grace(armed, &crossed, &first_observed, now);
    let raising =
        if policy.quirks.has(Quirk::ConditionBeforeGrace) { crossed.as_slice() } else { past_grace.as_slice() };
    let last_observed = last_observed(&state.last_observed, armed, raising, now);
    let assessment = Assessment {
        met: met(policy, armed, state, &past_grace, observation),
        next_change: next_change(policy, armed, &crossed, &first_observed, &last_observed, now),
        conditions: conditions(policy, &last_observed, now),
        crossed,
    };
    // Where the time is not known the next statistics are fresh in any case.
    let statistics = observation.signals.iter().filter_map(|value| Some((value.signal, value.at?))).collect();
    (State { first_observed, last_observed, held: past_grace, statistics, has_passed: true }, assessment)
}

/// Below its quantity; or, once it was past its grace period, below quantity plus minimum reclaim. Equal is not below.
fn crossed(policy: &Policy, armed: &[Armed], state: &State, observation: &Observation) -> Vec<bool> {
    let held = |index: usize| state.held.get(index).copied().unwrap_or(false);
    let is_met = |(index, armed): (usize, &Armed)| {
        let is_below = |with_min_reclaim| is_below(policy, &armed.threshold, observation, with_min_reclaim);
        // What is held is held also where it would not count any more; and a reclaim that is less than nothing lifts nothing.
        armed.counts(state.is_first_pass()) && is_below(false) || held(index) && is_below(true)
    };
    armed.iter().enumerate().map(is_met).collect()
}

/// Compares one threshold with its signal, its minimum reclaim added if wanted.
pub fn is_below(policy: &Policy, threshold: &Threshold, observation: &Observation, with_min_reclaim: bool) -> bool {
    let Some(value) = observation.get(threshold.signal) else { return false };
    let quantity = threshold.value.resolve(value.capacity, policy.quirks);
    let reclaim = threshold.min_reclaim.as_ref().filter(|_| with_min_reclaim);
    let reclaim = reclaim.map_or(Amount::ZERO, |reclaim| reclaim.resolve(value.capacity, policy.quirks));
    Amount::from_units(value.available) < quantity + reclaim
}

fn first_observed(policy: &Policy, state: &State, crossed: &[bool], now: Moment) -> Vec<Option<Span>> {
    let at_once = policy.quirks.has(Quirk::GraceRestartsAtOnce);
    let span = |(index, crossed): (usize, &bool)| {
        let before = state.first_observed.get(index).copied().flatten();
        if *crossed {
            let fresh = Span { first: now, last: now, interrupted: None };
            return Some(before.map_or(fresh, |before| before.met(now)));
        }
        before.filter(|_| !at_once).map(|before| before.unmet(now)).filter(|span| !span.is_over(now))
    };
    crossed.iter().enumerate().map(span).collect()
}

fn past_grace(armed: &[Armed], crossed: &[bool], first_observed: &[Option<Span>], now: Moment) -> Vec<bool> {
    let is_past = |((armed, crossed), span): ((&Armed, &bool), &Option<Span>)| {
        let since = span.map(|span| now.nanos_since(span.first));
        *crossed && since.is_some_and(|since| since >= nanos(armed.threshold.grace_period))
    };
    armed.iter().zip(crossed).zip(first_observed).map(is_past).collect()
}

fn last_observed(
    before: &[(NodeCondition, Moment)],
    armed: &[Armed],
    raising: &[bool],
    now: Moment,
) -> Vec<(NodeCondition, Moment)> {
    let mut all = before.to_vec();
    for (armed, _) in armed.iter().zip(raising).filter(|(_, raising)| **raising) {
        let condition = NodeCondition::of(armed.threshold.signal);
        match all.iter_mut().find(|(known, _)| *known == condition) {
            Some((_, seen)) => *seen = now,
            None => all.push((condition, now)),
        }
    }
    all
}

fn conditions(policy: &Policy, last_observed: &[(NodeCondition, Moment)], now: Moment) -> Vec<NodeCondition> {
    let period = nanos(policy.pressure_transition_period);
    let shown_while_seen = !policy.quirks.has(Quirk::ZeroTransitionHidesCondition);
    let holds = |seen: Moment| now.nanos_since(seen) < period || shown_while_seen && seen == now;
    let mut conditions: Vec<NodeCondition> =
        last_observed.iter().filter(|(_, seen)| holds(*seen)).map(|(condition, _)| *condition).collect();
    conditions.sort_unstable();
    conditions
}

fn met(
    policy: &Policy,
    armed: &[Armed],
    state: &State,
    past_grace: &[bool],
    observation: &Observation,
) -> Vec<MetThreshold> {
    let met = |(place, (armed, _)): (usize, (&Armed, &bool))| {
        let value = observation.get(armed.threshold.signal)?;
        Some(MetThreshold {
            place,
            threshold: armed.threshold.clone(),
            quantity: armed.threshold.value.resolve(value.capacity, policy.quirks),
            value,
            is_fresh: is_fresh(state, value),
        })
    };
    armed.iter().zip(past_grace).enumerate().filter(|(_, (_, past_grace))| **past_grace).filter_map(met).collect()
}

/// Newer than at the pass before. Where either time is not known there is nothing to tell old from new by.
fn is_fresh(state: &State, value: SignalValue) -> bool {
    let before = state.statistics.iter().find(|(signal, _)| *signal == value.signal).map(|(_, at)| *at);
    before.zip(value.at).is_none_or(|(before, at)| at > before)
}

fn next_change(
    policy: &Policy,
    armed: &[Armed],
    crossed: &[bool],
    first_observed: &[Option<Span>],
    last_observed: &[(NodeCondition, Moment)],
    now: Moment,
) -> Option<Duration> {
    let remaining = |since: Moment, period: Duration| {
        let left = nanos(period) - now.nanos_since(since);
        u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_nanos)
    };
    let graces = armed
        .iter()
        .zip(crossed)
        .zip(first_observed)
        .filter(|((_, crossed), _)| **crossed)
        .filter_map(|((armed, _), span)| remaining((*span)?.first, armed.threshold.grace_period));
    let transitions = last_observed.iter().filter_map(|(_, seen)| remaining(*seen, policy.pressure_transition_period));
    graces.chain(transitions).min()
}

pub(super) fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
#[path = "thresholds_tests.rs"]
mod tests;
