//! Node conditions as log records: one when a condition changes, none while it stays.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{RateLimiter, Verdict};

/// A condition whose status is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionChange {
    /// Its name, e.g. `MemoryPressure`.
    pub condition: String,
    /// Its status now.
    pub status: bool,
    /// Times that it was looked at, had changed, and nothing was said, for it changed too often.
    pub suppressed: u64,
}

impl ConditionChange {
    /// Writes the record `event="condition"`.
    pub fn log(&self) {
        let Self { condition, status, suppressed } = self;
        if *status {
            tracing::warn!(event = "condition", condition, status, suppressed, "{condition} is now true");
        } else {
            tracing::info!(event = "condition", condition, status, suppressed, "{condition} is now false");
        }
    }
}

/// Remembers what was reported.
#[derive(Debug, Default)]
pub struct ConditionLog {
    last: BTreeMap<String, Told>,
}

/// A condition may flicker where its transition period is short: so many changes are told, then one in so long.
const BURST: u32 = 10;
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Told {
    status: bool,
    limiter: RateLimiter,
}

impl ConditionLog {
    /// Returns what changed, if anything. A condition that is false when first seen is no change. What is not told now, for there were
    /// too many changes, is told later if it is still so.
    pub fn update(&mut self, condition: &str, status: bool, now: Instant) -> Option<ConditionChange> {
        if !self.last.contains_key(condition) {
            let limiter = RateLimiter::new(BURST, PAUSE);
            self.last.insert(condition.to_owned(), Told { status: false, limiter });
        }
        let told = self.last.get_mut(condition).filter(|told| told.status != status)?;
        let Verdict::Write { suppressed } = told.limiter.check(now) else { return None };
        told.status = status;
        Some(ConditionChange { condition: condition.to_owned(), status, suppressed })
    }

    /// The condition is kept no more; should it come again, it begins as false.
    pub fn forget(&mut self, condition: &str) {
        self.last.remove(condition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_told() {
        let mut log = ConditionLog::default();
        let now = Instant::now();
        let mut update = |status| log.update("MemoryPressure", status, now);
        let change = |status| Some(ConditionChange { condition: "MemoryPressure".to_owned(), status, suppressed: 0 });
        assert_eq!(update(false), None);
        assert_eq!(update(true), change(true));
        assert_eq!(update(true), None);
        assert_eq!(update(false), change(false));
        assert_eq!(update(false), None);
        // Pressure from the start is news.
        let mut fresh = ConditionLog::default();
        assert_eq!(fresh.update("MemoryPressure", true, now), change(true));
    }

    #[test]
    fn a_flickering_condition_is_told_in_the_end() {
        let (mut log, start) = (ConditionLog::default(), Instant::now());
        // Each millisecond for a second, and then it stays true.
        let at = |ms: u64| start + Duration::from_millis(ms);
        let told = (0..1000).filter_map(|ms| log.update("MemoryPressure", ms % 2 == 0, at(ms))).count();
        assert_eq!(told, 10);
        let later = log.update("MemoryPressure", true, at(30_000)).unwrap();
        assert!(later.status && later.suppressed > 400, "{later:?}");
        assert_eq!(log.update("MemoryPressure", true, at(31_000)), None);
    }
}
