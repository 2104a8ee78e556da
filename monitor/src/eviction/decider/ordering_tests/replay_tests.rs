//! Checks that a recorded turn replays to the same victim.

use super::*;

#[test]
fn a_recorded_turn_replays_to_the_same_victim() {
    let scene = Scene::memory(50);
    let line = recorded(&scene);
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    let rules = serde_json::to_string(&RecordedRules::of(rules)).unwrap();
    let rules: RecordedRules<OwnedRules> = serde_json::from_str(&rules).unwrap();
    assert_eq!(rules.rules.policy, scene.policy);
    let replayed = line.replay(rules.rules.borrow());
    assert_eq!((replayed.victim.as_deref(), replayed.difference), (Some("large"), None));
    let other = RecordedLine { victim: "small".to_owned(), ..line };
    assert!(other.replay(rules.rules.borrow()).difference.is_some(), "another victim is noticed");
}

#[test]
fn a_recorded_eviction_for_a_limit_replays() {
    let mut scene = Scene::memory(500);
    scene.snapshot.has_limits = true;
    scene.exceeded = vec![LimitExceeded { id: CgroupId(2), cause: Cause::PodLimit, is_stale: false }];
    let line = recorded(&scene);
    assert_eq!(line.above_limit, Some(CgroupId(2)));
    let rules = Rules { policy: &scene.policy, pace: Pace::Agent(scene.agent) };
    assert_eq!(line.replay(rules).difference, None);
    let other = RecordedLine { above_limit: Some(CgroupId(3)), ..line };
    assert!(other.replay(rules).difference.is_some(), "another victim is noticed");
}
