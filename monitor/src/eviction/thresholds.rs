//! Which thresholds are met, for how long, and which node conditions follow.

use std::time::Duration;

use crate::config::{Bytes, Policy, Signal, Threshold};
use crate::node::Monotonic;

use super::Observation;

/// A node condition that eviction thresholds raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    #[must_use]
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
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PidPressure => "PIDPressure",
        }
    }
}

/// What one pass must remember for the next. Thresholds are known by their place in the policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// Since when each threshold has been met without a break.
    first_observed: Vec<Option<Monotonic>>,
    /// When each condition was last seen.
    last_observed: Vec<(NodeCondition, Monotonic)>,
    /// Thresholds past their grace period at the last pass: minimum reclaim holds only these.
    held: Vec<bool>,
}

/// A threshold that is met and past its grace period.
#[derive(Debug, Clone, PartialEq)]
pub struct MetThreshold {
    /// The threshold.
    pub threshold: Threshold,
    /// Its value as a quantity of this node.
    pub quantity: Bytes,
    /// What was observed.
    pub available: Bytes,
}

impl MetThreshold {
    /// Acts at once.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        self.threshold.grace_period.is_zero()
    }
}

/// What the signals amount to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Assessment {
    /// Thresholds met and past their grace period, the one to act on first: memory before others, hard before soft.
    pub met: Vec<MetThreshold>,
    /// Conditions that hold, those inside their transition period included.
    pub conditions: Vec<NodeCondition>,
    /// For each threshold of the policy, whether it is met now, its grace period ignored.
    pub crossed: Vec<bool>,
    /// When the next grace or transition period ends: the time to look again at the latest.
    pub next_change: Option<Duration>,
}

/// One pass over the signals at `now`.
#[must_use]
pub fn assess(policy: &Policy, state: &State, observation: &Observation, now: Monotonic) -> (State, Assessment) {
    let thresholds = &policy.thresholds;
    let held = |index: usize| state.held.get(index).copied().unwrap_or(false);
    let crossed: Vec<bool> =
        thresholds.iter().enumerate().map(|(index, threshold)| is_met(threshold, held(index), observation)).collect();

    let since = |index: usize| state.first_observed.get(index).copied().flatten().unwrap_or(now);
    let first_observed: Vec<Option<Monotonic>> =
        crossed.iter().enumerate().map(|(index, met)| met.then(|| since(index))).collect();

    let last_observed = last_observed(&state.last_observed, thresholds, &crossed, now);
    let holds =
        |(_, seen): &&(NodeCondition, Monotonic)| now.since(*seen) < policy.pressure_transition_period || *seen == now;
    let mut conditions: Vec<NodeCondition> =
        last_observed.iter().filter(holds).map(|(condition, _)| *condition).collect();
    conditions.sort_unstable();

    let past_grace: Vec<bool> = thresholds
        .iter()
        .zip(&first_observed)
        .map(|(threshold, since)| since.is_some_and(|since| now.since(since) >= threshold.grace_period))
        .collect();

    let assessment = Assessment {
        met: in_order_of_action(thresholds, &past_grace, observation),
        next_change: next_change(policy, &first_observed, &last_observed, now),
        conditions,
        crossed,
    };
    (State { first_observed, last_observed, held: past_grace }, assessment)
}

/// Below its quantity; or, once it was past its grace period, below quantity plus minimum reclaim. Equal is not below.
fn is_met(threshold: &Threshold, held: bool, observation: &Observation) -> bool {
    let Some(value) = observation.get(threshold.signal) else { return false };
    let quantity = threshold.value.resolve(value.capacity);
    let reclaim = threshold.min_reclaim.filter(|_| held).map_or(Bytes(0), |reclaim| reclaim.resolve(value.capacity));
    value.available < quantity.saturating_add(reclaim)
}

fn last_observed(
    before: &[(NodeCondition, Monotonic)],
    thresholds: &[Threshold],
    crossed: &[bool],
    now: Monotonic,
) -> Vec<(NodeCondition, Monotonic)> {
    let mut all = before.to_vec();
    for (threshold, _) in thresholds.iter().zip(crossed).filter(|(_, crossed)| **crossed) {
        let condition = NodeCondition::of(threshold.signal);
        match all.iter_mut().find(|(known, _)| *known == condition) {
            Some((_, seen)) => *seen = now,
            None => all.push((condition, now)),
        }
    }
    all
}

fn in_order_of_action(thresholds: &[Threshold], past_grace: &[bool], observation: &Observation) -> Vec<MetThreshold> {
    let mut met: Vec<MetThreshold> = thresholds
        .iter()
        .zip(past_grace)
        .filter(|(_, past_grace)| **past_grace)
        .filter_map(|(threshold, _)| {
            let value = observation.get(threshold.signal)?;
            let quantity = threshold.value.resolve(value.capacity);
            Some(MetThreshold { threshold: threshold.clone(), quantity, available: value.available })
        })
        .collect();
    // Stable: among equals the order of the policy decides.
    met.sort_by_key(|met| (NodeCondition::of(met.threshold.signal), !met.is_hard()));
    met
}

fn next_change(
    policy: &Policy,
    first_observed: &[Option<Monotonic>],
    last_observed: &[(NodeCondition, Monotonic)],
    now: Monotonic,
) -> Option<Duration> {
    let remaining =
        |since: Monotonic, period: Duration| period.checked_sub(now.since(since)).filter(|left| !left.is_zero());
    let graces = policy
        .thresholds
        .iter()
        .zip(first_observed)
        .filter_map(|(threshold, since)| remaining((*since)?, threshold.grace_period));
    let transitions = last_observed.iter().filter_map(|(_, seen)| remaining(*seen, policy.pressure_transition_period));
    graces.chain(transitions).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{MonitorConfig, ThresholdValue};
    use crate::eviction::SignalValue;

    const SECOND: u64 = 1_000_000_000;
    const CAPACITY: u64 = 1000;

    fn threshold(quantity: u64, grace_seconds: u64, min_reclaim: u64) -> Threshold {
        Threshold {
            signal: Signal::MemoryAvailable,
            value: ThresholdValue::Quantity(Bytes(quantity)),
            grace_period: Duration::from_secs(grace_seconds),
            min_reclaim: (min_reclaim > 0).then_some(ThresholdValue::Quantity(Bytes(min_reclaim))),
        }
    }

    fn policy(thresholds: Vec<Threshold>) -> Policy {
        let pressure_transition_period = Duration::from_secs(300);
        Policy { thresholds, pressure_transition_period, ..MonitorConfig::default().policy }
    }

    /// Steps the clock: `(second, available)` in, the assessment of each step out.
    fn walk(policy: &Policy, steps: &[(u64, u64)]) -> Vec<Assessment> {
        let mut state = State::default();
        let step = |&(second, available): &(u64, u64)| {
            let now = Monotonic(second * SECOND);
            let value =
                SignalValue { signal: Signal::MemoryAvailable, available: Bytes(available), capacity: Bytes(CAPACITY) };
            let observation = Observation { signals: vec![value], at: now };
            let (next, assessment) = assess(policy, &state, &observation, now);
            state = next;
            assessment
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn equal_is_not_below() {
        let seen = walk(&policy(vec![threshold(100, 0, 0)]), &[(0, 100), (1, 99)]);
        assert!(seen[0].met.is_empty() && seen[0].conditions.is_empty());
        assert_eq!(seen[1].met.len(), 1);
        assert!(seen[1].met[0].is_hard());
    }

    #[test]
    fn soft_waits_for_its_grace_and_starts_anew_after_one_good_sample() {
        let policy = policy(vec![threshold(100, 30, 0)]);
        let seen = walk(&policy, &[(0, 50), (29, 50), (30, 50), (31, 150), (32, 50), (61, 50), (62, 50)]);
        let acted: Vec<bool> = seen.iter().map(|assessment| !assessment.met.is_empty()).collect();
        assert_eq!(acted, [false, false, true, false, false, false, true]);
        assert_eq!(
            seen[0].conditions,
            [NodeCondition::MemoryPressure],
            "the condition does not wait for the grace period"
        );
        assert_eq!(seen[1].next_change, Some(Duration::from_secs(1)));
    }

    #[test]
    fn minimum_reclaim_holds_a_threshold_until_it_is_reached() {
        let seen = walk(&policy(vec![threshold(100, 0, 50)]), &[(0, 120), (1, 99), (2, 149), (3, 150), (4, 120)]);
        let met: Vec<usize> = seen.iter().map(|assessment| assessment.met.len()).collect();
        assert_eq!(met, [0, 1, 1, 0, 0]);
    }

    #[test]
    fn a_condition_outlives_its_threshold_by_the_transition_period() {
        let seen = walk(&policy(vec![threshold(100, 0, 0)]), &[(0, 50), (299, 500), (300, 500)]);
        let conditions: Vec<usize> = seen.iter().map(|assessment| assessment.conditions.len()).collect();
        assert_eq!(conditions, [1, 1, 0]);
    }

    #[test]
    fn no_transition_period_reports_the_condition_while_it_lasts() {
        // The kubelet would never report it (quirk 6); an operator who wants no hysteresis still wants the condition.
        let mut policy = policy(vec![threshold(100, 0, 0)]);
        policy.pressure_transition_period = Duration::ZERO;
        let seen = walk(&policy, &[(0, 50), (1, 500)]);
        assert_eq!(seen[0].conditions.len(), 1);
        assert!(seen[1].conditions.is_empty());
    }

    #[test]
    fn hard_goes_before_soft() {
        let seen = walk(&policy(vec![threshold(200, 5, 0), threshold(100, 0, 0)]), &[(0, 50), (5, 50)]);
        assert_eq!(seen[1].met.iter().map(MetThreshold::is_hard).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn an_unobserved_signal_meets_nothing() {
        let observation = Observation { signals: Vec::new(), at: Monotonic(0) };
        let (_, assessment) =
            assess(&policy(vec![threshold(100, 0, 0)]), &State::default(), &observation, Monotonic(0));
        assert!(assessment.met.is_empty() && assessment.conditions.is_empty());
    }
}
