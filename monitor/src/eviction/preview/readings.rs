//! The growth of pods, from the statistics of one moment to those of the next.

use std::collections::HashMap;
use std::time::Duration;

use crate::eviction::fall::Window;
use crate::eviction::growth;
use crate::units::{Bytes, CgroupId, Monotonic};

/// A growth is the average over this time, as in the agent.
const SPAN: Duration = Duration::from_secs(1);
/// A reading that follows the last one sooner is not kept.
const SPACING: Duration = Duration::from_millis(200);
/// Readings further apart tell no growth. The average fall of the signal reaches back as far.
pub const LONGEST_GAP: Duration = Duration::from_secs(20);

/// The last reading of each pod.
#[derive(Debug, Default)]
pub struct Readings(HashMap<CgroupId, Reading>);

#[derive(Debug)]
struct Reading {
    window: Window,
    gain: Bytes,
    at: Monotonic,
    /// Bytes per second, once there are two readings.
    growth: Option<i64>,
}

impl Readings {
    /// Takes what the end of each pod gives back, and when that was measured. Forgets every other pod.
    pub fn take(&mut self, all: impl Iterator<Item = (CgroupId, Bytes, Monotonic)>) {
        let mut before = std::mem::take(&mut self.0);
        let next = |(id, gain, at)| match before.remove(&id) {
            Some(reading) => (id, reading.next(gain, at)),
            None => (id, Reading::first(gain, at)),
        };
        self.0 = all.map(next).collect();
    }

    /// Returns the bytes per second by which the pod grows, if that was measured lately.
    pub fn growth(&self, id: CgroupId, now: Monotonic) -> Option<i64> {
        let reading = self.0.get(&id)?;
        reading.growth.filter(|_| now.since(reading.at) <= LONGEST_GAP)
    }

    /// Returns the one of these pods that grows fastest, with its growth.
    pub fn fastest(&self, among: impl Iterator<Item = CgroupId>, now: Monotonic) -> Option<(CgroupId, i64)> {
        growth::fastest(among.filter_map(|id| Some((id, self.growth(id, now)?))))
    }
}

impl Reading {
    fn first(gain: Bytes, at: Monotonic) -> Self {
        let mut window = Window::of(SPAN, SPACING);
        window.observe(gain.signed(), at);
        Self { window, gain, at, growth: None }
    }

    /// Statistics that were not renewed are no reading: a kubelet renews those of a pod about every ten seconds.
    fn next(mut self, gain: Bytes, at: Monotonic) -> Self {
        let passed = at.since(self.at);
        if passed.is_zero() {
            return if at < self.at { Self::first(gain, at) } else { self };
        }
        let since_last = || growth::per_second(gain.signed() - self.gain.signed(), passed);
        let over_span = self.window.fall(gain.signed(), at).map(|fall| growth::rounded(-fall));
        let growth = over_span.or_else(|| since_last().filter(|_| passed <= LONGEST_GAP));
        self.window.observe(gain.signed(), at);
        Self { window: self.window, gain, at, growth }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: CgroupId = CgroupId(1);

    fn at(milliseconds: u64) -> Monotonic {
        Monotonic(milliseconds * 1_000_000)
    }

    /// Returns the growth after readings at these milliseconds, asked for at the last of the times.
    fn growth(readings: &[(u64, u64)], asked: u64) -> Option<i64> {
        let mut all = Readings::default();
        for (milliseconds, bytes) in readings {
            all.take(std::iter::once((ID, Bytes(*bytes), at(*milliseconds))));
        }
        all.growth(ID, at(asked))
    }

    #[test]
    fn growth_takes_two_readings_that_are_close() {
        for (name, readings, asked, expected) in [
            ("one reading", &[(0, 100)][..], 0, None),
            ("a second apart", &[(0, 100), (1_000, 300)], 1_000, Some(200)),
            ("ten seconds apart, as a kubelet measures", &[(0, 100), (10_000, 300)], 10_000, Some(20)),
            ("too far apart", &[(0, 100), (21_000, 300)], 21_000, None),
            ("a pod that shrinks", &[(0, 300), (1_000, 100)], 1_000, Some(-200)),
            ("statistics that were not renewed", &[(0, 100), (10_000, 300), (10_000, 300)], 15_000, Some(20)),
            ("statistics that are old", &[(0, 100), (10_000, 300)], 31_000, None),
            ("a clock that went back", &[(0, 100), (10_000, 300), (5_000, 400)], 5_000, None),
            ("the last second of many readings", &[(0, 0), (500, 0), (1_000, 0), (1_500, 50)], 1_500, Some(50)),
        ] {
            assert_eq!(growth(readings, asked), expected, "{name}");
        }
    }

    #[test]
    fn a_pod_that_is_gone_is_forgotten() {
        let mut all = Readings::default();
        all.take([(ID, Bytes(1), at(0)), (CgroupId(2), Bytes(1), at(0))].into_iter());
        all.take(std::iter::once((CgroupId(2), Bytes(9), at(1_000))));
        assert_eq!((all.0.len(), all.growth(CgroupId(2), at(1_000))), (1, Some(8)));
        assert_eq!(all.fastest([ID, CgroupId(2)].into_iter(), at(1_000)), Some((CgroupId(2), 8)));
    }
}
