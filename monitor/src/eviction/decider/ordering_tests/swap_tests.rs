//! Checks when an eviction waits for swap. Figures are in bytes: the threshold is 100 of 1,000.

use super::*;
use crate::config::Semantics;

const EVICTED: &str = "evict large for memory.available";

/// Swap of which enough is left, to which the kernel swaps faster than the fall of [`fallen`].
fn swap(milliseconds: u64) -> SwapOut {
    SwapOut {
        at: Monotonic(milliseconds * 1_000_000),
        free: Bytes(1_000),
        room: Some(Bytes(1_000)),
        per_second: Bytes(30),
        stalled: Some(100),
    }
}

/// Returns a scene in which the available memory has fallen by about 22 a second, and is to fall below the threshold at 2 s.
fn fallen() -> Scene {
    let mut scene = Scene::memory(140);
    for step in 0..10_i64 {
        let done = scene.at(i128::from(step) * 200).see(&[(MEMORY, 140 - step * 4)]).turn();
        assert!(done.is_empty(), "{done:?}");
    }
    (scene.snapshot.now, scene.snapshot.observation) = (Moment(2_000 * MS), observed(&[(MEMORY, 95)]));
    scene.snapshot.swap = Some(swap(1_950));
    scene
}

#[test]
fn an_eviction_waits_only_while_swap_keeps_up() {
    type Change = fn(&mut Scene);
    let rows: [(&str, Change, &str); 19] = [
        ("swap keeps up", |_| {}, "swap keeps up"),
        ("in observe mode", |it| it.agent.mode = Mode::Observe, "swap keeps up"),
        ("as fast as the fall", |it| figures(it).per_second = Bytes(23), "swap keeps up"),
        ("slower than the fall", |it| figures(it).per_second = Bytes(20), EVICTED),
        ("nothing is swapped out", |it| figures(it).per_second = Bytes(0), EVICTED),
        ("below half of the threshold", |it| half(it, 45), EVICTED),
        ("half of the threshold is near", |it| half(it, 65), EVICTED),
        ("no swap, or zram", |it| it.snapshot.swap = None, EVICTED),
        ("memory.swap.max of the leaker is 0", |it| figures(it).room = Some(Bytes(0)), EVICTED),
        ("the leaker's room would not last 10 s", |it| figures(it).room = Some(Bytes(305)), EVICTED),
        ("the free swap would not last 10 s", |it| figures(it).free = Bytes(305), EVICTED),
        ("both just last", |it| (figures(it).room, figures(it).free) = (Some(Bytes(306)), Bytes(306)), "swap keeps up"),
        ("no workload is known to grow", |it| figures(it).room = None, EVICTED),
        ("no PSI", |it| figures(it).stalled = None, EVICTED),
        ("tasks wait for memory", |it| figures(it).stalled = Some(251), EVICTED),
        ("old figures", |it| figures(it).at = Monotonic(1_499_000_000), EVICTED),
        ("the OOM killer has acted", |it| it.snapshot.oom_killed = Some(Monotonic(1_000_000_000)), EVICTED),
        ("switched off", |it| it.agent.limits.wait_for_swap = false, EVICTED),
        ("kubelet semantics", |it| it.policy.semantics = Semantics::Kubelet, EVICTED),
    ];
    for (name, change, expected) in rows {
        let mut scene = fallen();
        change(&mut scene);
        let done = scene.turn();
        assert_eq!(done.first().map(String::as_str), Some(expected), "{name}");
        let is_reported = expected == EVICTED && scene.snapshot.swap.is_some() && is_in_force(&scene);
        assert_eq!(done.get(1).map(String::as_str), is_reported.then_some("swap falls short"), "{name}");
    }
}

#[test]
fn a_jump_of_the_counters_does_not_end_the_wait() {
    for (name, per_second, expected) in [
        ("faster than the fall over ten seconds", 12, "swap keeps up"),
        ("less than half as fast as the fall over a second", 5, EVICTED),
    ] {
        let mut scene = Scene::memory(140);
        for second in 0..12_i64 {
            scene.at(i128::from(second) * 1_000).see(&[(MEMORY, 140 - second)]).turn();
        }
        // By 20 in the last second, of which 8 may be a jump.
        (scene.snapshot.now, scene.snapshot.observation) = (Moment(12_000 * MS), observed(&[(MEMORY, 110)]));
        scene.turn();
        (scene.snapshot.now, scene.snapshot.observation) = (Moment(13_000 * MS), observed(&[(MEMORY, 90)]));
        scene.snapshot.swap = Some(SwapOut { per_second: Bytes(per_second), ..swap(12_950) });
        assert_eq!(scene.turn().first().map(String::as_str), Some(expected), "{name}");
    }
}

fn is_in_force(scene: &Scene) -> bool {
    scene.agent.limits.wait_for_swap && scene.policy.semantics == Semantics::Corrected
}

fn figures(scene: &mut Scene) -> &mut SwapOut {
    scene.snapshot.swap.as_mut().unwrap()
}

fn half(scene: &mut Scene, available: i64) {
    scene.snapshot.observation = observed(&[(MEMORY, available)]);
    figures(scene).per_second = Bytes(70);
}

/// Runs a turn every half second. Returns what was done, with the seconds.
fn turns(scene: &mut Scene, half_seconds: std::ops::Range<u64>, available: i64, per_second: u64) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    for now in half_seconds.map(|half| half * 500) {
        scene.snapshot.swap = Some(SwapOut { per_second: Bytes(per_second), ..swap(now) });
        let done = scene.at(i128::from(now)).see(&[(MEMORY, available)]).turn();
        all.extend(done.into_iter().map(|done| (now / 1_000, done)));
    }
    all
}

#[test]
fn the_wait_is_reported_once_and_ends_with_swap_out() {
    let mut scene = fallen();
    assert_eq!(scene.turn(), ["swap keeps up"]);
    assert_eq!(turns(&mut scene, 5..60, 95, 30), [], "no bound while swap-out goes on");
    let ended = turns(&mut scene, 60..61, 95, 0);
    assert_eq!(ended, [(30, EVICTED.to_owned()), (30, "swap falls short".to_owned())], "nothing is swapped out");
    let mut scene = fallen();
    assert_eq!(scene.turn(), ["swap keeps up"]);
    assert_eq!(turns(&mut scene, 5..40, 95, 30), []);
    assert_eq!(turns(&mut scene, 40..60, 120, 0), [], "the threshold is unmet");
    let ended = turns(&mut scene, 100..101, 95, 0);
    assert_eq!(ended.first(), Some(&(50, EVICTED.to_owned())), "swap-out of another shortage");
}

#[test]
fn a_recorded_eviction_after_a_wait_replays() {
    let mut scene = Scene::memory(50);
    scene.snapshot.swap = Some(swap(0));
    let line = recorded(&scene);
    assert_eq!(line.turn.steps[0].snapshot.swap, Some(swap(0)));
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    assert_eq!(line.replay(rules).difference, None);
}
