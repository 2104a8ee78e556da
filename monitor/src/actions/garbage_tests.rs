use super::*;
use crate::config::{RuntimeEndpoint, RuntimeOptions};
use crate::eviction::{SignalValue, arm};
use crate::runtime::fake::{Fake, Has};
use crate::units::Bytes;

const SECOND: u64 = 1_000_000_000;

fn at(second: u64) -> Monotonic {
    Monotonic(second * SECOND)
}

fn ended(end: CollectEnd) -> Collected {
    Collected { end, ..Collected::interrupted(String::new()) }
}

fn images() -> Vec<Garbage> {
    vec![Garbage::Images]
}

/// A runtime that is up, and has nothing.
fn up() -> (tempfile::TempDir, Fake, Runtime) {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("runtime.sock");
    let fake = Fake::start(&socket, Has::default());
    let options = RuntimeOptions { endpoint: RuntimeEndpoint::Unix(socket), ..RuntimeOptions::default() };
    let runtime = Runtime::start(options).unwrap();
    let begun = std::time::Instant::now();
    while runtime.view().snapshot.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    (place, fake, runtime)
}

#[test]
fn a_runtime_that_restarts_is_waited_for_a_while() {
    let (_place, fake, runtime) = up();
    let mut first = GarbageFirst::default();
    drop(fake);
    runtime.observe().unwrap();
    let begun = std::time::Instant::now();
    let since = loop {
        if let State::Down { since, .. } = runtime.view().state {
            break since;
        }
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    };
    let later = |seconds| since.after(Duration::from_secs(seconds));
    let ask = |first: &mut GarbageFirst, mode, now| first.ask(&runtime, mode, images(), never, now);
    assert_eq!(ask(&mut first, Mode::Enforce, later(1)), Advice::Wait);
    assert_eq!(ask(&mut first, Mode::Observe, later(1)), Advice::GoOn);
    assert_eq!(ask(&mut first, Mode::Enforce, later(10)), Advice::GoOn, "it stays away");
    let interrupted = || ended(CollectEnd::Interrupted(String::new()));
    first.note(&interrupted(), later(2));
    assert_eq!(ask(&mut first, Mode::Enforce, later(3)), Advice::Wait, "it was cut off by the restart");
    first.note(&interrupted(), later(12));
    assert_eq!(first.not_before, Some(later(42)), "again and again is no restart");
}

#[test]
fn while_the_runtime_is_looked_for_nobody_goes_yet() {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("runtime.sock");
    let has = Has { delays: [("Version", Duration::from_secs(4))].into(), ..Has::default() };
    let _fake = Fake::start(&socket, has);
    let options = RuntimeOptions { endpoint: RuntimeEndpoint::Unix(socket), ..RuntimeOptions::default() };
    let runtime = Runtime::start(options).unwrap();
    let mut first = GarbageFirst::default();
    assert_eq!(first.ask(&runtime, Mode::Enforce, images(), never, at(5)), Advice::Wait);
    assert_eq!(first.ask(&runtime, Mode::Enforce, images(), never, at(14)), Advice::Wait);
    assert_eq!(first.ask(&runtime, Mode::Enforce, images(), never, at(15)), Advice::GoOn);
}

fn never() -> IsEnough {
    Box::new(|| false)
}

#[test]
fn a_pod_waits_for_the_collection_but_not_for_ever() {
    let (_place, _fake, runtime) = up();
    let mut first = GarbageFirst::default();
    let ask = |first: &mut GarbageFirst, second| first.ask(&runtime, Mode::Enforce, images(), never, at(second));
    assert_eq!(ask(&mut first, 1), Advice::Wait);
    assert_eq!(ask(&mut first, 60), Advice::Wait);
    assert_eq!(ask(&mut first, 61), Advice::GoOn, "one that makes no end holds nobody up");
    first.note(&ended(CollectEnd::Exhausted), at(62));
    assert_eq!(ask(&mut first, 91), Advice::GoOn, "nothing was left");
    assert_eq!(ask(&mut first, 92), Advice::Wait, "there may be something by now");
    first.note(&ended(CollectEnd::Enough), at(93));
    assert_eq!(ask(&mut first, 93), Advice::Wait, "it was enough once, and may be again");
}

#[test]
fn observe_mode_lists_and_waits_for_nothing() {
    let (_place, _fake, runtime) = up();
    let mut first = GarbageFirst::default();
    assert_eq!(first.ask(&runtime, Mode::Observe, images(), never, at(1)), Advice::GoOn);
    assert!(first.is_under_way());
    first.note(&ended(CollectEnd::Listed), at(2));
    assert_eq!(first.ask(&runtime, Mode::Observe, images(), never, at(61)), Advice::GoOn);
    assert!(!first.is_under_way(), "listed a minute ago at most");
    assert_eq!(first.ask(&runtime, Mode::Observe, images(), never, at(62)), Advice::GoOn);
    assert!(first.is_under_way());
}

#[test]
fn without_garbage_or_a_runtime_nobody_waits() {
    let runtime =
        Runtime::start(RuntimeOptions { endpoint: RuntimeEndpoint::Off, ..RuntimeOptions::default() }).unwrap();
    let mut first = GarbageFirst::default();
    assert_eq!(first.ask(&runtime, Mode::Enforce, images(), never, at(1)), Advice::GoOn);
    assert_eq!(
        first.ask(&runtime, Mode::Enforce, garbage_for(Signal::PidAvailable, Layout::Single), never, at(1)),
        Advice::GoOn
    );
    assert!(!first.is_under_way());
    assert_eq!(garbage_for(Signal::NodeFsAvailable, Layout::Single), [Garbage::Containers, Garbage::Images]);
    assert_eq!(garbage_for(Signal::ImageFsInodesFree, Layout::SplitImageFs), [Garbage::Images]);
}

#[test]
fn enough_is_the_threshold_and_its_minimum_reclaim() {
    let text = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n\
                evictionHard: {nodefs.available: 100Mi}\nevictionMinimumReclaim: {nodefs.available: 50Mi}\n";
    let policy = crate::config::MonitorConfig::parse("m.yaml", text).unwrap().config.policy;
    let armed = arm(&policy, Layout::Single);
    let mut left = vec![200, 150, 149, 99];
    let mut is_enough = until_enough(policy, armed, move || {
        let available = Bytes::from_mib(left.pop().unwrap());
        Observation { signals: vec![SignalValue::now(Signal::NodeFsAvailable, available, Bytes::from_gib(1))] }
    });
    let measured: Vec<bool> = (0..4).map(|_| is_enough()).collect();
    assert_eq!(measured, [false, false, true, true]);
}
