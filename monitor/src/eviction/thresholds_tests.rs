use super::*;
use crate::config::{MonitorConfig, Quirks, Semantics, ThresholdValue};
use crate::eviction::{Layout, arm};
use crate::units::Bytes;

const SECOND: i128 = 1_000_000_000;
const CAPACITY: i64 = 1000;

fn threshold(quantity: u64, grace_seconds: u64, min_reclaim: u64) -> Threshold {
    Threshold {
        signal: Signal::MemoryAvailable,
        value: ThresholdValue::bytes(Bytes(quantity)),
        grace_period: Duration::from_secs(grace_seconds),
        min_reclaim: (min_reclaim > 0).then_some(ThresholdValue::bytes(Bytes(min_reclaim))),
    }
}

fn policy(thresholds: Vec<Threshold>) -> Policy {
    let pressure_transition_period = Duration::from_secs(300);
    Policy { thresholds, pressure_transition_period, ..MonitorConfig::default().policy }
}

/// Returns the assessment of each step. A step is a second and the amount available.
fn walk(policy: &Policy, steps: &[(i128, i64)]) -> Vec<Assessment> {
    let mut state = State::default();
    let armed = arm(policy, Layout::Single);
    let step = |&(second, available): &(i128, i64)| {
        let now = Moment(second * SECOND);
        let value = SignalValue { signal: Signal::MemoryAvailable, available, capacity: CAPACITY, at: None };
        let observation = Observation { signals: vec![value] };
        let (next, assessment) = assess(policy, &armed, &state, &observation, now);
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
fn one_good_sample_restarts_the_kubelets_grace_period() {
    let mut policy = policy(vec![threshold(100, 30, 0)]);
    policy.quirks = Quirks::of(Semantics::Kubelet);
    let seen = walk(&policy, &[(0, 50), (29, 50), (30, 50), (31, 150), (32, 50), (61, 50), (62, 50)]);
    let acted: Vec<bool> = seen.iter().map(|assessment| !assessment.met.is_empty()).collect();
    assert_eq!(acted, [false, false, true, false, false, false, true]);
    assert_eq!(seen[0].conditions, [NodeCondition::MemoryPressure], "the condition does not wait for the grace period");
    assert_eq!(seen[1].next_change, Some(Duration::from_secs(1)));
}

#[test]
fn corrected_a_short_recovery_pauses_the_grace_period() {
    let policy = policy(vec![threshold(100, 30, 0)]);
    let acted = |steps: &[(i128, i64)]| -> Vec<bool> {
        walk(&policy, steps).iter().map(|assessment| !assessment.met.is_empty()).collect()
    };
    // The threshold is met for ten seconds, interrupted for four, and met for twenty more.
    let steps = [(0, 50), (10, 50), (12, 150), (14, 50), (33, 50), (34, 50)];
    assert_eq!(acted(&steps), [false, false, false, false, false, true]);
    // A single good sample among samples ten seconds apart, like the kubelet's, is a short recovery.
    let steps = [(0, 50), (10, 50), (20, 150), (30, 50), (40, 50), (50, 50)];
    assert_eq!(acted(&steps), [false, false, false, false, false, true]);
    // After a recovery of ten seconds the grace period starts anew.
    let steps = [(0, 50), (10, 50), (20, 150), (30, 150), (40, 50), (69, 50), (70, 50)];
    assert_eq!(acted(&steps), [false, false, false, false, false, false, true]);
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
fn a_zero_transition_period_still_reports_the_condition() {
    // The kubelet would never report the condition (quirk 6). An operator who wants no hysteresis still wants the condition.
    let mut policy = policy(vec![threshold(100, 0, 0)]);
    policy.pressure_transition_period = Duration::ZERO;
    let seen = walk(&policy, &[(0, 50), (1, 500)]);
    assert_eq!(seen[0].conditions.len(), 1);
    assert!(seen[1].conditions.is_empty());
}

#[test]
fn a_condition_may_wait_for_the_grace_period() {
    let mut policy = policy(vec![threshold(100, 30, 0)]);
    policy.quirks.set(Quirk::ConditionBeforeGrace, false);
    let seen = walk(&policy, &[(0, 50), (29, 50), (30, 50), (31, 150)]);
    let conditions: Vec<usize> = seen.iter().map(|assessment| assessment.conditions.len()).collect();
    assert_eq!(conditions, [0, 0, 1, 1]);
}

#[test]
fn hard_goes_before_soft() {
    let seen = walk(&policy(vec![threshold(200, 5, 0), threshold(100, 0, 0)]), &[(0, 50), (5, 50)]);
    assert_eq!(seen[1].to_act_on().into_iter().map(MetThreshold::is_hard).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn an_unobserved_signal_meets_no_threshold() {
    let observation = Observation::default();
    let policy = policy(vec![threshold(100, 0, 0)]);
    let armed = arm(&policy, Layout::Single);
    let (_, assessment) = assess(&policy, &armed, &State::default(), &observation, Moment(0));
    assert!(assessment.met.is_empty() && assessment.conditions.is_empty());
}

#[test]
fn a_threshold_that_stays_armed_keeps_its_time() {
    let (soft, other) = (threshold(100, 30, 0), threshold(50, 30, 0));
    let before = arm(&policy(vec![other.clone(), soft.clone()]), Layout::Single);
    let with = policy(vec![soft.clone()]);
    let after = arm(&with, Layout::Single);
    let value = SignalValue { signal: Signal::MemoryAvailable, available: 70, capacity: CAPACITY, at: None };
    let observation = Observation { signals: vec![value] };
    let (state, _) = assess(&policy(vec![other, soft]), &before, &State::default(), &observation, Moment(0));
    let state = state.rearmed(&before, &after);
    assert!(!state.is_first_pass());
    let (_, assessment) = assess(&with, &after, &state, &observation, Moment(30 * SECOND));
    assert_eq!(assessment.met.len(), 1, "the threshold has been met for thirty seconds");
    assert_eq!(assessment.conditions, [NodeCondition::MemoryPressure]);
}
