//! Checks how long an eviction waits for the memory of victims. Sizes are in MiB, times in milliseconds.

use super::*;
use crate::eviction::memory_benefit::is_cliff;

const THRESHOLD: u64 = 100;

fn at(milliseconds: u64) -> Monotonic {
    Monotonic(milliseconds * 1_000_000)
}

fn victim(expected: u64, left: u64) -> DyingMemory {
    DyingMemory {
        id: CgroupId(1),
        expected: Bytes::from_mib(expected),
        left: Bytes::from_mib(left),
        killed: at(0),
        grace_ends: None,
        growth: 0,
        is_own: true,
        is_whole: true,
        is_populated: false,
    }
}

/// Returns the time at which the wait ends, if `left` tells what is left at each time. `available` does not change.
fn ends(of: DyingMemory, (available, fall): (u64, u64), left: impl Fn(u64) -> u64) -> Option<u64> {
    let mut pending = Pending::default();
    let [available, threshold, fall] = [available, THRESHOLD, fall].map(|mib| Bytes::from_mib(mib).as_f64());
    let is_cliff = Some(is_cliff(available, threshold, threshold, Some(fall)));
    let level = Level { available, threshold, fall, is_cliff };
    (0..20_000).step_by(20).find(|now| {
        let dying = [DyingMemory { left: Bytes::from_mib(left(*now)), ..of }];
        pending.observe(&dying, at(*now));
        pending.waits(&dying, level, at(*now)).is_none()
    })
}

#[test]
fn the_wait_ends_when_the_memory_is_back_or_does_not_come() {
    let own = victim(400, 400);
    let others = DyingMemory { is_own: false, ..own };
    let populated = DyingMemory { expected: Bytes::ZERO, is_populated: true, ..own };
    let late = |now: u64| if now < 2_500 { 400 } else { 0 };
    let steady = |now: u64| 400 - now / 50;
    let grace = DyingMemory { grace_ends: Some(at(2_000)), is_own: false, is_whole: false, ..own };
    let stopped = |now: u64| if now < 2_100 { 400 } else { 0 };
    for (name, of, level, left, expected) in [
        ("freed at once", own, (90, 1), &(|now: u64| if now < 60 { 400_u64 } else { 0 }) as &dyn Fn(u64) -> u64, 60),
        ("freed 2.5 s after the processes", own, (90, 1), &late, 2_500),
        ("nothing comes", own, (90, 1), &|_| 400, 3_000),
        ("a twentieth is left", own, (90, 1), &|now: u64| if now < 100 { 400 } else { 20 }, 100),
        ("it comes slowly", own, (90, 1), &steady, 10_000),
        ("it comes slowly to another program's victim", others, (90, 1), &steady, 10_000),
        ("half of the threshold is near: something else leaks", own, (60, 250), &|_| 400, 200),
        ("below half, but some seconds are left", own, (40, 10), &|_| 400, 3_000),
        ("below half, but the memory is coming", own, (40, 10), &|now: u64| 400_u64.saturating_sub(now / 5), 1_900),
        ("a pod ends with its grace period", grace, (90, 1), &stopped, 2_100),
        ("a pod outlives its grace period", grace, (90, 1), &|_| 400, 5_000),
        ("half of the threshold is near before the grace period ends", grace, (60, 250), &|_| 400, 0),
        ("a victim without memory whose processes are left", populated, (90, 1), &|_| 0, 3_000),
    ] {
        assert_eq!(ends(of, level, left), Some(expected), "{name}");
    }
}

#[test]
fn many_victims_of_others_are_awaited_for_one_bound() {
    let (mut pending, mut waited) = (Pending::default(), 0);
    let level = Level { available: 90.0, threshold: 100.0, fall: 0.0, is_cliff: None };
    // Every second another program kills one more workload, whose memory comes back slowly.
    for now in (0..30_000).step_by(100) {
        let dying = DyingMemory { id: CgroupId(now / 1_000), is_own: false, ..victim(400, 400 - now % 1_000 / 10) };
        pending.observe(&[dying], at(now));
        waited += u64::from(pending.waits(&[dying], level, at(now)).is_some()) * 100;
    }
    assert_eq!(waited, 10_000);
    pending.end_shortage();
    let dying = DyingMemory { id: CgroupId(99), is_own: false, ..victim(400, 400) };
    pending.observe(&[dying], at(30_000));
    assert!(pending.waits(&[dying], level, at(30_000)).is_some(), "another shortage");
}

#[test]
fn the_wait_for_an_early_victim_of_others_begins_with_the_shortage() {
    let level = Level { available: 90.0, threshold: 100.0, fall: 0.0, is_cliff: None };
    let killed_early = |is_own| DyingMemory { is_own, ..victim(400, 400) };
    for (dying, expected) in [(killed_early(false), Some(8_000)), (killed_early(true), Some(5_000))] {
        let mut pending = Pending::default();
        (0..5_000).step_by(100).for_each(|now| pending.observe(&[dying], at(now)));
        let end = (5_000..20_000).step_by(100).find(|now| pending.waits(&[dying], level, at(*now)).is_none());
        assert_eq!(end, expected, "{dying:?}");
    }
}
