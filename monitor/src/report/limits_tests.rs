use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_burst_is_admitted_then_one_line_an_interval() {
    let mut limiter = RateLimiter::new(3, Duration::from_secs(10));
    let mut at = |seconds: u64| limiter.admit(Monotonic(seconds * SECOND));
    assert_eq!([at(0), at(0), at(0)], [Some(0); 3]);
    assert_eq!([at(0), at(9)], [None; 2]);
    assert_eq!(at(10), Some(2));
    assert_eq!(at(10), None);
    assert_eq!(at(20), Some(1));
    // After a quiet period the full burst is available again, and no more.
    assert_eq!([at(500), at(500), at(500)], [Some(0); 3]);
    assert_eq!(at(500), None);
}

#[test]
fn each_line_is_either_admitted_or_counted() {
    let mut limiter = RateLimiter::new(5, Duration::from_millis(70));
    let (mut admitted, mut counted) = (0, 0);
    for millis in 0..1000_u64 {
        if let Some(suppressed) = limiter.admit(Monotonic(millis * 1_000_000)) {
            admitted += 1;
            counted += suppressed;
        }
    }
    // Five at once, then one every 70 ms up to 999.
    assert_eq!(admitted, 5 + 999 / 70);
    assert_eq!(admitted + counted + limiter.suppressed, 1000);
}

#[test]
fn a_clock_that_stands_still_or_goes_back_does_not_panic() {
    let mut limiter = RateLimiter::new(0, Duration::MAX);
    assert_eq!(limiter.admit(Monotonic(100 * SECOND)), Some(0));
    assert_eq!(limiter.admit(Monotonic(50 * SECOND)), None);
}

#[test]
fn alternating_keys_are_due_once_an_interval_each() {
    let mut dedup = Dedup::new(Duration::from_secs(60));
    let due = |dedup: &mut Dedup<u64>, second| dedup.is_due(second % 2, Monotonic(second * 1_000_000_000));
    let at: Vec<u64> = (0..200).filter(|second| due(&mut dedup, *second)).collect();
    assert_eq!(at, [0, 1, 60, 61, 120, 121, 180, 181]);
    dedup.clear();
    assert!(due(&mut dedup, 200));
}

#[test]
fn only_changes_are_reported() {
    let mut log = ConditionLog::default();
    let mut update = |status| log.update("MemoryPressure", status, Monotonic(0));
    assert_eq!([update(false), update(true), update(true)], [None, Some(0), None]);
    assert_eq!([update(false), update(false)], [Some(0), None]);
    // Pressure at the start is a change.
    assert_eq!(ConditionLog::default().update("MemoryPressure", true, Monotonic(0)), Some(0));
}

#[test]
fn a_condition_is_as_old_as_its_last_change() {
    let mut log = ConditionLog::default();
    for (ms, status) in [(1, true), (2, true)] {
        let _reported = log.update("DiskPressure", status, Monotonic(ms));
    }
    assert_eq!(log.changes(), [], "it was so at the first look");
    for (ms, status) in [(3, false), (4, true), (5, true)] {
        let _reported = log.update("DiskPressure", status, Monotonic(ms));
    }
    assert_eq!(log.changes(), [("DiskPressure".to_owned(), Monotonic(4))]);
}

#[test]
fn the_last_status_of_a_flickering_condition_is_reported() {
    let mut log = ConditionLog::default();
    // Each millisecond for a second, and then it stays true.
    let at = |ms: u64| Monotonic(ms * 1_000_000);
    let reported = (0..1000).filter_map(|ms| log.update("MemoryPressure", ms % 2 == 0, at(ms))).count();
    assert_eq!(reported, 10);
    assert!(log.update("MemoryPressure", true, at(30_000)).is_some_and(|suppressed| suppressed > 400));
    assert_eq!(log.update("MemoryPressure", true, at(31_000)), None);
}

#[test]
fn a_party_takes_its_part_and_leaves_the_rest() {
    let mut limiter = SharedLimiter::new(8, Duration::from_secs(1));
    let mut admit = |parties: &[(&'static str, u32)], seconds: u64| limiter.admit(parties, Monotonic(seconds * SECOND));
    let of_loud = (0..100).filter(|_| admit(&[("loud", 4)], 1).is_some()).count();
    assert_eq!(of_loud, 2);
    assert_eq!(admit(&[("quiet", 4)], 1), Some(98));
    assert_eq!(admit(&[("loud", 4)], 4), None);
    assert_eq!(admit(&[("loud", 4)], 5), Some(1), "a fourth of the rate");
    assert_eq!((0..20).filter(|_| admit(&[], 100).is_some()).count(), 8, "all of it where there is no party");
}
