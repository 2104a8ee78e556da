//! The budget: how long a thread has to rest for the CPU time that it took.

use std::time::Duration;

use crate::units::Monotonic;

/// Shorter rests are saved up: waking up costs something too.
const SHORTEST_REST: Duration = Duration::from_millis(20);
/// Time in which nothing was done is not saved up for longer than this.
const LONGEST_CREDIT: Duration = Duration::from_millis(100);

/// Less would be no work at all.
const SMALLEST_SHARE: f64 = 0.0001;

/// Keeps a thread within a share of one CPU.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    share: f64,
    /// Both clocks at the moment from which on is counted.
    cpu: Duration,
    wall: Monotonic,
}

impl Pace {
    /// Counts from now on; the share is above 0, and 1 is a whole CPU.
    pub fn new(share: f64, cpu: Duration, now: Monotonic) -> Self {
        Self { share: share.clamp(SMALLEST_SHARE, 1.0), cpu, wall: now }
    }

    /// Another share from now on.
    pub fn set_share(&mut self, share: f64, cpu: Duration, now: Monotonic) {
        let other = Self::new(share, cpu, now);
        if other.share.to_bits() != self.share.to_bits() {
            *self = other;
        }
    }

    /// How long to rest; nothing when that is not worth while yet.
    pub fn rest(&mut self, cpu: Duration, now: Monotonic) -> Option<Duration> {
        let due = cpu.saturating_sub(self.cpu).div_f64(self.share);
        let passed = now.since(self.wall);
        if passed > due.saturating_add(LONGEST_CREDIT) {
            (self.cpu, self.wall) = (cpu, now);
            return None;
        }
        let rest = due.saturating_sub(passed);
        (rest >= SHORTEST_REST).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// Works in bits of `bit`, resting as told, until `cpu` is used up; returns how long it took.
    fn run(pace: &mut Pace, bit: Duration, cpu: Duration, mut now: Monotonic) -> Monotonic {
        let mut used = Duration::ZERO;
        while used < cpu {
            used += bit;
            now = now.after(bit);
            if let Some(rest) = pace.rest(used, now) {
                now = now.after(rest);
            }
        }
        now
    }

    #[test]
    fn the_share_is_kept_whatever_the_size_of_the_bits() {
        for (share, bit) in [(0.02, 50), (0.02, 3000), (0.001, 500), (0.25, 700)] {
            let mut pace = Pace::new(share, Duration::ZERO, Monotonic(0));
            let cpu = Duration::from_secs(1);
            let took = run(&mut pace, Duration::from_micros(bit), cpu, Monotonic(0)).since(Monotonic(0));
            let kept = cpu.as_secs_f64() / took.as_secs_f64();
            assert!(kept <= share * 1.03 && kept > share * 0.9, "{share} {bit}: {kept}");
        }
    }

    #[test]
    fn rests_are_not_too_short_and_waiting_is_not_saved_up() {
        let mut pace = Pace::new(0.5, Duration::ZERO, Monotonic(0));
        assert_eq!(pace.rest(Duration::from_millis(5), Monotonic(5 * MILLI)), None);
        // A minute of waiting for a disk earns no minute of work without a rest.
        let later = Monotonic(60_000 * MILLI);
        assert_eq!(pace.rest(Duration::from_millis(5), later), None);
        let rest = pace.rest(Duration::from_millis(55), later.after(Duration::from_millis(50)));
        assert_eq!(rest, Some(Duration::from_millis(50)));
    }

    #[test]
    fn another_share_counts_from_then_on() {
        let mut pace = Pace::new(0.01, Duration::ZERO, Monotonic(0));
        pace.set_share(0.5, Duration::from_millis(100), Monotonic(100 * MILLI));
        let rest = pace.rest(Duration::from_millis(200), Monotonic(200 * MILLI));
        assert_eq!(rest, Some(Duration::from_millis(100)));
    }
}
