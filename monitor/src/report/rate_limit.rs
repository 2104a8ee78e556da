//! Keeps a log line that could repeat without end from doing so, and tells how many were held back.

use std::time::{Duration, Instant};

/// What to do with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Write it, and say how many were held back since the last one.
    Write {
        /// Lines held back.
        suppressed: u64,
    },
    /// Hold it back.
    Suppress,
}

/// Lets `burst` lines through at once, and then one every `interval`. Each place that logs has its own.
///
/// This is the generic cell rate algorithm: instead of counting tokens it keeps the time at which a line that
/// conforms exactly to the rate would be due, so that nothing has to be refilled.
#[derive(Debug, Clone)]
pub struct RateLimiter {
    interval: Duration,
    /// How far ahead of the rate a line may be.
    tolerance: Duration,
    due: Option<Instant>,
    suppressed: u64,
}

impl RateLimiter {
    /// Makes a limiter. A burst of zero counts as one.
    #[must_use]
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self { interval, tolerance: interval.saturating_mul(burst.saturating_sub(1)), due: None, suppressed: 0 }
    }

    /// Judges a line that would be written now.
    pub fn check(&mut self, now: Instant) -> Verdict {
        let due = self.due.map_or(now, |due| due.max(now));
        if due.saturating_duration_since(now) > self.tolerance {
            self.suppressed = self.suppressed.saturating_add(1);
            return Verdict::Suppress;
        }
        // An interval beyond the end of time: never again.
        self.due = due.checked_add(self.interval).or(Some(due));
        Verdict::Write { suppressed: std::mem::take(&mut self.suppressed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate_and_what_was_held_back() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(3, Duration::from_secs(10));
        let mut at = |seconds: u64| limiter.check(start + Duration::from_secs(seconds));
        let write = |suppressed| Verdict::Write { suppressed };
        assert_eq!([at(0), at(0), at(0)], [write(0); 3]);
        assert_eq!([at(0), at(9)], [Verdict::Suppress; 2]);
        assert_eq!(at(10), write(2));
        assert_eq!(at(10), Verdict::Suppress);
        assert_eq!(at(20), write(1));
        // Quiet for long: the burst is whole again, and no larger.
        assert_eq!([at(500), at(500), at(500)], [write(0); 3]);
        assert_eq!(at(500), Verdict::Suppress);
    }

    #[test]
    fn no_line_is_both_written_and_counted() {
        let start = Instant::now();
        let mut limiter = RateLimiter::new(5, Duration::from_millis(70));
        let (mut written, mut told) = (0, 0);
        for millis in 0..1000 {
            if let Verdict::Write { suppressed } = limiter.check(start + Duration::from_millis(millis)) {
                written += 1;
                told += suppressed;
            }
        }
        // Five at once, then one every 70 ms up to 999.
        assert_eq!(written, 5 + 999 / 70);
        assert_eq!(written + told + limiter.suppressed, 1000);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_is_no_panic() {
        let start = Instant::now() + Duration::from_secs(100);
        let mut limiter = RateLimiter::new(0, Duration::MAX);
        assert_eq!(limiter.check(start), Verdict::Write { suppressed: 0 });
        let _ = limiter.check(start.checked_sub(Duration::from_secs(50)).unwrap());
    }
}
