use super::*;
use crate::config::{Policy, Threshold, ThresholdValue};
use crate::eviction::SignalValue;
use crate::units::Signal;
use crate::workloads::{QosClass, Workload, WorkloadUsage, fixtures};

const MIB: u64 = 1 << 20;

fn mib(mib: u64) -> Bytes {
    Bytes(mib * MIB)
}

#[test]
fn missing_memory_includes_the_minimum_reclaim() {
    let met = |available_mib: i64, min_reclaim: Option<u64>| {
        let threshold = Threshold {
            min_reclaim: min_reclaim.map(|bytes| ThresholdValue::bytes(mib(bytes))),
            ..Policy::default_hard_threshold()
        };
        let value = SignalValue {
            signal: Signal::MemoryAvailable,
            available: available_mib * (1 << 20),
            capacity: 1 << 30,
            at: None,
        };
        let quantity = threshold.value.resolve(value.capacity, Policy::default().quirks);
        MetThreshold { place: 0, threshold, quantity, value, is_fresh: true }
    };
    for (available, min_reclaim, expected) in
        [(80, None, 20), (80, Some(50), 70), (120, Some(50), 30), (100, None, 0), (300, Some(50), 0), (-5, None, 105)]
    {
        assert_eq!(
            missing(&Policy::default(), &met(available, min_reclaim)),
            mib(expected),
            "{available} {min_reclaim:?}"
        );
    }
}

fn usage(name: &str, working_set: u64, request: u64) -> WorkloadUsage {
    let workload = Workload { qos: QosClass::Burstable, request: mib(request), ..fixtures::workload(name) };
    fixtures::usage(workload, mib(working_set))
}

#[test]
fn the_workload_furthest_above_its_request_is_chosen() {
    let name = |candidates: &[WorkloadUsage]| {
        let ranked: Vec<_> = candidates.iter().cloned().map(|candidate| Ranked { candidate }).collect();
        let WorkloadUsage { workload, working_set, .. } = &candidates[furthest_above_request(&ranked)?];
        Some((workload.name.clone(), working_set.saturating_sub(workload.request)))
    };
    let (large, small) = (usage("large", 500, 450), usage("small", 100, 0));
    assert_eq!(
        name(&[large.clone(), small]),
        Some(("small".to_owned(), mib(100))),
        "the largest usage does not decide"
    );
    assert_eq!(
        name(&[usage("b", 9, 0), usage("a", 9, 0)]),
        Some(("a".to_owned(), mib(9))),
        "the name decides between equals"
    );
    assert_eq!(name(&[usage("within", 10, 20), usage("just", 20, 20)]), None);
    assert_eq!(name(&[]), None);
}

#[test]
fn the_amount_to_ask_for_depends_on_the_semantics() {
    let holding = |above, active, inactive, swappable| Holding {
        above_request: mib(above),
        active_file: mib(active),
        inactive_file: mib(inactive),
        swappable: mib(swappable),
    };
    use Semantics::{Corrected, Kubelet};
    for (semantics, missing, holding, expected) in [
        // Reclaiming active file pages raises only the kubelet's figure of available memory.
        (Kubelet, 20, holding(200, 150, 0, 0), Ok(22)),
        (Corrected, 20, holding(200, 150, 0, 0), Err(Futile::NoSwap)),
        // Reclaim takes inactive file pages first, which raises neither figure.
        (Kubelet, 20, holding(200, 150, 30, 0), Ok(52)),
        (Kubelet, 20, holding(200, 0, 150, 0), Err(Futile::TooLittle)),
        // With swap, reclaiming anonymous memory raises both figures. File pages that reclaim takes besides do not raise MemAvailable.
        (Corrected, 20, holding(200, 0, 0, 100), Ok(22)),
        (Corrected, 20, holding(200, 5, 5, 100), Ok(32)),
        (Corrected, 20, holding(200, 500, 500, 100), Ok(42)),
        (Kubelet, 20, holding(200, 0, 0, 100), Ok(22)),
        (Kubelet, 20, holding(200, 10, 0, 10), Ok(22)),
        // Nothing is asked for within the request, nor for only a part of what is missing.
        (Kubelet, 20, holding(10, 150, 0, 0), Err(Futile::TooLittle)),
        (Corrected, 20, holding(200, 0, 0, 19), Err(Futile::TooLittle)),
    ] {
        assert_eq!(ask(semantics, mib(missing), &holding), expected.map(mib), "{semantics:?} {missing} {holding:?}");
    }
}

#[test]
fn an_attempt_ends_once_it_sufficed_or_cannot_help() {
    use Answer::{Done, Pending, Refused};
    for (answer, is_met, is_late, worth, expected) in [
        (Pending, true, false, true, None),
        (Pending, false, false, true, Some(ReclaimOutcome::Sufficed)),
        (Done, false, false, true, Some(ReclaimOutcome::Sufficed)),
        (Done, true, false, true, Some(ReclaimOutcome::Insufficient)),
        (Pending, true, true, true, Some(ReclaimOutcome::TimedOut)),
        (Pending, false, true, true, Some(ReclaimOutcome::Sufficed)),
        (Pending, true, false, false, Some(ReclaimOutcome::Insufficient)),
        (Refused, true, false, true, Some(ReclaimOutcome::Refused)),
        (Refused, false, true, true, Some(ReclaimOutcome::Refused)),
    ] {
        assert_eq!(outcome(answer, is_met, is_late, worth), expected, "{answer:?} {is_met} {is_late} {worth}");
    }
    assert!(is_worth_waiting(mib(90), mib(45)) && !is_worth_waiting(mib(90), mib(44)));
}

#[test]
fn reclaim_continues_while_it_has_an_effect() {
    for (outcome, answer, freed, expected) in [
        (ReclaimOutcome::Sufficed, Answer::Pending, 0, true),
        (ReclaimOutcome::Insufficient, Answer::Done, 1, true),
        (ReclaimOutcome::Insufficient, Answer::Done, 0, false),
        (ReclaimOutcome::Insufficient, Answer::Pending, 1, false),
        (ReclaimOutcome::TimedOut, Answer::Pending, 1, false),
        (ReclaimOutcome::Refused, Answer::Refused, 1, false),
    ] {
        assert_eq!(goes_on(outcome, answer, mib(freed)), expected, "{outcome:?} {answer:?} {freed}");
    }
}

#[test]
fn the_rest_is_ten_times_the_attempt() {
    let ms = Duration::from_millis;
    assert_eq!(rest(ms(1), ms(100)), ms(100));
    assert_eq!(rest(ms(150), ms(100)), ms(1500));
    assert_eq!(rest(Duration::MAX, ms(0)), Duration::MAX);
}
