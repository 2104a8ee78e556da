//! Exponential backoff with jitter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Doubles the wait after each failure, up to a longest wait.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the wait after another failure: at least what the server asks for, at most the longest wait.
    pub(super) fn next_wait(&mut self, retry_after: Option<Duration>) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        jittered(doubled).max(retry_after.unwrap_or_default().min(self.longest))
    }
}

/// Returns a random wait between half of it and all of it, so that nodes do not return in step after an outage.
pub(super) fn jittered(wait: Duration) -> Duration {
    // The standard library's hash keys come from the kernel: random enough, without another crate.
    let random = RandomState::new().build_hasher().finish();
    let share = u32::try_from(random % 1_024).unwrap_or(0);
    wait / 2 + wait.saturating_mul(share) / 2_048
}

/// Returns a random wait of at most `longest`.
pub(super) fn spread(longest: Duration) -> Duration {
    (jittered(longest) - longest / 2).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_return_spread_over_the_whole_time() {
        let longest = Duration::from_secs(20);
        let waits: Vec<Duration> = (0..200).map(|_| spread(longest)).collect();
        assert!(waits.iter().all(|wait| *wait <= longest));
        for quarter in 0..4 {
            let from = longest * quarter / 4;
            let in_quarter = waits.iter().filter(|wait| **wait >= from && **wait <= from + longest / 4).count();
            assert!(in_quarter > 20, "{in_quarter} of 200 in quarter {quarter}");
        }
    }

    #[test]
    fn waits_double_within_bounds_and_reset() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, 30 * second);
        for doubled in [1, 2, 4, 8, 16, 30, 30] {
            let wait = backoff.next_wait(None);
            assert!(wait >= doubled * second / 2 && wait <= doubled * second, "{wait:?} of {doubled}");
        }
        assert!(backoff.next_wait(Some(29 * second)) >= 29 * second, "the server's wait counts");
        assert!(backoff.next_wait(Some(300 * second)) <= 30 * second);
        backoff.reset();
        assert!(backoff.next_wait(None) <= second);
    }
}
