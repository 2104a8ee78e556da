use std::sync::Arc;

use super::*;
use crate::config::Ranking;
use crate::eviction::decider::{Answer, Decider, Measure, Next, Pace, Rules, Snapshot};
use crate::units::{Bytes, CgroupId, Signal};
use crate::workloads::{OtherUsage, Workload, WorkloadUsage, fixtures};

fn usage(name: &str, qos: QosClass, request: u64, working_set: u64) -> WorkloadUsage {
    fixtures::usage(Workload { qos, request: Bytes(request), ..fixtures::workload(name) }, Bytes(working_set))
}

/// Ranks for memory with the default ranking, `qos`.
fn rank(usages: Vec<WorkloadUsage>) -> Vec<Ranked<WorkloadUsage>> {
    let policy = Policy::default();
    Order::of(&policy, Resource::Memory).rank(usages)
}

/// Drives the decider over candidates with upper bounds. Returns `None` if the decider asks for the exact figures of all.
fn rank_first(
    at_most: Vec<WorkloadUsage>,
    mut measure: impl FnMut(CgroupId) -> Option<WorkloadUsage>,
) -> Option<Vec<Ranked<WorkloadUsage>>> {
    let policy = Policy::default();
    let rules = Rules { policy: &policy, pace: Pace::Kubelet };
    let snapshot = Snapshot { question: Some(Signal::MemoryAvailable), ..Snapshot::default() };
    let (mut decider, mut at_most, mut answer) = (Decider::default(), Some(at_most), Answer::Begin);
    loop {
        answer = match decider.step(rules, &snapshot, answer) {
            Next::Measure(Measure::Candidates { .. }) => Answer::Candidates(at_most.take()?),
            Next::Measure(Measure::Exact { place }) => {
                Answer::Exact(measure(decider.ranking()[place].candidate.workload.id))
            }
            _ => return Some(decider.take_ranking()),
        };
    }
}

fn order(usages: Vec<WorkloadUsage>) -> Vec<String> {
    rank(usages).into_iter().map(|ranked| ranked.candidate.workload.name.clone()).collect()
}

#[test]
fn class_request_distance_and_name_decide_in_turn() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let expected = [
        "besteffort-large",
        "besteffort-small",
        "besteffort-small-later-name",
        "burstable-far-above-request",
        "burstable-just-above-request",
        "burstable-below-request-but-large",
        "guaranteed-huge",
    ];
    let mut usages = vec![
        usage("guaranteed-huge", Guaranteed, 900, 900),
        usage("burstable-below-request-but-large", Burstable, 800, 700),
        usage("burstable-just-above-request", Burstable, 100, 101),
        usage("burstable-far-above-request", Burstable, 10, 50),
        usage("besteffort-small-later-name", BestEffort, 0, 5),
        usage("besteffort-small", BestEffort, 0, 5),
        usage("besteffort-large", BestEffort, 0, 6),
    ];
    assert_eq!(order(usages.clone()), expected);
    usages.reverse();
    assert_eq!(order(usages), expected, "the order of the input does not matter");
}

#[test]
fn a_workload_marked_avoid_ranks_last() {
    let mut avoided = usage("avoided", QosClass::BestEffort, 0, 1000);
    Arc::make_mut(&mut avoided.workload).preference = Preference::Avoid;
    assert_eq!(order(vec![avoided, usage("guaranteed", QosClass::Guaranteed, 10, 10)]), ["guaranteed", "avoided"]);
}

/// A user's workload with a place among the user's own.
fn own(name: &str, working_set: u64, user: u32, place: OwnPlace) -> WorkloadUsage {
    let mut usage = usage(name, QosClass::BestEffort, 0, working_set);
    usage.outlook.among_own = Some(AmongOwn { user, place });
    usage
}

#[test]
fn a_user_moves_the_choice_among_own_workloads_alone() {
    use OwnPlace::{Avoid, Omit, Ordinary, Serving};
    let system = || usage("system", QosClass::BestEffort, 0, 500);
    let hog = |place| own("hog", 900, 7, place);
    let others = || vec![system(), own("small", 10, 7, Ordinary), own("other-user", 700, 8, Ordinary)];
    let with = |mut all: Vec<WorkloadUsage>, one| {
        all.push(one);
        order(all)
    };
    assert_eq!(with(others(), hog(Ordinary)), ["hog", "other-user", "system", "small"]);
    for place in [Avoid, Serving, Omit] {
        assert_eq!(with(others(), hog(place)), ["small", "hog", "other-user", "system"], "{place:?}");
    }
    assert_eq!(order(vec![system(), hog(Omit)]), ["hog", "system"], "alone it keeps its place");
    let mixed = vec![
        own("omit", 900, 7, Omit),
        own("serving", 800, 7, Serving),
        own("avoid", 600, 7, Avoid),
        own("ordinary", 20, 7, Ordinary),
        own("ordinary-large", 30, 7, Ordinary),
        own("kept", 650, 8, Omit),
        system(),
    ];
    let expected = ["ordinary-large", "ordinary", "avoid", "serving", "omit", "kept", "system"];
    assert_eq!(order(mixed), expected);
}

#[test]
fn a_kept_workload_settles_behind_the_users_others() {
    let policy = Policy::default();
    let by_memory = Order::of(&policy, Resource::Memory);
    let mut ranked = by_memory.rank(vec![
        own("hog", 900, 7, OwnPlace::Serving),
        own("small", 10, 7, OwnPlace::Ordinary),
        usage("a", QosClass::BestEffort, 0, 500),
        usage("b", QosClass::BestEffort, 0, 100),
    ]);
    let names = |ranked: &[Ranked<WorkloadUsage>]| -> Vec<String> {
        ranked.iter().map(|it| it.candidate.workload.name.clone()).collect()
    };
    assert_eq!(names(&ranked), ["small", "hog", "a", "b"]);
    // Measured anew, the hog is smaller than another.
    ranked[1].candidate.working_set = Bytes(300);
    by_memory.settle_first(&mut ranked[1..]);
    assert_eq!(names(&ranked), ["small", "a", "hog", "b"]);
    by_memory.settle_first(&mut ranked);
    assert_eq!(names(&ranked), ["a", "small", "hog", "b"]);
}

#[test]
fn the_first_by_bounds_is_the_first_by_exact_figures() {
    // This generator yields the same cases on every run.
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    let (mut compared, mut measured) = (0, 0);
    for _ in 0..500 {
        let exact: Vec<WorkloadUsage> = (0..1 + random(12))
            .map(|number| {
                let mut usage = usage(
                    &number.to_string(),
                    if random(2) == 0 { QosClass::BestEffort } else { QosClass::Burstable },
                    random(50),
                    random(100),
                );
                Arc::make_mut(&mut usage.workload).id = CgroupId(number);
                usage
            })
            .collect();
        let bound = |usage: &WorkloadUsage, cache: u64| WorkloadUsage {
            working_set: usage.working_set.saturating_add(Bytes(cache)),
            exact: false,
            ..usage.clone()
        };
        let at_most = exact.iter().map(|usage| bound(usage, random(60))).collect();
        let look_up = |id: CgroupId| {
            measured += 1;
            exact.iter().find(|usage| usage.workload.id == id).cloned()
        };
        let Some(ranked) = rank_first(at_most, look_up) else { continue };
        assert_eq!(ranked.first(), rank(exact.clone()).first());
        compared += 1;
    }
    assert!(compared > 450, "{compared}");
    assert!(measured < 4 * compared, "{measured} reads for {compared} decisions");
}

#[test]
fn a_workload_that_no_longer_exists_is_left_out() {
    let gone = WorkloadUsage { exact: false, ..usage("gone", QosClass::BestEffort, 0, 9) };
    let ranked = rank_first(vec![gone], |_| None);
    assert_eq!(ranked, Some(Vec::new()));
}

/// kubernetes/kubernetes#53542 (1.9, so OpenShift 3.9) replaced the QoS class by the request and the priority; k8spatterns/examples#12 and
/// kubernetes/kubernetes#78561 are reports of people whom that surprised.
#[test]
fn openshift_3_ranks_by_class_up_to_3_7_and_by_request_and_priority_from_3_9() {
    use QosClass::{BestEffort, Burstable};
    let of = |name: &str, qos, request, used, priority| {
        let pod = serde_json::from_str(&format!(r#"{{"spec": {{"priority": {priority}}}}}"#)).unwrap();
        let workload = Workload { qos, request: Bytes(request), pod: Some(Arc::new(pod)), ..fixtures::workload(name) };
        fixtures::usage(workload, Bytes(used))
    };
    let usages = || {
        vec![
            of("besteffort-small", BestEffort, 0, 5, 100),
            of("burstable-far-above", Burstable, 10, 500, 0),
            of("burstable-above-high-priority", Burstable, 10, 900, 1000),
            of("burstable-within", Burstable, 900, 800, -5),
        ]
    };
    let order = |ranking, resource| {
        let policy = Policy { ranking, ..Policy::default() };
        let ranked = Order::of(&policy, resource).rank(usages());
        ranked.into_iter().map(|ranked| ranked.candidate.workload.name.clone()).collect::<Vec<_>>()
    };
    let by_class = ["besteffort-small", "burstable-above-high-priority", "burstable-far-above", "burstable-within"];
    let by_request = ["burstable-far-above", "besteffort-small", "burstable-above-high-priority", "burstable-within"];
    assert_eq!(order(Ranking::OpenShift3, Resource::Memory), by_class);
    assert_eq!(order(Ranking::OpenShift39, Resource::Memory), by_request);
    assert_eq!(order(Ranking::Kubernetes, Resource::Memory), by_request);
    // Without priorities, as before 3.11, the amount above the request decides among those above it.
    let keys = |resource| Ranking::OpenShift39.keys(resource).to_vec();
    for resource in [Resource::EphemeralStorage, Resource::Inodes, Resource::Pids] {
        assert_eq!(keys(resource), [RankingKey::Priority, RankingKey::Usage], "{resource:?}");
    }
}

#[test]
fn the_explanation_names_every_key() {
    let ranked = rank(vec![usage("hog.service", QosClass::Burstable, 1 << 20, 3 << 20)]);
    let text = ranked[0].explanation(Order::of(&Policy::default(), Resource::Memory));
    for part in ["hog.service uses 3.0 MiB", "Burstable", "exceeds its request", "2.0 MiB above it"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn the_resource_that_runs_out_decides_the_order() {
    let of = |name: &str, used: Option<i64>, request: Option<i64>| WorkloadUsage {
        other: Some(OtherUsage {
            resource: Resource::Inodes,
            used: used.map(Amount::from_units),
            request: request.map(Amount::from_units),
        }),
        ..usage(name, QosClass::BestEffort, 0, 1 << 30)
    };
    let policy = Policy::default();
    let usages = vec![
        of("not-measured", None, Some(0)),
        of("few", Some(10), Some(0)),
        of("many", Some(9000), Some(0)),
        of("none", Some(0), Some(0)),
    ];
    let ranked = Order::of(&policy, Resource::Inodes).rank(usages);
    let names: Vec<&str> = ranked.iter().map(|ranked| ranked.candidate.workload.name.as_str()).collect();
    assert_eq!(names, ["many", "few", "none", "not-measured"]);
    // Process ids cannot be requested.
    let pids = Order::of(&policy, Resource::Pids).rank(vec![of("few", Some(10), None), of("bomb", Some(4000), None)]);
    assert_eq!(pids[0].candidate.workload.name, "bomb");
}
