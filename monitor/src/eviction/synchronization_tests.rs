use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::config::{Quirks, Semantics, ThresholdValue};
use crate::eviction::conditions::reclaim_message;
use crate::eviction::fixtures::{kubelet, memory, node_memory, pod, pod_statistics, requesting, summary};
use crate::units::{Bytes, Signal};

const SECOND: i128 = 1_000_000_000;

/// One step of a trace: the second, the node's statistics, and those after garbage collection if it freed anything.
type Step = (i128, Value, Option<Value>);

/// Steps through the trace and returns what `look` extracts from each decision.
fn walk<T>(
    policy: &Policy,
    layout: Layout,
    pods: &[Pod],
    usages: &[Value],
    steps: Vec<Step>,
    look: impl Fn(&Synchronized<'_>) -> T,
) -> Vec<T> {
    let mut decider = Decider::default();
    let step = |(second, node, after): Step| {
        let before = summary(node, usages);
        let after = after.map(|node| summary(node, &[]));
        let input =
            Input { now: Moment(second * SECOND), layout, summary: &before, after_collection: after.as_ref(), pods };
        look(&synchronize(&mut decider, policy, &input))
    };
    steps.into_iter().map(step).collect()
}

fn victim(decision: &Synchronized<'_>) -> String {
    decision.eviction.as_ref().map(|eviction| eviction.pod.metadata.name.clone()).unwrap_or_default()
}

/// Returns the conditions, the victim and its grace period.
fn look(decision: &Synchronized<'_>) -> String {
    let conditions: Vec<&str> = decision.assessment.conditions.iter().map(|it| it.as_str()).collect();
    let grace = decision.eviction.as_ref().map(|eviction| format!(" in {} s", eviction.grace_period_seconds));
    format!("{}: {}{}", conditions.join(" "), victim(decision), grace.unwrap_or_default())
}

fn two_pods() -> ([Pod; 2], [Value; 2]) {
    let pods = [requesting("small", "memory", "0", 0), requesting("large", "memory", "0", 0)];
    (pods, [memory("small", 10), memory("large", 20)])
}

fn measured(second: i128, available: u64) -> Step {
    (second, node_memory(available), None)
}

#[test]
fn soft_grace_and_transition_period_are_observed() {
    let mut policy = kubelet(&[(Signal::MemoryAvailable, "100", 30)]);
    policy.max_pod_grace_period = 60;
    policy.pressure_transition_period = Duration::from_secs(300);
    let (mut pods, usages) = two_pods();
    pods[1].spec.termination_grace_period_seconds = Some(45);
    let steps = vec![
        measured(0, 101),
        measured(10, 50),
        measured(39, 50),
        measured(40, 50),
        measured(50, 150),
        measured(349, 150),
        measured(350, 150),
    ];
    let seen = walk(&policy, Layout::Single, &pods, &usages, steps, look);
    let expected =
        [": ", "MemoryPressure: ", "MemoryPressure: ", "MemoryPressure: large in 45 s", "MemoryPressure: ", ": ", ": "];
    // The condition was last raised at 40 s, so it ends at 340 s.
    assert_eq!(seen, expected);
}

#[test]
fn minimum_reclaim_holds_a_threshold_acted_on() {
    let mut policy = kubelet(&[(Signal::MemoryAvailable, "100", 0)]);
    policy.thresholds[0].min_reclaim = Some(ThresholdValue::bytes(Bytes(50)));
    policy.pressure_transition_period = Duration::from_secs(10);
    let (pods, usages) = two_pods();
    let steps = vec![measured(0, 149), measured(10, 99), measured(20, 149), measured(30, 150), measured(40, 149)];
    let expected = [": ", "MemoryPressure: large in 1 s", "MemoryPressure: large in 1 s", ": ", ": "];
    assert_eq!(walk(&policy, Layout::Single, &pods, &usages, steps, look), expected);
}

#[test]
fn stale_statistics_hold_the_condition_and_evict_no_pod() {
    let policy = kubelet(&[(Signal::MemoryAvailable, "100", 0)]);
    let (pods, usages) = two_pods();
    let at = |second: i128, time: &str| {
        let mut node = node_memory(50);
        node["memory"]["time"] = json!(format!("2026-01-01T00:00:{time}Z"));
        (second, node, None)
    };
    // Statistics are compared with those of the previous pass, not with the newest so far. Statistics without a time are fresh.
    let mut steps = vec![at(0, "10"), at(10, "10"), at(20, "05"), at(30, "06"), measured(40, 50), at(50, "01")];
    steps.push((60, json!({}), None));
    steps.push(at(70, "01"));
    let expected = ["large", "", "", "large", "large", "large", "", "large"];
    assert_eq!(walk(&policy, Layout::Single, &pods, &usages, steps.clone(), victim), expected);
    let conditions = walk(&policy, Layout::Single, &pods, &usages, steps, |it| it.assessment.conditions.len());
    assert_eq!(conditions, [1; 8]);
}

#[test]
fn critical_pods_are_ranked_and_passed_over() {
    let policy = kubelet(&[(Signal::MemoryAvailable, "100", 0)]);
    let mut pods = [requesting("critical", "memory", "0", 2_000_000_000), requesting("ordinary", "memory", "100", 0)];
    let usages = [memory("critical", 90), memory("ordinary", 10)];
    let ranking = |decision: &Synchronized<'_>| -> Vec<String> {
        decision.ranking.iter().map(|ranked| ranked.candidate.pod.full_name()).collect()
    };
    let event = |decision: &Synchronized<'_>| decision.node_event.map(reclaim_message);
    let see = |policy: &Policy, pods: &[Pod]| {
        let look = |decision: &Synchronized<'_>| (ranking(decision), victim(decision), event(decision));
        walk(policy, Layout::Single, pods, &usages, vec![measured(0, 50)], look).remove(0)
    };
    let names = vec!["ns/critical".to_owned(), "ns/ordinary".to_owned()];
    let reclaim = Some("Attempting to reclaim memory".to_owned());
    assert_eq!(see(&policy, &pods), (names.clone(), "ordinary".to_owned(), reclaim.clone()));
    // No pod can be evicted. Only the kubelet sends the event nevertheless.
    pods[1].spec.priority = Some(2_000_001_000);
    assert_eq!(see(&policy, &pods), (names.clone(), String::new(), reclaim));
    let mut mended = policy;
    mended.quirks.set(Quirk::EventWithoutCandidate, false);
    assert_eq!(see(&mended, &pods), (names, String::new(), None));
}

fn disk(node_available: u64, container_available: u64) -> Value {
    let fs = |available: u64| json!({"availableBytes": available, "capacityBytes": 1000});
    json!({"fs": fs(node_available), "runtime": {"imageFs": fs(900), "containerFs": fs(container_available)}})
}

fn disk_pods() -> ([Pod; 2], [Value; 2]) {
    let used =
        |name, bytes: u64| pod_statistics(name, json!({"containers": [{"name": "c", "rootfs": {"usedBytes": bytes}}]}));
    (two_pods().0, [used("small", 1), used("large", 2)])
}

/// Returns the victim, the collectors that ran first, and whether they sufficed.
fn look_at_disk(decision: &Synchronized<'_>) -> (String, Vec<&'static str>, bool) {
    let collectors = decision.garbage_collection.iter().map(|collector| collector.as_str()).collect();
    if decision.collection_sufficed {
        assert!(decision.ranking.is_empty());
    }
    (victim(decision), collectors, decision.collection_sufficed)
}

#[test]
fn no_pod_is_evicted_when_garbage_collection_suffices() {
    let mut policy = kubelet(&[(Signal::NodeFsAvailable, "100", 0)]);
    policy.thresholds[0].min_reclaim = Some(ThresholdValue::bytes(Bytes(50)));
    let (pods, usages) = disk_pods();
    let both = vec!["containers", "images"];
    for (after, victim, sufficed) in [
        (Some(disk(150, 900)), "", true),
        (Some(disk(149, 900)), "large", false),
        (Some(json!({})), "", true),
        (None, "large", false),
    ] {
        let steps = vec![(0, disk(50, 900), after)];
        let seen = walk(&policy, Layout::Single, &pods, &usages, steps, look_at_disk);
        assert_eq!(seen, [(victim.to_owned(), both.clone(), sufficed)]);
    }
    // If images have a filesystem of their own, no garbage frees nodefs, so garbage collection cannot suffice.
    let steps = vec![(0, disk(50, 900), Some(disk(900, 900)))];
    let seen = walk(&policy, Layout::DedicatedImageFs, &pods, &usages, steps, look_at_disk);
    assert_eq!(seen, [("large".to_owned(), vec![], false)]);
}

#[test]
fn for_the_kubelet_collection_must_clear_every_threshold() {
    // Memory is low, but its threshold may not be acted on yet.
    let mut policy = kubelet(&[(Signal::NodeFsAvailable, "100", 0), (Signal::MemoryAvailable, "100", 3600)]);
    let (pods, usages) = disk_pods();
    let low_memory = |mut node: Value| {
        node["memory"] = node_memory(50)["memory"].clone();
        node
    };
    for (quirk, expected) in [(true, "large"), (false, "")] {
        policy.quirks.set(Quirk::EveryThresholdAfterGarbageCollection, quirk);
        let steps = vec![(0, low_memory(disk(50, 900)), Some(low_memory(disk(900, 900))))];
        assert_eq!(walk(&policy, Layout::Single, &pods, &usages, steps, victim), [expected]);
    }
}

#[test]
fn a_containerfs_copy_counts_from_the_second_pass() {
    let policy = kubelet(&[(Signal::NodeFsAvailable, "100", 0)]);
    let (pods, usages) = disk_pods();
    // Only containerfs is low.
    let steps = vec![(0, disk(900, 50), None), (10, disk(900, 50), None)];
    assert_eq!(walk(&policy, Layout::Single, &pods, &usages, steps.clone(), victim), ["", "large"]);
    // Garbage collection frees enough of nodefs, but containerfs stays low.
    let mended = vec![(0, disk(50, 50), Some(disk(900, 50)))];
    assert_eq!(walk(&policy, Layout::Single, &pods, &usages, mended, victim), ["large"]);
    let corrected = Policy { quirks: Quirks::of(Semantics::Corrected), ..policy };
    assert_eq!(walk(&corrected, Layout::Single, &pods, &usages, steps, victim), ["large", "large"]);
}

#[test]
fn a_limit_of_local_storage_comes_first() {
    let policy = kubelet(&[(Signal::MemoryAvailable, "100", 0)]);
    let (mut pods, usages) = two_pods();
    pods[0] = pod("small", json!({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1"}}]}));
    let mut full = usages.clone();
    full[0]["volume"] = json!([{"name": "v", "usedBytes": 2}]);
    let look = |decision: &Synchronized<'_>| {
        let local: Vec<&str> = decision.local_storage.iter().map(|it| it.pod.metadata.name.as_str()).collect();
        let quiet = decision.acted_on.is_none() && decision.ranking.is_empty() && decision.node_event.is_none();
        (local.join(" "), victim(decision), decision.assessment.conditions.len(), quiet)
    };
    let steps = vec![measured(0, 50)];
    let seen = walk(&policy, Layout::Single, &pods, &full, steps.clone(), look);
    assert_eq!(seen, [("small".to_owned(), String::new(), 1, true)]);
    let seen = walk(&policy, Layout::Single, &pods, &usages, steps, look);
    assert_eq!(seen, [(String::new(), "large".to_owned(), 1, false)]);
}

#[test]
fn memory_before_disk_and_hard_before_soft() {
    let mut policy = kubelet(&[
        (Signal::NodeFsAvailable, "100", 0),
        (Signal::MemoryAvailable, "300", 10),
        (Signal::MemoryAvailable, "100", 0),
    ]);
    policy.max_pod_grace_period = 30;
    let (pods, usages) = two_pods();
    let low = |second, available| {
        let mut node = node_memory(available);
        node["fs"] = disk(50, 900)["fs"].clone();
        (second, node, None)
    };
    let look = |decision: &Synchronized<'_>| {
        let eviction = decision.eviction.as_ref().unwrap();
        let threshold = decision.acted_on.as_ref().unwrap().threshold.to_string();
        assert!(eviction.has_disruption_target);
        (threshold, eviction.cause.as_str(), eviction.grace_period_seconds)
    };
    let seen = walk(&policy, Layout::Single, &pods, &usages, vec![low(0, 200), low(10, 200), low(20, 50)], look);
    let expected = [
        ("nodefs.available<100", "nodefs.available", 1),
        ("memory.available<300", "memory.available", 30),
        ("memory.available<100", "memory.available", 1),
    ];
    assert_eq!(seen, expected.map(|(threshold, cause, grace)| (threshold.to_owned(), cause, grace)));
}

#[test]
fn without_thresholds_no_pod_is_evicted() {
    let mut policy = kubelet(&[]);
    policy.local_storage_isolation = false;
    let (pods, usages) = two_pods();
    let seen = walk(&policy, Layout::Single, &pods, &usages, vec![measured(0, 0)], |decision| {
        Synchronized { observation: Observation::default(), ..decision.clone() } == Synchronized::default()
    });
    assert_eq!(seen, [true]);
}

#[test]
fn without_pods_there_is_no_victim() {
    let policy = kubelet(&[(Signal::MemoryAvailable, "100", 0)]);
    let seen = walk(&policy, Layout::Single, &[], &[], vec![measured(0, 50)], |decision| {
        (
            decision.acted_on.is_some(),
            decision.ranking.len(),
            decision.eviction.is_none(),
            decision.node_event.is_some(),
        )
    });
    assert_eq!(seen, [(true, 0, true, true)]);
}
