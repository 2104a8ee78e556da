//! The last minute of a signal at full resolution.

use std::collections::VecDeque;
use std::time::Duration;

use crate::units::Monotonic;

/// The time before an incident that a record covers.
pub const WINDOW: Duration = Duration::from_secs(60);
/// A thousand samples a second for a little longer than the window: 1 MiB. In a storm of events the ring thins its older half.
pub const CAPACITY: usize = 65_536;

/// A value and the time from which on it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub at: Monotonic,
    pub value: u64,
}

/// A ring of samples, allocated once: adding a sample allocates nothing.
#[derive(Debug)]
pub struct SampleRing {
    ring: VecDeque<Sample>,
    capacity: usize,
    /// The number of thinned samples and the time of the last of them.
    thinned: (usize, Monotonic),
}

impl Default for SampleRing {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl SampleRing {
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(2);
        let mut ring = VecDeque::with_capacity(capacity);
        // Writing to every page now spares a later sample a page fault near a threshold.
        ring.resize(capacity, Sample { at: Monotonic(0), value: 0 });
        ring.clear();
        Self { ring, capacity, thinned: (0, Monotonic::default()) }
    }

    /// Adds a value. An unchanged value is not repeated.
    pub fn push(&mut self, at: Monotonic, value: u64) {
        if self.ring.back().is_some_and(|last| last.value == value || last.at > at) {
            return;
        }
        // The last sample before the window stays: its value held when the window began.
        while self.ring.get(1).is_some_and(|second| at.since(second.at) > WINDOW) {
            self.ring.pop_front();
        }
        if self.ring.len() >= self.capacity {
            self.thin(at);
        }
        self.ring.push_back(Sample { at, value });
    }

    /// Drops the higher of each pair of samples in the older half.
    fn thin(&mut self, now: Monotonic) {
        let half = (self.capacity / 2).next_multiple_of(2).min(self.ring.len());
        let last = self.ring.get(half.saturating_sub(1)).map_or(now, |sample| sample.at);
        for pair in 0..half / 2 {
            let (a, b) = (self.ring[2 * pair], self.ring[2 * pair + 1]);
            self.ring[pair] = if b.value < a.value { b } else { a };
        }
        self.ring.drain(half / 2..half);
        let (before, until) = self.thinned;
        let before = if now.since(until) > WINDOW { 0 } else { before };
        self.thinned = (before + half / 2, last);
    }

    /// Copies the samples of the minute before `since` and all later ones, at most `most`. Returns how many were left out: half of `most`
    /// goes to the newest samples; the older ones are grouped, and the lowest of each group is kept, so that every dip stays.
    pub fn copy_to(&self, since: Monotonic, most: usize, out: &mut Vec<Sample>) -> usize {
        out.clear();
        let begin = self.ring.partition_point(|sample| since.since(sample.at) > WINDOW).saturating_sub(1);
        let count = self.ring.len() - begin;
        let (thinned, until) = self.thinned;
        let thinned = if since.since(until) > WINDOW { 0 } else { thinned };
        if count <= most {
            out.extend(self.ring.range(begin..));
            return thinned;
        }
        let newer = most / 2;
        let older = count - newer;
        let group = older.div_ceil((most - newer).max(1));
        let mut lowest: Option<Sample> = None;
        for (index, sample) in self.ring.range(begin..begin + older).enumerate() {
            if lowest.is_none_or(|lowest| sample.value < lowest.value) {
                lowest = Some(*sample);
            }
            if (index + 1) % group == 0 || index + 1 == older {
                out.extend(lowest.take());
            }
        }
        out.extend(self.ring.range(begin + older..));
        count - out.len() + thinned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn filled(capacity: usize, samples: impl IntoIterator<Item = (u64, u64)>) -> SampleRing {
        let mut history = SampleRing::with_capacity(capacity);
        for (ms, value) in samples {
            history.push(Monotonic(ms * MS), value);
        }
        history
    }

    fn copied(history: &SampleRing, since_ms: u64, most: usize) -> (Vec<(u64, u64)>, usize) {
        let mut out = Vec::new();
        let thinned = history.copy_to(Monotonic(since_ms * MS), most, &mut out);
        (out.iter().map(|sample| (sample.at.0 / MS, sample.value)).collect(), thinned)
    }

    #[test]
    fn unchanged_values_are_not_repeated() {
        let history = filled(100, [(0, 9), (10, 9), (20, 8), (70_000, 7), (100_000, 6), (90_000, 1)]);
        assert_eq!(copied(&history, 100_000, 100), (vec![(20, 8), (70_000, 7), (100_000, 6)], 0));
        // Samples after the incident are copied, too.
        assert_eq!(copied(&history, 70_001, 100), (vec![(20, 8), (70_000, 7), (100_000, 6)], 0));
        assert_eq!(copied(&filled(100, []), 5, 100), (vec![], 0));
    }

    #[test]
    fn the_ring_never_grows() {
        let history = filled(64, (0..1000).map(|seconds| (seconds * 1000, seconds)));
        assert_eq!((history.ring.len(), history.ring.capacity()), (62, 64));
        assert_eq!(copied(&history, 999_000, 64).0.first(), Some(&(938_000, 938)));
    }

    #[test]
    fn a_storm_thins_the_minute_without_shortening_it() {
        let dip = |ms: u64| if ms == 7 { 1 } else { 1000 + ms };
        let history = filled(64, (0..5000).map(|ms| (ms, dip(ms))));
        assert!(history.ring.len() <= 64 && history.ring.capacity() == 64);
        let (kept, thinned) = copied(&history, 5000, 64);
        assert_eq!(kept.len() + thinned, 5000);
        assert!(kept.is_sorted() && kept.contains(&(7, 1)), "{kept:?}");
        assert!(kept.ends_with(&[(4998, 5998), (4999, 5999)]), "{kept:?}");
        // A minute later the thinned samples are out of the window.
        assert_eq!(copied(&history, 70_000, 64), (vec![(4999, 5999)], 0));
    }

    #[test]
    fn a_copy_keeps_the_newest_samples_and_every_dip() {
        let dip = |ms: u64| if ms == 137 { 1 } else { 1000 + ms };
        let history = filled(1000, (0..1000).map(|ms| (ms, dip(ms))));
        for most in [1, 2, 3, 10, 99, 500, 999] {
            let (kept, thinned) = copied(&history, 1000, most);
            assert!(kept.len() <= most, "{most}: {}", kept.len());
            assert_eq!(kept.len() + thinned, 1000, "{most}");
            assert!(kept.contains(&(137, 1)), "{most}");
            assert!(kept.is_sorted(), "{most}");
            let newest = kept.iter().rev().take(most / 2).map(|(ms, _)| *ms);
            assert!(newest.eq((1000 - most as u64 / 2..1000).rev()), "{most}");
        }
        assert_eq!(copied(&history, 1000, 1000).1, 0);
    }
}
