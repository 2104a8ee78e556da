//! The budget of evictions: how many may follow one another, and how fast.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::config::EvictionLimits;
use crate::units::Monotonic;

/// Why no eviction may start now, with the time to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The last eviction with an effect was less than the cool-down ago.
    CoolDown(Duration),
    /// The evictions of this minute are spent.
    Spent(Duration),
}

/// The evictions of the last minute that had an effect. An attempt without an effect does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    effects: Vec<Monotonic>,
}

const MINUTE: Duration = Duration::from_secs(60);

impl Budget {
    /// Checks whether an eviction may start at `now`.
    ///
    /// # Errors
    /// Returns the reason for which none may start, with the time to wait.
    pub fn check(&self, limits: &EvictionLimits, now: Monotonic) -> Result<(), Refusal> {
        if let Some(left) = self.effects.last().and_then(|last| left(*last, limits.cool_down, now)) {
            return Err(Refusal::CoolDown(left));
        }
        let recent: Vec<Duration> = self.effects.iter().filter_map(|effect| left(*effect, MINUTE, now)).collect();
        let allowed = usize::try_from(limits.max_per_minute).unwrap_or(usize::MAX);
        match recent.len().checked_sub(allowed) {
            // The newest eviction that must become older than a minute before another may start.
            Some(over) => Err(Refusal::Spent(recent.get(over).copied().unwrap_or(MINUTE))),
            None => Ok(()),
        }
    }

    /// Records an eviction that had an effect.
    pub fn spend(&mut self, now: Monotonic) {
        self.effects.retain(|effect| left(*effect, MINUTE, now).is_some());
        self.effects.push(now);
    }
}

fn left(since: Monotonic, period: Duration, now: Monotonic) -> Option<Duration> {
    period.checked_sub(now.since(since)).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EvictionLimits = EvictionLimits {
        cool_down: Duration::from_secs(2),
        max_per_minute: 2,
        kill_timeout: Duration::from_secs(5),
        reclaim_deadline: Duration::ZERO,
        act_on_present_pressure: false,
    };

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn the_cool_down_then_the_minute_refuse_an_eviction() {
        let mut budget = Budget::default();
        assert_eq!(budget.check(&LIMITS, at(10)), Ok(()));
        budget.spend(at(10));
        assert_eq!(budget.check(&LIMITS, at(11)), Err(Refusal::CoolDown(Duration::from_secs(1))));
        assert_eq!(budget.check(&LIMITS, at(12)), Ok(()));
        budget.spend(at(12));
        assert_eq!(budget.check(&LIMITS, at(20)), Err(Refusal::Spent(Duration::from_secs(50))));
        assert_eq!(budget.check(&LIMITS, at(70)), Ok(()));
    }

    #[test]
    fn a_budget_of_zero_allows_no_eviction() {
        let limits = EvictionLimits { max_per_minute: 0, ..LIMITS };
        assert_eq!(Budget::default().check(&limits, at(1)), Err(Refusal::Spent(MINUTE)));
    }
}
