//! Changes of node conditions: one record when a condition changes, none while it stays.

use std::collections::BTreeMap;
use std::time::Duration;

use super::RateLimiter;
use crate::units::Monotonic;

/// A condition with a short transition period may flicker: this many changes are reported at once, then one every `INTERVAL`.
const BURST: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(10);

/// The status of each condition that was reported last.
#[derive(Debug, Default)]
pub struct ConditionLog {
    reported: BTreeMap<String, Reported>,
}

#[derive(Debug)]
struct Reported {
    status: bool,
    limiter: RateLimiter,
}

impl ConditionLog {
    /// Returns how many changes were suppressed before, if the status differs from the reported one and may be reported now. A suppressed
    /// change is reported later if it still holds. A condition that is false when first seen is no change.
    pub fn update(&mut self, condition: &str, status: bool, now: Monotonic) -> Option<u64> {
        if !self.reported.contains_key(condition) {
            let limiter = RateLimiter::new(BURST, INTERVAL);
            self.reported.insert(condition.to_owned(), Reported { status: false, limiter });
        }
        let reported = self.reported.get_mut(condition).filter(|reported| reported.status != status)?;
        let suppressed = reported.limiter.admit(now)?;
        reported.status = status;
        Some(suppressed)
    }

    /// Drops a condition that the configuration no longer has. If it returns, it starts as false.
    pub fn forget(&mut self, condition: &str) {
        self.reported.remove(condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_last_status_of_a_flickering_condition_is_reported() {
        let mut log = ConditionLog::default();
        // Each millisecond for a second, and then it stays true.
        let at = |ms: u64| Monotonic(ms * 1_000_000);
        let reported = (0..1000).filter_map(|ms| log.update("MemoryPressure", ms % 2 == 0, at(ms))).count();
        assert_eq!(reported, 10);
        assert!(log.update("MemoryPressure", true, at(30_000)).is_some_and(|suppressed| suppressed > 400));
        assert_eq!(log.update("MemoryPressure", true, at(31_000)), None);
    }
}
