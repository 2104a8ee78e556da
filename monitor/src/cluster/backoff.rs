//! How long to wait before something is tried again: longer each time, and never in step with other nodes.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Doubles from try to try, up to a longest wait.
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

    /// It worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Another failure: how long to wait now. A server that says when it wants to be asked again is not asked before.
    pub(super) fn after_failure(&mut self, asked_for: Option<Duration>) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        jittered(doubled).max(asked_for.unwrap_or_default().min(self.longest))
    }
}

/// Between half of it and all of it: after an outage not every node comes at the same moment.
pub(super) fn jittered(wait: Duration) -> Duration {
    // The standard library's hash maps are seeded by the kernel: no crate is needed for a number that nobody has to guess.
    let random = RandomState::new().build_hasher().finish();
    let share = u32::try_from(random % 1_024).unwrap_or(0);
    wait / 2 + wait.saturating_mul(share) / 2_048
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_bounds_and_begin_anew() {
        let second = Duration::from_secs(1);
        let mut patience = Backoff::new(second, 30 * second);
        for doubled in [1, 2, 4, 8, 16, 30, 30] {
            let wait = patience.after_failure(None);
            assert!(wait >= doubled * second / 2 && wait <= doubled * second, "{wait:?} of {doubled}");
        }
        assert!(patience.after_failure(Some(29 * second)) >= 29 * second, "the server knows best");
        assert!(patience.after_failure(Some(300 * second)) <= 30 * second);
        patience.reset();
        assert!(patience.after_failure(None) <= second);
    }
}
