//! How long to wait before something is tried again: longer each time, and never as long as everybody else, so that the agents of five
//! thousand nodes do not all come back in the same moment.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Waits that double up to a longest one, each between a half and the whole of it.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) const fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, next: shortest }
    }

    /// How long to wait this time.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = wait.saturating_mul(2).min(self.longest);
        jittered(wait)
    }

    /// It worked.
    pub(super) const fn reset(&mut self) {
        self.next = self.shortest;
    }
}

/// Between a half and the whole of it.
pub(super) fn jittered(whole: Duration) -> Duration {
    whole.mul_f64(0.5 + 0.5 * chance())
}

/// Between zero and one, by the seed that the standard library draws for its maps: no secret, and no two processes have the same.
fn chance() -> f64 {
    // 32 bits fit a float exactly.
    let drawn = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0);
    f64::from(drawn) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_begin_anew() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, second * 6);
        for whole in [1, 2, 4, 6, 6] {
            let wait = backoff.next();
            assert!(wait >= second * whole / 2 && wait <= second * whole, "{whole}: {wait:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= second);
    }

    #[test]
    fn no_two_are_alike() {
        let waits: std::collections::HashSet<Duration> = (0..8).map(|_| jittered(Duration::from_secs(60))).collect();
        assert!(waits.len() > 1);
    }
}
