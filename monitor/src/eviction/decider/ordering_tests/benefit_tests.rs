//! Checks which candidate is evicted, and which one is passed over.

use super::*;

#[test]
fn evictions_that_buy_little_end_with_a_report() {
    let mut scene = Scene::memory(50);
    scene.agent.limits.max_per_minute = 10;
    for (second, available) in [(0, 60), (3, 57)] {
        let done = scene.see(&[(MEMORY, available)]).at(second * 1_000).turn();
        assert_eq!(done, ["evict large for memory.available"], "{second} s");
    }
    let reported = ["protected leak", "exhausted"];
    let done = scene.see(&[(MEMORY, 54)]).at(6_000).turn();
    assert_eq!(done, reported, "two evictions bought three seconds each");
    scene.growth = |name| if name == "small" { 50 } else { 0 };
    assert_eq!(
        scene.see(&[(MEMORY, 53)]).at(7_000).turn(),
        ["evict small for memory.available"],
        "a leaker is evicted"
    );
    scene.growth = |_| 0;
    assert_eq!(scene.see(&[(MEMORY, 51)]).at(9_000).turn(), reported);
    scene.see(&[(MEMORY, 24)]);
    assert_eq!(scene.at(9_500).turn(), ["evict large for memory.available"], "below a quarter of the threshold");
    let again = scene.see(&[(MEMORY, 23)]).at(10_000).turn();
    assert_eq!(again, ["evict large for memory.available"], "no rule of effect holds there");
    scene.see(&[(MEMORY, 500)]);
    scene.at(11_000).turn();
    scene.see(&[(MEMORY, 50)]);
    assert_eq!(scene.at(312_000).turn(), ["evict large for memory.available"], "another shortage");
}

#[test]
fn a_protected_workload_is_named_for_a_part_of_the_fall() {
    // It falls by 15 a second.
    for (growth, named) in [(1, None), (2, Some(CgroupId(9)))] {
        let mut scene = Scene::memory(95);
        for (second, available) in [(0, 95), (2, 65)] {
            let done = scene.see(&[(MEMORY, available)]).at(second * 1_000).turn();
            assert_eq!(done, ["evict large for memory.available"], "{second} s");
        }
        scene.snapshot.protected_growth = Some((CgroupId(9), growth));
        assert_eq!(scene.see(&[(MEMORY, 35)]).at(4_000).turn(), ["protected leak", "exhausted"]);
        assert_eq!(scene.decider.protected_leak().map(|leak| leak.id), Some(named), "{growth}");
    }
}

#[test]
fn the_pick_for_memory_says_nothing_of_other_signals() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0), threshold(MEMORY, 100, 0)], &[(PIDS, 500), (MEMORY, 50)]);
    scene.agent.limits.max_per_minute = 10;
    for (second, available) in [(0, 60), (3, 57)] {
        scene.see(&[(PIDS, 500), (MEMORY, available)]).at(second * 1_000).turn();
    }
    let done = scene.see(&[(PIDS, 500), (MEMORY, 54)]).at(6_000).turn();
    assert_eq!(done, ["protected leak", "exhausted"], "only leakers may be evicted for memory");
    scene.attempt = |_| Attempt::Failed;
    let done = scene.see(&[(PIDS, 50), (MEMORY, 500)]).at(7_000).turn();
    assert_eq!(done, ["evict large for pid.available", "evict small for pid.available", "exhausted"]);
    assert_eq!(scene.decider.worth_at(0), None);
}

#[test]
fn dwarfs_are_passed_over_for_a_leaker() {
    let mut scene = Scene::memory(50);
    let dwarf = |name| (name, QosClass::BestEffort, 3);
    scene.candidates = vec![dwarf("a"), dwarf("b"), dwarf("c"), ("leaker", QosClass::Burstable, 700)];
    scene.growth = |name| if name == "leaker" { 80 } else { 0 };
    scene.see(&[(MEMORY, 130)]).at(0).turn();
    scene.see(&[(MEMORY, 50)]);
    assert_eq!(scene.at(1_000).turn(), ["evict leaker for memory.available"]);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    let mut kubelet = Scene { decider: Decider::default(), ..scene };
    assert_eq!(kubelet.at(1_000).turn(), ["evict a for memory.available"], "a kubelet evicts by rank alone");
}

#[test]
fn a_service_is_evicted_only_if_it_is_what_uses_the_resource_up() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0)], &[(PIDS, 50)]);
    scene.is_service = |name| name == "large";
    assert_eq!(scene.at(0).turn(), ["evict large for pid.available"], "it has most of the processes");
    scene = Scene {
        decider: Decider::default(),
        candidates: vec![
            ("large", QosClass::BestEffort, 400),
            ("small", QosClass::BestEffort, 399),
            ("pod", QosClass::BestEffort, 300),
        ],
        ..scene
    };
    assert_eq!(scene.at(0).turn(), ["evict small for pid.available"]);
    let mut kubelet = Scene::memory(50);
    kubelet.is_service = |name| name == "large";
    kubelet.growth = |_| 90;
    kubelet.policy.semantics = crate::config::Semantics::Kubelet;
    assert_eq!(kubelet.at(0).turn(), ["evict small for memory.available"], "no leaker is known");
}

#[test]
fn critical_and_failed_candidates_are_passed_over() {
    let mut scene = Scene::memory(50);
    scene.standing = |name| Standing { is_critical: name == "large", ..Standing::default() };
    assert_eq!(scene.at(0).turn(), ["evict small for memory.available"]);
    let mut scene = Scene::memory(50);
    scene.attempt = |_| Attempt::Failed;
    let all = ["evict large for memory.available", "evict small for memory.available", "exhausted"];
    assert_eq!(scene.at(0).turn(), all);
    assert!(scene.at(249).turn().is_empty(), "candidates are not ranked again at once");
    assert_eq!(scene.at(250).turn(), ["exhausted"], "both candidates are excluded");
    assert_eq!(scene.at(30_000).turn(), all);
}

#[test]
fn a_failed_candidate_still_counts_for_benefit() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0)], &[(PIDS, 50)]);
    scene.candidates = vec![("small", QosClass::BestEffort, 5), ("large", QosClass::BestEffort, 400)];
    scene.attempt = |_| Attempt::Failed;
    assert_eq!(scene.at(0).turn(), ["evict large for pid.available", "exhausted"]);
}

#[test]
fn refaults_evict_only_the_workload_that_causes_them() {
    for (correction, largest, expected) in [
        (60, None, "refaults only"),
        (60, Some((2, 29)), "refaults only"),
        (60, Some((9, 60)), "refaults only"),
        (60, Some((1, 30)), "evict small for memory.available"),
        (40, Some((1, 40)), "evict large for memory.available"),
    ] {
        for (mode, would) in [(Mode::Enforce, ""), (Mode::Observe, "would ")] {
            let mut scene = Scene::memory(50);
            scene.agent.mode = mode;
            let largest = largest.map(|(id, bytes)| (CgroupId(id), Bytes(bytes)));
            scene.snapshot.refaults = Refaults { correction: Bytes(correction), largest };
            let expected =
                if expected.starts_with("evict") { format!("{would}{expected}") } else { expected.to_owned() };
            assert_eq!(scene.at(0).turn(), [expected], "{correction} {largest:?} {mode:?}");
        }
    }
    // The threshold on memory does not delay another one.
    let mut scene = Scene::with(vec![threshold(MEMORY, 100, 0), threshold(PIDS, 100, 0)], &[(MEMORY, 50), (PIDS, 50)]);
    scene.snapshot.refaults = Refaults { correction: Bytes(60), largest: None };
    assert!(scene.at(0).turn().iter().any(|step| step.contains("evict large for pid.available")));
}

#[test]
fn the_note_names_the_largest_candidate_and_why_it_stays() {
    let critical: fn(&str) -> Standing = |_| Standing { is_critical: true, ..Standing::default() };
    let with = |signal, change: &dyn Fn(&mut Scene)| {
        let mut scene = Scene::with(vec![threshold(signal, 100, 0)], &[(signal, 50)]);
        change(&mut scene);
        assert!(scene.at(0).turn().contains(&"exhausted".to_owned()));
        scene.stays.map(|stays| (stays.id, stays.why))
    };
    let of_large = |why| Some((CgroupId(2), why));
    for (name, signal, change, expected) in [
        (
            "critical",
            MEMORY,
            &(|scene: &mut Scene| scene.standing = critical) as &dyn Fn(&mut Scene),
            PassedOver::Exempt,
        ),
        ("failed", MEMORY, &|scene: &mut Scene| scene.attempt = |_| Attempt::Failed, PassedOver::Tried),
        ("services", MEMORY, &|scene: &mut Scene| scene.is_service = |_| true, PassedOver::NotALeaker),
        ("daemons", PIDS, &|scene: &mut Scene| scene.is_daemon = |_| true, PassedOver::Daemon),
    ] {
        assert_eq!(with(signal, change), of_large(expected), "{name}");
    }
    assert_eq!(with(MEMORY, &|scene| scene.candidates.clear()), None);
}
