//! The rate limit of log lines, events and token reviews.

use std::time::Duration;

use crate::units::Monotonic;

/// Admits `burst` lines at once, and then one every `interval`.
///
/// This is the generic cell rate algorithm: it keeps the time at which a line that conforms exactly to the rate would be due, so that no
/// tokens have to be refilled.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    interval: Duration,
    /// How far ahead of the rate a line may be.
    tolerance: Duration,
    due: Option<Monotonic>,
    suppressed: u64,
}

impl RateLimiter {
    /// A burst of zero counts as one.
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self { interval, tolerance: interval.saturating_mul(burst.saturating_sub(1)), due: None, suppressed: 0 }
    }

    /// Returns how many lines were suppressed since the last admitted one; `None` suppresses this line.
    pub fn admit(&mut self, now: Monotonic) -> Option<u64> {
        let due = self.due.map_or(now, |due| due.max(now));
        if due.since(now) > self.tolerance {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.due = Some(due.after(self.interval));
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
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
}
