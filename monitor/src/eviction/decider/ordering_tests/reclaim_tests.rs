//! Checks when memory is reclaimed before an eviction.

use super::*;

#[test]
fn proactive_reclaim_comes_first_where_it_can_suffice() {
    let mut scene = Scene::memory(50);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    scene.snapshot.reclaim = ReclaimFacts::Idle;
    let holding = Holding { above_request: Bytes(400), active_file: Bytes(300), ..Holding::default() };
    scene.holding = Some(holding);
    assert_eq!(scene.at(0).turn(), ["reclaim from large"]);
    scene.snapshot.reclaim = ReclaimFacts::Busy(ReclaimAnswer::Pending);
    assert!(scene.at(10).turn().is_empty(), "the kernel is reclaiming");
    let late = scene.at(500).turn();
    assert_eq!(late, ["reclaim timed_out", "evict large for memory.available"]);
    let mut little = Scene::memory(50);
    little.snapshot.reclaim = ReclaimFacts::Idle;
    little.holding = Some(Holding { above_request: Bytes(10), ..holding });
    assert_eq!(little.at(0).turn(), ["evict large for memory.available", "reclaim futile"]);
}

#[test]
fn proactive_reclaim_continues_while_it_frees_memory() {
    let mut scene = Scene::memory(50);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    scene.snapshot.reclaim = ReclaimFacts::Idle;
    scene.holding = Some(Holding { above_request: Bytes(400), active_file: Bytes(300), ..Holding::default() });
    assert_eq!(scene.at(0).turn(), ["reclaim from large"]);
    (scene.snapshot.reclaim, scene.freed) = (ReclaimFacts::Busy(ReclaimAnswer::Done), Bytes(100));
    assert_eq!(
        scene.at(40).turn(),
        ["reclaim insufficient", "reclaim from large"],
        "attempts follow one another until the deadline"
    );
    let late = ["reclaim timed_out", "evict large for memory.available"];
    scene.snapshot.reclaim = ReclaimFacts::Busy(ReclaimAnswer::Pending);
    assert_eq!(scene.at(500).turn(), late, "the deadline of the series is over");
}

#[test]
fn proactive_reclaim_that_cannot_start_rests() {
    let mut scene = Scene::memory(50);
    scene.policy.semantics = crate::config::Semantics::Kubelet;
    (scene.snapshot.reclaim, scene.is_reclaim_refused) = (ReclaimFacts::Idle, true);
    scene.attempt = |_| Attempt::PutOff;
    scene.holding = Some(Holding { above_request: Bytes(400), active_file: Bytes(300), ..Holding::default() });
    assert_eq!(scene.at(0).turn().first().map(String::as_str), Some("reclaim from large"));
    let later = scene.at(300).turn();
    assert!(!later.iter().any(|done| done.starts_with("reclaim")), "{later:?}");
}
