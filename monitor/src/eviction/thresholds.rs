//! Computes which thresholds are met, for how long, and which node conditions follow.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::config::{Policy, Quirk, Quirks, Threshold};
use crate::units::{Amount, Moment, Signal, named_enum};

use super::{Armed, Observation, SignalValue};

named_enum! {
    #[derive(Serialize, Deserialize)]
    pub enum NodeCondition {
        /// `memory.available` or `allocatableMemory.available`.
        MemoryPressure = "MemoryPressure",
        /// Any filesystem signal.
        DiskPressure = "DiskPressure",
        /// `pid.available`.
        PidPressure = "PIDPressure",
    }
}

impl NodeCondition {
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
}

/// The state that one pass leaves to the next. Thresholds are identified by their place among the armed ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// Since when each threshold has been met.
    first_observed: Vec<Option<Span>>,
    /// When each condition was last raised.
    last_observed: Vec<(NodeCondition, Moment)>,
    /// Whether each threshold was past its grace period at the last pass. Minimum reclaim holds only these thresholds.
    held: Vec<bool>,
    /// When the statistics of the last pass were taken, for each signal whose statistics have a time.
    statistics: Vec<(Signal, Moment)>,
    /// Whether there was a pass before.
    has_passed: bool,
}

impl State {
    /// Returns whether no pass has been made yet.
    pub fn is_first_pass(&self) -> bool {
        !self.has_passed
    }

    /// Returns the state for other armed thresholds, for example after the layout of the filesystems changed. Thresholds that stay armed
    /// keep the time for which they have been met. Conditions keep the time at which they were last raised.
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
    /// When the threshold was first met, moved forward by the interruptions since.
    first: Moment,
    /// When the threshold was last met.
    last: Moment,
    /// When the threshold was first not met after that, if it is not met now.
    interrupted: Option<Moment>,
}

impl Span {
    fn met(self, now: Moment) -> Self {
        // The time of an interruption does not count towards the grace period.
        let gap = self.interrupted.map_or(0, |_| now.nanos_since(self.last));
        Self { first: Moment(self.first.0.saturating_add(gap)), last: now, interrupted: None }
    }

    fn unmet(self, now: Moment) -> Self {
        Self { interrupted: self.interrupted.or(Some(now)), ..self }
    }

    /// Returns whether the threshold has been unmet for so long that its grace period starts anew.
    fn is_over(self, now: Moment) -> bool {
        self.interrupted.is_some_and(|since| now.nanos_since(since) >= nanos(RECOVERED_AFTER))
    }
}

/// A threshold that is met and past its grace period.
#[derive(Debug, Clone, PartialEq)]
pub struct MetThreshold {
    /// The place of the threshold among the armed ones.
    pub place: usize,
    pub threshold: Threshold,
    /// The value of the threshold as an amount on this node.
    pub quantity: Amount,
    pub value: SignalValue,
    /// Whether the statistics are newer than those of the pass before. Only then the threshold may be acted on.
    pub is_fresh: bool,
}

impl MetThreshold {
    /// Returns whether the threshold is hard, which means that it has no grace period.
    pub fn is_hard(&self) -> bool {
        self.threshold.is_hard()
    }

    /// Returns the amount that must be available so that the threshold, with its minimum reclaim, is no longer met.
    pub fn wanted(&self, quirks: Quirks) -> Amount {
        let on_top = self.threshold.min_reclaim.as_ref().map(|it| it.resolve(self.value.capacity, quirks));
        self.quantity + on_top.unwrap_or(Amount::ZERO)
    }

    /// Returns a key to sort by: memory before all other resources, hard before soft.
    fn urgency(&self) -> (bool, bool) {
        (NodeCondition::of(self.threshold.signal) != NodeCondition::MemoryPressure, !self.is_hard())
    }
}

/// The result of one pass over the signals.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Assessment {
    /// The thresholds that are met and past their grace period, fresh or not, in the order in which they are armed.
    pub met: Vec<MetThreshold>,
    /// The conditions that hold, including those inside their transition period.
    pub conditions: Vec<NodeCondition>,
    /// Whether each armed threshold is met now, whatever its grace period.
    pub crossed: Vec<bool>,
    /// The time until the next grace period or transition period ends. The next pass must not be later.
    pub next_change: Option<Duration>,
}

impl Assessment {
    /// Returns the thresholds that may be acted on, most urgent first: memory before others, hard before soft, then as armed.
    pub fn to_act_on(&self) -> Vec<&MetThreshold> {
        let mut fresh: Vec<&MetThreshold> = self.met.iter().filter(|met| met.is_fresh).collect();
        fresh.sort_by_key(|met| met.urgency());
        fresh
    }
}

/// A threshold must be unmet for this long before its grace period starts anew. It is the monitoring interval of the kubelet, whose
/// grace period starts anew after a single sample that does not meet the threshold.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// Makes one pass over the signals at `now`.
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
    // Without a time, the next statistics count as fresh.
    let statistics = observation.signals.iter().filter_map(|value| Some((value.signal, value.at?))).collect();
    (State { first_observed, last_observed, held: past_grace, statistics, has_passed: true }, assessment)
}

/// Returns for each armed threshold whether its signal is below its quantity. A threshold that was past its grace period at the last
/// pass is also met below its quantity plus minimum reclaim. Equal is not below.
fn crossed(policy: &Policy, armed: &[Armed], state: &State, observation: &Observation) -> Vec<bool> {
    let held = |index: usize| state.held.get(index).copied().unwrap_or(false);
    let is_met = |(index, armed): (usize, &Armed)| {
        let is_below = |with_min_reclaim| is_below(policy, &armed.threshold, observation, with_min_reclaim);
        // Minimum reclaim holds a threshold even on a pass on which the threshold does not count. A negative minimum reclaim does not
        // lower the quantity.
        armed.counts(state.is_first_pass()) && is_below(false) || held(index) && is_below(true)
    };
    armed.iter().enumerate().map(is_met).collect()
}

/// Returns whether the signal of `threshold` is below its quantity, plus its minimum reclaim if `with_min_reclaim` is set. Returns false if
/// the signal is not observed.
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

/// Returns whether the statistics are newer than those of the pass before. Returns true if either time is unknown.
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
