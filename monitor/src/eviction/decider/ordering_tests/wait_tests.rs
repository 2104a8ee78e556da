//! Checks what an eviction waits for, how many evictions there are in a time, and by which route.

use super::*;

#[test]
fn garbage_is_collected_before_an_eviction() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    scene.runtime = RuntimeFacts::Up;
    assert_eq!(scene.at(0).turn(), ["collect"]);
    assert!(scene.at(1_000).turn().is_empty(), "the collection is under way");
    scene.snapshot.collected = Some(CollectionEnd::Exhausted);
    assert_eq!(scene.at(2_000).turn(), ["evict large for nodefs.available"], "nothing was left to collect");
    assert!(scene.at(3_000).turn().is_empty(), "the cool-down of disks is not over");
}

#[test]
fn disks_are_measured_anew_before_an_eviction() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    scene.are_disks_measured = false;
    for (at, expected) in [(0, 0), (1_000, 0), (4_999, 0), (5_000, 1)] {
        assert_eq!(scene.at(at).turn().len(), expected, "at {at} ms");
    }
}

#[test]
fn an_eviction_waits_for_expected_space_of_evicted_pods() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 60)]);
    scene.snapshot.expected = vec![(DISK, Amount::from_units(50))];
    assert_eq!(scene.at(0).turn(), ["expected"]);
    scene.see(&[(DISK, 29)]);
    assert_eq!(scene.at(100).turn(), ["evict large for nodefs.available"], "less than half of the space is left");
}

#[test]
fn what_was_available_in_an_earlier_shortage_is_forgotten() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 90)]);
    scene.snapshot.expected = vec![(DISK, Amount::from_units(50))];
    assert_eq!(scene.at(0).turn(), ["expected"]);
    scene.see(&[(DISK, 500)]).at(30_000).turn();
    scene.see(&[(DISK, 60)]).at(60_000);
    assert_eq!(scene.turn(), ["expected"]);
    scene.see(&[(DISK, 31)]).at(61_000);
    scene.snapshot.expected = vec![(DISK, Amount::from_units(80))];
    assert_eq!(scene.turn(), ["expected"], "half of what there was at first in this shortage is left");
}

#[test]
fn a_pod_that_ends_while_candidates_are_ranked_is_waited_for() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 60)]);
    scene.second_expected = vec![(DISK, Amount::from_units(50))];
    assert_eq!(scene.at(0).turn(), ["expected"]);
    scene.second_expected = vec![(DISK, Amount::from_units(30))];
    assert_eq!(scene.at(100).turn(), ["evict large for nodefs.available"], "it does not suffice");
}

#[test]
fn a_disk_below_the_kubelets_threshold_is_left_to_it() {
    let scene = |available| {
        let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, available)]);
        scene.snapshot.is_kubelets_turn = true;
        scene
    };
    let left = ["left to the kubelet"];
    let evicts = ["evict large for nodefs.available"];
    for (available, seconds, late, why) in [
        (60, vec![0, 9, 18, 27, 36, 45, 54, 59], 60, "the kubelet is late"),
        (60, vec![0, 15, 30, 45], 60, "rare looks do not begin the minute anew"),
        (49, vec![0, 9, 18, 29], 30, "less than half of the threshold is left"),
    ] {
        let mut scene = scene(available);
        for second in seconds {
            assert_eq!(scene.at(second * 1_000).turn(), left, "{second} s: {why}");
        }
        assert_eq!(scene.at(late * 1_000).turn(), evicts, "{why}");
    }
    let mut freed = scene(60);
    freed.at(0).turn();
    freed.at(9_999).turn();
    freed.snapshot.is_kubelets_turn = false;
    freed.see(&[(DISK, 90)]);
    assert_eq!(freed.at(19_998).turn(), left, "more of the victim's space may come");
    assert_eq!(freed.at(19_999).turn(), evicts);
    let mut removing = scene(60);
    removing.snapshot.under_way = vec![UnderWay { id: CgroupId(9), stage: EvictionStage::Removing, is_urgent: true }];
    assert!(removing.at(0).turn().is_empty(), "an eviction of the agent's own is under way");
    let mut later = scene(60);
    later.at(0).turn();
    later.snapshot.is_kubelets_turn = false;
    later.see(&[(DISK, 500)]).at(20_000).turn();
    later.snapshot.is_kubelets_turn = true;
    later.see(&[(DISK, 60)]);
    assert_eq!(later.at(80_000).turn(), left, "it is a new shortage");
    assert_eq!(later.at(160_000).turn(), left, "nothing was seen for a minute");
    let mut observing = scene(60);
    observing.agent.mode = Mode::Observe;
    assert_eq!(observing.at(0).turn(), ["would evict large for nodefs.available"]);
    let mut memory = Scene::memory(50);
    memory.snapshot.is_kubelets_turn = true;
    assert_eq!(memory.at(0).turn(), ["evict large for memory.available"]);
}

#[test]
fn a_disk_that_falls_to_the_kubelets_threshold_meanwhile_is_left_to_it() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 90)]);
    scene.is_kubelets_turn_at_second = true;
    assert_eq!(scene.at(0).turn(), ["left to the kubelet"]);
}

#[test]
fn a_cool_down_follows_an_effect_not_an_attempt() {
    let mut scene = Scene::memory(50);
    assert_eq!(scene.at(0).turn(), ["evict large for memory.available"]);
    scene.snapshot.dying = vec![dying(2)];
    assert!(scene.at(100).turn().is_empty(), "the memory of the victim is being freed");
    scene.snapshot.dying.clear();
    scene.snapshot.ended = vec![gone(2, MEMORY)];
    assert!(scene.at(200).turn().is_empty(), "the cool-down begins when the victim has ended");
    assert!(scene.at(2_199).turn().is_empty());
    assert_eq!(scene.at(2_200).turn().len(), 1);
    let mut failed = Scene::memory(50);
    failed.attempt = |name| if name == "large" { Attempt::Failed } else { Attempt::Started };
    assert_eq!(failed.at(0).turn().len(), 2, "after a failed attempt the next candidate is tried");
}

#[test]
fn the_budget_of_a_minute_bounds_evictions() {
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0), threshold(MEMORY, 100, 0)], &[(PIDS, 50), (MEMORY, 500)]);
    for second in [0, 3, 6] {
        assert_eq!(scene.at(second * 1_000).turn().len(), 1, "{second} s");
        scene.snapshot.ended = vec![gone(2, PIDS)];
        assert!(scene.at(second * 1_000 + 500).turn().is_empty(), "the cool-down follows the effect");
    }
    assert_eq!(scene.at(9_000).turn(), ["budget spent"]);
    scene.see(&[(PIDS, 50), (MEMORY, 50)]);
    assert_eq!(scene.at(9_001).turn(), ["evict large for memory.available"], "memory has a budget of its own");
    scene.see(&[(PIDS, 50), (MEMORY, 500)]);
    // The first eviction began at 0 s.
    assert_eq!(scene.at(59_999).turn(), ["budget spent"]);
    assert_eq!(scene.at(60_000).turn(), ["evict large for pid.available"]);
}

#[test]
fn a_hard_threshold_does_not_wait_behind_a_grace_period() {
    for (stage, is_urgent, signal, hard, soft) in [
        (EvictionStage::Leaving, false, MEMORY, 1, 0),
        (EvictionStage::Dying, false, MEMORY, 0, 0),
        (EvictionStage::Removing, true, MEMORY, 1, 0),
        (EvictionStage::Leaving, true, DISK, 0, 0),
        (EvictionStage::Leaving, false, DISK, 1, 0),
        (EvictionStage::Removing, false, DISK, 0, 0),
    ] {
        for (grace, expected) in [(0, hard), (1, soft)] {
            let mut scene = Scene::with(vec![threshold(signal, 100, grace)], &[(signal, 50)]);
            scene.at(0).turn();
            let mut scene = Scene { decider: scene.decider, ..Scene::with(scene.policy.thresholds, &[(signal, 50)]) };
            scene.decider.reconsider();
            scene.snapshot.under_way = vec![UnderWay { id: CgroupId(9), stage, is_urgent }];
            if stage == EvictionStage::Dying {
                scene.snapshot.dying = vec![DyingMemory { killed: Monotonic(19_900_000_000), ..dying(9) }];
            }
            let done = scene.at(20_000).turn();
            assert_eq!(done.len(), expected, "{stage:?} {is_urgent} {signal} {grace}: {done:?}");
        }
    }
}

#[test]
fn a_disk_that_fills_up_does_not_wait_for_a_removal() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 60)]);
    scene.snapshot.under_way = vec![UnderWay { id: CgroupId(9), stage: EvictionStage::Removing, is_urgent: true }];
    assert!(scene.at(0).turn().is_empty());
    scene.see(&[(DISK, 30)]);
    assert!(scene.at(5_000).turn().is_empty());
    scene.see(&[(DISK, 29)]);
    assert_eq!(scene.at(5_100).turn(), ["evict large for nodefs.available"]);
}

#[test]
fn a_figure_that_is_not_new_does_not_end_a_shortage() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[]);
    scene.snapshot.under_way = vec![UnderWay { id: CgroupId(9), stage: EvictionStage::Removing, is_urgent: true }];
    for (available, measured, at) in [(60, 0, 0), (60, 0, 100), (40, 500, 500), (40, 500, 600)] {
        scene.see(&[(DISK, available)]).snapshot.observation.signals[0].at = Some(Moment(measured * MS));
        assert!(scene.at(at).turn().is_empty(), "at {at} ms");
    }
    scene.see(&[(DISK, 29)]).snapshot.observation.signals[0].at = Some(Moment(1_000 * MS));
    assert_eq!(scene.at(1_000).turn(), ["evict large for nodefs.available"], "less than half is left");
}

#[test]
fn each_removal_is_judged_by_what_was_available_at_its_own_beginning() {
    for grace in [0, 1] {
        let mut scene = Scene::with(vec![threshold(DISK, 100, grace)], &[(DISK, 80)]);
        scene.attempt = |_| Attempt::Failed;
        let expected = vec![(DISK, Amount::from_units(80))];
        scene.at(0).turn();
        scene.snapshot.expected.clone_from(&expected);
        assert_eq!(scene.at(20_000).turn(), ["expected"], "{grace} s");
        scene.snapshot.expected.clear();
        scene.at(40_000).turn();
        scene.see(&[(DISK, 30)]);
        scene.snapshot.expected = expected;
        assert_eq!(scene.at(60_000).turn(), ["expected"], "{grace} s");
    }
}

#[test]
fn maintenance_defers_soft_thresholds_alone() {
    let mut scene =
        Scene::with(vec![threshold(MEMORY, 200, 1), threshold(PIDS, 100, 0)], &[(MEMORY, 150), (PIDS, 500)]);
    scene.snapshot.in_maintenance = true;
    assert!(scene.at(0).turn().is_empty());
    assert_eq!(scene.at(1_000).turn(), ["deferred"]);
    scene.see(&[(MEMORY, 150), (PIDS, 50)]);
    assert_eq!(scene.at(1_100).turn(), ["evict large for pid.available", "deferred"]);
}

#[test]
fn a_soft_eviction_waits_for_the_api_server() {
    let mut scene = Scene::with(vec![threshold(MEMORY, 200, 1)], &[(MEMORY, 150)]);
    scene.standing =
        |_| Standing { is_pod: true, is_known: true, control_plane: ControlPlane::Down, ..Standing::default() };
    scene.at(0).turn();
    // The first candidate is put off by its upper bound, then both by exact figures.
    assert_eq!(scene.at(1_000).turn(), ["put off", "put off", "put off"]);
    assert!(scene.at(5_999).turn().is_empty());
    scene.standing = |_| Standing {
        is_pod: true,
        is_known: true,
        control_plane: ControlPlane::Up { is_read: true },
        ..Standing::default()
    };
    assert_eq!(scene.at(6_000).turn(), ["evict large for memory.available"]);
}

#[test]
fn a_reload_keeps_the_evictions_under_way() {
    let mut scene = Scene::memory(50);
    assert_eq!(scene.at(0).turn().len(), 1);
    scene.snapshot.dying = vec![dying(2)];
    scene.policy.thresholds = vec![threshold(MEMORY, 80, 0)];
    let rules = Rules { policy: &scene.policy.clone(), pace: Pace::Agent(scene.agent) };
    scene.decider.arm(rules, Layout::default());
    scene.decider.reconsider();
    assert!(scene.at(10).turn().is_empty(), "the victim is still dying");
    scene.snapshot.dying.clear();
    scene.snapshot.ended = vec![gone(2, MEMORY)];
    assert!(scene.at(20).turn().is_empty(), "the eviction is charged to the budget");
    scene.agent.mode = Mode::Observe;
    assert_eq!(scene.at(3_000).turn(), ["would evict large for memory.available"]);
}

#[test]
fn an_eviction_of_the_same_turn_delays_one_for_a_limit() {
    let mut scene = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    scene.snapshot.has_limits = true;
    let exceeded = |id| LimitExceeded { id: CgroupId(id), cause: Cause::PodLimit, is_stale: false };
    scene.exceeded = vec![exceeded(2)];
    assert_eq!(
        scene.at(0).turn(),
        ["evict large for nodefs.available"],
        "the pod above its limit is being evicted already"
    );
    let mut scene = Scene::memory(50);
    scene.snapshot.has_limits = true;
    scene.exceeded = vec![exceeded(9)];
    assert_eq!(
        scene.at(0).turn(),
        ["evict large for memory.available"],
        "the next eviction waits until this one has ended"
    );
}

#[test]
fn pods_above_a_limit_are_evicted_one_at_a_time() {
    let mut scene = Scene::memory(500);
    scene.snapshot.has_limits = true;
    let exceeded = |id, is_stale| LimitExceeded { id: CgroupId(id), cause: Cause::PodLimit, is_stale };
    scene.exceeded = vec![exceeded(1, true), exceeded(2, false), exceeded(3, false)];
    assert_eq!(
        scene.at(0).turn(),
        ["evict limit 1 for ephemeralpodfs.limit"],
        "a pod with a stale figure is passed over"
    );
    assert!(scene.at(499).turn().is_empty());
    assert_eq!(scene.at(500).turn().len(), 1);
    scene.exceeded.clear();
    assert!(scene.at(1_000).turn().is_empty());
    scene.exceeded = vec![exceeded(2, false), exceeded(4, false)];
    assert!(scene.at(10_999).turn().is_empty(), "limits are checked every ten seconds");
    assert_eq!(
        scene.at(11_000).turn(),
        ["evict limit 1 for ephemeralpodfs.limit"],
        "the other one was evicted already"
    );
}

#[test]
fn the_second_sample_must_confirm_the_threshold() {
    let mut scene = Scene::memory(50);
    scene.second = Some(vec![(MEMORY, 100)]);
    assert!(scene.turn().is_empty(), "equal is not below");
    scene.second = Some(vec![(MEMORY, 99)]);
    assert_eq!(scene.turn(), ["evict large for memory.available"]);
}

#[test]
fn observe_mode_names_the_victim_without_waiting() {
    let mut soft = Scene::with(vec![threshold(MEMORY, 200, 1)], &[(MEMORY, 150)]);
    soft.agent.mode = Mode::Observe;
    soft.standing = |_| Standing { is_pod: true, control_plane: ControlPlane::Down, ..Standing::default() };
    soft.at(0).turn();
    assert_eq!(soft.at(1_000).turn(), ["would evict large for memory.available"], "observe mode needs no API server");
    let mut scene = Scene::memory(50);
    scene.agent.mode = Mode::Observe;
    assert_eq!(scene.at(0).turn(), ["would evict large for memory.available"]);
    assert!(scene.at(99).turn().is_empty(), "observe mode ranks every 100 ms at most");
    assert_eq!(scene.at(100).turn(), ["would evict large for memory.available"]);
    let mut disk = Scene::with(vec![threshold(DISK, 100, 0)], &[(DISK, 50)]);
    (disk.agent.mode, disk.runtime) = (Mode::Observe, RuntimeFacts::Up);
    assert_eq!(
        disk.at(0).turn(),
        ["collect", "would evict large for nodefs.available"],
        "listing garbage frees nothing"
    );
}

#[test]
fn the_route_follows_from_the_method_and_the_api_server() {
    use EvictionMethod::{Delete, Evict, Fail, Off};
    let (up, unread, down) =
        (ControlPlane::Up { is_read: true }, ControlPlane::Up { is_read: false }, ControlPlane::Down);
    let requested = |insists| Some(Route::Requested { insists });
    for (method, hard, control_plane, is_known, expected) in [
        (Off, true, up, true, Some(Route::Local)),
        (Off, false, down, false, Some(Route::Local)),
        (Delete, true, up, true, Some(Route::Reported)),
        (Delete, true, down, true, Some(Route::Reported)),
        (Evict, true, down, true, Some(Route::Reported)),
        (Delete, true, down, false, Some(Route::Unlisted)),
        (Evict, false, up, true, requested(false)),
        (Delete, false, up, true, requested(true)),
        (Delete, false, down, true, Some(Route::Reported)),
        (Evict, false, down, true, None),
        (Evict, false, down, false, None),
        (Evict, false, unread, false, None),
        (Evict, false, up, false, None),
        (Evict, true, unread, false, Some(Route::Unlisted)),
        (Delete, true, unread, false, Some(Route::Unlisted)),
        (Delete, false, up, false, Some(Route::Unlisted)),
        (Delete, false, unread, false, None),
        (Delete, false, down, false, Some(Route::Unlisted)),
        (Evict, false, ControlPlane::None, true, Some(Route::Local)),
        (Fail, true, up, true, Some(Route::Reported)),
        (Fail, true, down, false, Some(Route::Unlisted)),
        (Fail, false, up, true, requested(true)),
        (Fail, false, unread, false, None),
    ] {
        let methods = EvictionMethods { hard: method, soft: method };
        let standing = Standing { is_pod: true, is_known, control_plane, ..Standing::default() };
        assert_eq!(choose::route(methods, hard, standing), expected, "{method:?} {hard} {control_plane:?} {is_known}");
    }
}

#[test]
fn candidates_are_sought_again_before_the_last_resort() {
    for (name, from, available, expected) in [
        ("no fall", 80, 80, 250),
        // 100 a second; a quarter of the threshold is 25.
        ("a fall", 145, 45, 200),
        ("a quarter is left", 125, 25, 125),
    ] {
        let mut scene = Scene::memory(from);
        scene.candidates.clear();
        scene.at(0).turn();
        scene.see(&[(MEMORY, available)]).at(1_000).turn();
        let retry = scene.decider.retry().unwrap();
        let wait = retry.since(Monotonic(1_000_000_000)).as_millis();
        assert!((expected - 30..=expected + 30).contains(&wait), "{name}: {wait} ms");
    }
}

#[test]
fn a_new_agent_samples_before_its_first_eviction_for_memory() {
    const EVICTED: &[&str] = &["evict large for memory.available"];
    for (name, first_sample, available, expected) in [
        ("it has just begun", Some(Monotonic(0)), 95, &[][..]),
        ("half of the threshold is left", Some(Monotonic(0)), 50, EVICTED),
        ("it has run for longer", None, 95, EVICTED),
    ] {
        let mut scene = Scene::memory(available);
        scene.snapshot.first_sample = first_sample;
        assert_eq!(scene.at(0).turn(), expected, "{name}");
    }
    let mut scene = Scene::memory(95);
    scene.snapshot.first_sample = Some(Monotonic(0));
    assert!(scene.at(0).turn().is_empty());
    assert!(scene.at(299).turn().is_empty());
    assert_eq!(scene.at(300).turn(), EVICTED);
}

#[test]
fn free_pages_on_the_lists_of_the_cpus_end_a_shortage_after_a_kill() {
    const EVICTED: &[&str] = &["evict large for memory.available"];
    for (name, available, on_lists, expected) in [
        ("no kill before", 95, None, EVICTED),
        ("they reach the threshold", 95, Some(5), &["memory expected"][..]),
        ("they do not", 95, Some(4), EVICTED),
        ("half of the threshold is left", 50, Some(900), EVICTED),
    ] {
        let mut scene = Scene::memory(available);
        scene.snapshot.on_cpu_lists = on_lists.map(Bytes);
        assert_eq!(scene.at(0).turn(), expected, "{name}");
    }
    let mut scene = Scene::with(vec![threshold(PIDS, 100, 0)], &[(PIDS, 95)]);
    scene.snapshot.on_cpu_lists = Some(Bytes(900));
    assert_eq!(scene.at(0).turn(), ["evict large for pid.available"]);
}
