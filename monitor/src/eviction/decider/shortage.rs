//! The rule of effect: what the evictions of one shortage have bought, and what the next one has to buy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::eviction::memory_benefit::{Culprits, Need};
use crate::eviction::mutants::rule;
use crate::units::{CgroupId, Monotonic, Signal};

/// A longer promise is not checked.
const LONGEST_PROMISE: Duration = Duration::from_secs(60);
/// A threshold that stays met is noted this often. Every change is written to disk.
const NOTED_EVERY: Duration = Duration::from_secs(10);
/// After this many evictions that bought less than half of what they promised, only culprits are evicted.
const POOR: u32 = 2;
/// That rule holds at most this long. It ends with the fall.
const POOR_FOR: Duration = Duration::from_secs(30);
/// The most that an eviction has to buy.
const LARGEST_MINIMUM: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Shortages {
    available: Option<Shortage>,
    allocatable: Option<Shortage>,
}

/// A leak that cannot be evicted, as it was when it was first seen in a shortage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProtectedLeak {
    /// The protected workload; `None` if something else leaks.
    pub id: Option<CgroupId>,
    /// The bytes per second by which memory falls.
    pub fall: f64,
}

/// A shortage with an eviction. It lasts until no threshold on the signal has been met for the transition period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shortage {
    /// When a threshold was last met, up to [`NOTED_EVERY`].
    met: Monotonic,
    evictions: u32,
    /// The number of evictions in the present fall. Each doubles what the next one has to buy.
    #[serde(default)]
    in_this_fall: u32,
    /// The number of evictions in the present fall that bought less than half of what they promised.
    poor: u32,
    /// When the last of them was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    poor_since: Option<Monotonic>,
    /// When the last eviction began, and the time that it promised to buy.
    promise: Option<(Monotonic, Duration)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    protected_leak: Option<ProtectedLeak>,
}

impl Shortages {
    /// Takes in the signals on which a threshold is met.
    pub(super) fn observe(&mut self, met: impl Iterator<Item = Signal>, transition: Duration, now: Monotonic) {
        // A shortage lasts at least as long as a threshold stays met, which is noted now and then.
        let lasting = transition.max(NOTED_EVERY * 2);
        for slot in [&mut self.available, &mut self.allocatable] {
            *slot = slot.filter(|shortage| now.since(shortage.met) < lasting);
        }
        for signal in met {
            if let Some(shortage) = self.of(signal)
                && now.since(shortage.met) >= NOTED_EVERY
            {
                shortage.met = now;
            }
        }
    }

    /// Records the first or a further eviction of a shortage. Before an eviction nothing has to be remembered, or written to disk.
    pub(super) fn record(&mut self, signal: Signal, bought: (bool, Duration), least: Duration, now: Monotonic) {
        if let Some(slot) = self.slot(signal) {
            slot.get_or_insert(Shortage::begin(now)).record(bought, least, now);
        }
    }

    /// Returns what leaks and cannot be evicted, until the shortage has ended or a leaker was evicted.
    pub(super) fn protected_leak(&self) -> Option<ProtectedLeak> {
        [self.available, self.allocatable].into_iter().flatten().find_map(|shortage| shortage.protected_leak)
    }

    pub(super) fn of(&mut self, signal: Signal) -> Option<&mut Shortage> {
        self.slot(signal)?.as_mut()
    }

    pub(super) fn get(mut self, signal: Signal) -> Option<Shortage> {
        self.of(signal).copied()
    }

    /// Returns `None` for a signal that is not about memory.
    const fn slot(&mut self, signal: Signal) -> Option<&mut Option<Shortage>> {
        match signal {
            Signal::MemoryAvailable => Some(&mut self.available),
            Signal::AllocatableMemoryAvailable => Some(&mut self.allocatable),
            _ => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.available.is_none() && self.allocatable.is_none()
    }
}

impl Shortage {
    const fn begin(now: Monotonic) -> Self {
        Self { met: now, evictions: 0, in_this_fall: 0, poor: 0, poor_since: None, promise: None, protected_leak: None }
    }

    /// Forgets the poor effect when the fall that caused it has ended, or after a while.
    pub(super) fn fade(&mut self, is_falling: bool, now: Monotonic) {
        if rule!(MinimumWithoutBound: false, !is_falling) {
            self.in_this_fall = 0;
        }
        if rule!(PoorForEver: true, false) {
            return;
        }
        if !is_falling || self.poor_since.is_none_or(|since| now.since(since) >= POOR_FOR) {
            (self.poor, self.poor_since) = (0, None);
        }
    }

    pub(super) const fn has_evicted(&self) -> bool {
        self.evictions > 0
    }

    /// Compares what the last eviction has bought with what it promised. Called when another one is needed.
    pub(super) fn settle(&mut self, is_falling: bool, now: Monotonic) {
        if let Some((began, promised)) = self.promise.take()
            && is_falling
            && now.since(began) < promised / 2
        {
            self.poor += 1;
            self.poor_since = Some(now);
        }
    }

    /// Adds the rules of this shortage to what an eviction has to reach.
    pub(super) fn need(&self, least: Duration, need: Need) -> Need {
        let culprits = match self.evictions {
            0 => Culprits::AsRanked,
            _ if self.poor < POOR => Culprits::First,
            _ => Culprits::Only,
        };
        Need { minimum: self.minimum(least), culprits, ..need }
    }

    fn minimum(&self, least: Duration) -> Duration {
        least
            .saturating_mul(1 << self.in_this_fall.min(16))
            .min(rule!(MinimumWithoutBound: Duration::MAX, LARGEST_MINIMUM.max(least)))
    }

    /// Notes what leaks and cannot be evicted. Its figures stay as they were first, because each change is written to disk and to the node.
    pub(super) fn note_protected_leak(&mut self, leak: ProtectedLeak) {
        if self.protected_leak.is_none_or(|known| leak.id.is_some() && known.id != leak.id) {
            self.protected_leak = Some(leak);
        }
    }

    /// Records an eviction that began: whether the victim leaks, and the time that its end buys. It promises at least the minimum.
    fn record(&mut self, (leaks, buys): (bool, Duration), least: Duration, now: Monotonic) {
        self.promise = Some((now, buys.max(self.minimum(least)).min(LONGEST_PROMISE)));
        if leaks {
            self.protected_leak = None;
        }
        self.evictions = self.evictions.saturating_add(1);
        self.in_this_fall = self.in_this_fall.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(10);
    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    /// Returns the shortage after evictions that began at these seconds and promised to buy this many seconds. Another eviction is needed a
    /// second after the last one.
    fn after(evictions: &[(u64, u64)]) -> Shortage {
        let mut shortage = Shortage::begin(at(0));
        for (began, buys) in evictions {
            shortage.settle(true, at(*began));
            shortage.record((false, Duration::from_secs(*buys)), LEAST, at(*began));
        }
        shortage.settle(true, at(evictions.last().map_or(0, |(began, _)| began + 1)));
        shortage
    }

    #[test]
    fn culprits_go_first_and_later_alone() {
        for (name, evictions, culprits, minimum) in [
            ("the first eviction", &[][..], Culprits::AsRanked, 10),
            ("the second", &[(0, 30)], Culprits::First, 20),
            ("all but the last bought what they promised", &[(0, 30), (30, 60), (90, 60)], Culprits::First, 60),
            ("two bought too little", &[(0, 1), (1, 1)], Culprits::Only, 40),
        ] {
            let need = after(evictions).need(LEAST, Need::default());
            assert_eq!((need.culprits, need.minimum.as_secs()), (culprits, minimum), "{name}");
        }
    }

    #[test]
    fn poor_effect_fades() {
        // Two evictions that bought too little; the second was found poor after two seconds.
        for (name, is_falling, seconds, culprits, minimum) in [
            ("the fall goes on", true, 31, Culprits::Only, 40),
            ("for half a minute", true, 32, Culprits::First, 40),
            ("the fall has ended", false, 3, Culprits::First, 10),
        ] {
            let mut shortage = after(&[(0, 1), (1, 1)]);
            shortage.fade(is_falling, at(seconds));
            let need = shortage.need(LEAST, Need::default());
            assert_eq!((need.culprits, need.minimum.as_secs()), (culprits, minimum), "{name}");
        }
    }

    #[test]
    fn a_protected_leak_lasts_until_the_shortage_has_ended() {
        let (signal, leak) = (Signal::MemoryAvailable, |fall| ProtectedLeak { id: Some(CgroupId(7)), fall });
        let mut all = Shortages::default();
        all.record(signal, (false, LEAST), LEAST, at(0));
        assert_eq!(all.protected_leak(), None);
        for fall in [5.0, 6.0] {
            all.of(signal).unwrap().note_protected_leak(leak(fall));
        }
        all.of(signal).unwrap().note_protected_leak(ProtectedLeak { id: None, fall: 7.0 });
        assert_eq!(all.protected_leak(), Some(leak(5.0)));
        let kept = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Shortages>(&kept).unwrap(), all, "also over a restart");
        all.observe(std::iter::empty(), MINUTE, at(59));
        assert_eq!(all.protected_leak(), Some(leak(5.0)));
        let mut leaked = all;
        leaked.record(signal, (true, LEAST), LEAST, at(59));
        assert_eq!(leaked.protected_leak(), None, "another leaker was found and evicted");
        all.observe(std::iter::empty(), MINUTE, at(60));
        assert_eq!(all.protected_leak(), None);
    }

    #[test]
    fn a_shortage_ends_after_the_transition_period() {
        let mut all = Shortages::default();
        let (memory, disk) = (Signal::MemoryAvailable, Signal::NodeFsAvailable);
        all.observe([memory, disk].into_iter(), MINUTE, at(0));
        assert!(all.is_empty(), "nothing was evicted");
        all.record(memory, (false, LEAST), LEAST, at(0));
        for (now, met, evictions) in
            [(59, false, Some(1)), (59, true, Some(1)), (118, false, Some(1)), (119, false, None)]
        {
            all.observe(met.then_some(memory).into_iter(), MINUTE, at(now));
            assert_eq!(all.of(memory).map(|shortage| shortage.evictions), evictions, "{now} s");
        }
    }
}
