//! Properties of thresholds over time.

use std::time::Duration;

use node_pressure_monitor::config::{Policy, Quirk, Quirks, Semantics, Threshold, ThresholdValue};
use node_pressure_monitor::eviction::{Assessment, State, arm, assess, signals};
use node_pressure_monitor::units::{Amount, Moment};
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::check::forall;
use super::world::{self, Node};

const SECOND: i128 = 1_000_000_000;

/// Returns the assessment of each moment.
fn assessments(policy: &Policy, node: &Node) -> Vec<Assessment> {
    let armed = arm(policy, node.layout);
    let mut state = State::default();
    let at = |(seconds, summary)| (Moment(i128::from(seconds) * SECOND), signals::observe(&summary, policy.quirks));
    let moments = node.summaries().into_iter().map(at);
    moments
        .map(|(now, observation)| {
            let (next, assessment) = assess(policy, &armed, &state, &observation, now);
            state = next;
            assessment
        })
        .collect()
}

/// Generates a node over several moments, a policy, and one of its thresholds.
fn case() -> impl Strategy<Value = (Node, Policy, Index)> {
    (world::node(0, 10), world::policy(4), any::<Index>())
}

fn met(assessment: &Assessment) -> Vec<Threshold> {
    assessment.met.iter().map(|met| Threshold { grace_period: Duration::ZERO, ..met.threshold.clone() }).collect()
}

/// Replaces one threshold by one that asks for more, and compares: every threshold that was crossed still is, no fewer thresholds are
/// met, and every condition still holds.
fn never_less(change: impl Fn(&mut Threshold, &mut Threshold, Index) -> bool) {
    let changed = (case(), any::<Index>());
    forall(1200, 100, &changed, |((node, mut policy, which), how), seen| {
        let mut stricter = policy.clone();
        let which = which.index(stricter.thresholds.len());
        if !change(&mut policy.thresholds[which], &mut stricter.thresholds[which], how) {
            return Ok(());
        }
        let pairs = assessments(&policy, &node).into_iter().zip(assessments(&stricter, &node));
        let mut differs = false;
        for (before, after) in pairs {
            prop_assert_eq!(before.crossed.len(), after.crossed.len());
            let lost = before.crossed.iter().zip(&after.crossed).any(|(before, after)| *before && !*after);
            prop_assert!(!lost, "{:?} then {:?}", before.crossed, after.crossed);
            prop_assert!(met(&before).len() <= met(&after).len(), "{:?} then {:?}", before.met, after.met);
            prop_assert!(before.conditions.iter().all(|condition| after.conditions.contains(condition)));
            differs |= before.crossed != after.crossed || before.met.len() != after.met.len();
        }
        seen.when(differs);
        Ok(())
    });
}

/// Catches a comparison in the wrong direction, a percentage of something else than the capacity, and a minimum reclaim that forgets which
/// thresholds it holds.
#[test]
fn raising_a_threshold_never_unmeets_it() {
    never_less(|_, threshold, how| {
        let signal = threshold.signal;
        let higher = match &threshold.value {
            ThresholdValue::Quantity(quantity) => {
                let all = ["2Gi", "5Gi", "9Gi", "100Gi"].map(|text| world::value(signal, text));
                let is_higher = |value: &ThresholdValue| value.resolve(0, Quirks::ALL) > quantity.amount();
                all.into_iter().filter(is_higher).collect::<Vec<_>>()
            }
            ThresholdValue::Percentage(percentage) => {
                let is_higher = |percent: &f64| *percent > percentage.percent;
                let all = [12.5, 30.0, 60.0, 99.9].into_iter().filter(is_higher);
                all.map(|percent| world::value(signal, &format!("{percent}%"))).collect()
            }
        };
        if !higher.is_empty() {
            threshold.value = higher[how.index(higher.len())].clone();
        }
        !higher.is_empty()
    });
}

/// Catches a minimum reclaim that releases instead of holding, or whose percentage is of the threshold instead of the capacity.
#[test]
fn a_minimum_reclaim_only_ever_holds_longer() {
    never_less(|_, threshold, how| {
        let amounts = ["1Gi", "3000", "25%", "8Gi"];
        let reclaim = world::value(threshold.signal, amounts[how.index(amounts.len())]);
        threshold.min_reclaim.replace(reclaim).is_none()
    });
}

/// Catches a grace period counted from the wrong moment, and interruptions that affect only one of the two periods.
#[test]
fn a_shorter_grace_period_never_acts_later() {
    never_less(|longer, shorter, how| {
        longer.grace_period = Duration::from_secs([7, 12, 30, 300][how.index(4)]);
        shorter.grace_period = Duration::from_secs([1, 5][how.index(2)]);
        true
    });
}

/// Catches swapped signals, and thresholds that count without an observation.
#[test]
fn only_what_is_below_its_threshold_or_was_held_is_crossed() {
    forall(600, 100, &case(), |(node, policy, _), seen| {
        let armed = arm(&policy, node.layout);
        let observe = |(_, summary)| signals::observe(&summary, policy.quirks);
        let observations: Vec<_> = node.summaries().into_iter().map(observe).collect();
        let mut held = vec![false; armed.len()];
        for ((pass, observation), assessment) in observations.iter().enumerate().zip(assessments(&policy, &node)) {
            for (index, armed) in armed.iter().enumerate() {
                let Some(value) = observation.get(armed.threshold.signal) else {
                    prop_assert!(!assessment.crossed[index]);
                    continue;
                };
                let resolve = |value: &ThresholdValue, capacity| value.resolve(capacity, policy.quirks);
                let quantity = resolve(&armed.threshold.value, value.capacity);
                let reclaim = armed.threshold.min_reclaim.as_ref().map(|reclaim| resolve(reclaim, value.capacity));
                let available = Amount::from_units(value.available);
                let is_below =
                    available < quantity || held[index] && available < quantity + reclaim.unwrap_or_default();
                let counts = armed.counts(pass == 0) || held[index];
                prop_assert_eq!(assessment.crossed[index], is_below && counts, "{}", armed.threshold);
                seen.when(is_below && available >= quantity);
            }
            held = (0..armed.len()).map(|place| assessment.met.iter().any(|met| met.place == place)).collect();
        }
        Ok(())
    });
}

/// Catches conditions that flap within the transition period, and a period counted from the first observation instead of the last.
#[test]
fn a_longer_transition_period_only_ever_shows_more() {
    let periods = (select(&[0_u64, 1, 10][..]), select(&[11_u64, 60, 300][..]));
    forall(600, 100, &(case(), periods), |((node, policy, _), (short, long)), seen| {
        let with = |seconds| Policy { pressure_transition_period: Duration::from_secs(seconds), ..policy.clone() };
        let mut differs = false;
        for (short, long) in assessments(&with(short), &node).into_iter().zip(assessments(&with(long), &node)) {
            prop_assert!(short.conditions.iter().all(|condition| long.conditions.contains(condition)));
            prop_assert_eq!(&short.met, &long.met);
            differs |= short.conditions != long.conditions;
        }
        seen.when(differs);
        Ok(())
    });
}

/// Catches a quirk that is applied in the wrong direction: this one only ever forgets.
#[test]
fn forgiving_good_samples_only_ever_acts_sooner() {
    forall(1200, 30, &case(), |(node, policy, _), seen| {
        let with = |on| {
            let mut quirks = Quirks::of(Semantics::Kubelet);
            quirks.set(Quirk::GraceRestartsAtOnce, on);
            Policy { quirks, ..policy.clone() }
        };
        let mut differs = false;
        for (kubelet, mended) in assessments(&with(true), &node).into_iter().zip(assessments(&with(false), &node)) {
            prop_assert!(kubelet.met.len() <= mended.met.len());
            differs |= kubelet.met.len() < mended.met.len();
        }
        seen.when(differs);
        Ok(())
    });
}
