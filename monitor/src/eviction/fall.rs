//! Measures how fast a signal falls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Monotonic, signed_float};

/// A change over a shorter time says more about the kernel's counters, which move in jumps, than about the workloads.
const SHORTEST: Duration = Duration::from_millis(50);
/// A change since a kill over a shorter time says too little: one jump of the counters would count as a fast leak.
const SHORTEST_SINCE: Duration = Duration::from_millis(100);
/// A change of the available amount within a second is reduced by this share of the capacity, because the kernel's counters are inexact.
const NOISE_SHARE: f64 = 0.008;
/// The most by which such a change is reduced, in bytes. A CPU takes up to 2,016 free pages at once for later allocations, and they are
/// not counted as available (mm/page_alloc.c, `nr_pcp_alloc`, Linux 6.7).
const NOISE: f64 = 8.0 * 1_048_576.0;
/// About so many samples are kept.
const MOST_SAMPLES: usize = 42;
/// The share of the capacity that is assumed to be lost per minute while a threshold is met.
const LEAST_SHARE_A_MINUTE: f64 = 0.01;
/// The most that is assumed to be lost, in bytes per second: one percent of a large node in a minute is a fast leak.
const LEAST: f64 = 8.0 * 1_048_576.0;

/// The stretches of time over which the fall is averaged.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);
/// The stretch of time that tells how fast the signal falls at present.
const PRESENT: Duration = Duration::from_millis(250);

/// The recent samples of one signal, oldest first: of the last second at most one every 50 ms, before that at most one a second.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Fall(Vec<(Monotonic, i64)>);

impl Fall {
    /// Takes in one sample. A sample that follows the last one too soon is left out.
    pub fn observe(&mut self, available: i64, now: Monotonic) {
        if self.0.last().is_some_and(|(last, _)| now.since(*last) < SHORTEST) {
            return;
        }
        if self.0.capacity() == 0 {
            self.0.reserve(MOST_SAMPLES);
        }
        let mut kept: Option<Monotonic> = None;
        self.0.retain(|(at, _)| {
            let age = now.since(*at);
            let is_spaced = kept.is_none_or(|kept| at.since(kept) >= SHORT);
            let is_kept = age <= SHORT || is_spaced && age < LONG * 2;
            kept = if is_kept { Some(*at) } else { kept };
            is_kept
        });
        self.0.push((now, available));
    }

    /// Returns the larger of the average falls over one second and over ten seconds, in units of the signal per second, and the least that
    /// is assumed while a threshold is met. Returns `None` before there are two samples.
    pub fn per_second(&self, available: i64, capacity: i64, now: Monotonic) -> Option<FallNow> {
        let short = fall(&self.0, SHORT, available, now).map(|fall| fall.less_jump(capacity));
        // Soon after the start it is the average of a short time as well.
        let of_long = |fall: Fallen| if fall.passed < SHORT { fall.less_jump(capacity) } else { fall.per_second };
        let long = fall(&self.0, LONG, available, now).map(of_long);
        let measured = [short, long].into_iter().flatten().max_by(f64::total_cmp)?;
        let least = (signed_float(capacity) * LEAST_SHARE_A_MINUTE / 60.0).min(LEAST);
        let (present, present_most) = self.present(available, capacity, now).unwrap_or((measured, measured));
        Some(FallNow { measured, present, present_most, steady: long.unwrap_or(measured), least })
    }

    /// Returns the fall over the last quarter of a second: without what may be a jump of the kernel's counters, and the most that it may be,
    /// since a jump may hide a part of it. Returns `None` without a sample that is old enough.
    fn present(&self, available: i64, capacity: i64, now: Monotonic) -> Option<(f64, f64)> {
        let first = self.0.iter().rfind(|(at, _)| now.since(*at) >= PRESENT)?;
        let passed = now.since(first.0);
        let fall = since_sample(first, available, now).filter(|_| passed <= PRESENT * 2)?.per_second;
        let noise = noise(capacity) / passed.as_secs_f64();
        Some((fall - noise, fall + noise))
    }

    /// Returns by how much the signal fell per second since `then`, if that is long enough ago, but over no more than the last second: the
    /// whole fall, and the fall without what may be a jump of the counters.
    pub fn since(&self, then: Monotonic, (available, capacity): (i64, i64), now: Monotonic) -> Option<(f64, f64)> {
        let is_recent = |(at, _): &&(Monotonic, i64)| *at >= then && now.since(*at) <= SHORT;
        let first = self.0.iter().find(is_recent).filter(|(at, _)| now.since(*at) >= SHORTEST_SINCE)?;
        let fall = since_sample(first, available, now)?.per_second;
        Some((fall, fall - noise(capacity) / now.since(first.0).as_secs_f64()))
    }
}

/// Returns by how much the kernel's counters may jump, in units of the signal.
fn noise(capacity: i64) -> f64 {
    (signed_float(capacity) * NOISE_SHARE).min(NOISE)
}

/// Returns by how much the value fell per second over the stretch of time: since the newest sample that is at least as old, or else since the
/// oldest one. It is negative for a rise. Returns `None` if that sample is too recent, or too old to say anything about this stretch.
fn fall(samples: &[(Monotonic, i64)], span: Duration, value: i64, now: Monotonic) -> Option<Fallen> {
    let first = samples.iter().rposition(|(at, _)| now.since(*at) >= span).unwrap_or(0);
    let mut of_stretch = samples.iter().skip(first);
    since_sample(of_stretch.find(|(at, _)| now.since(*at) <= span * 2)?, value, now)
}

/// Returns by how much the value fell per second since the sample, unless the sample is too recent.
fn since_sample((then, before): &(Monotonic, i64), value: i64, now: Monotonic) -> Option<Fallen> {
    let passed = now.since(*then);
    let per_second = || signed_float(before.saturating_sub(value)) / passed.as_secs_f64();
    (passed >= SHORTEST).then(|| Fallen { per_second: per_second(), passed })
}

/// By how much a value fell per second over the time that has passed.
#[derive(Debug, Clone, Copy)]
struct Fallen {
    per_second: f64,
    passed: Duration,
}

impl Fallen {
    /// Returns the fall without what may be a jump of the kernel's counters. Over less than a second the same jump is a faster fall.
    fn less_jump(self, capacity: i64) -> f64 {
        self.per_second - noise(capacity) / self.passed.min(SHORT).as_secs_f64()
    }
}

/// How fast a signal falls now, in its units per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FallNow {
    /// Negative for a rise.
    pub measured: f64,
    /// The same over a quarter of a second: more than `measured` if memory has just come back, and falls again. It is `measured` if that is not
    /// known.
    pub present: f64,
    /// The same with the jump of the counters that may hide a part of it.
    pub present_most: f64,
    /// The average over ten seconds, or over the time since the first sample. The jumps of the kernel's counters hardly change it.
    pub steady: f64,
    pub least: f64,
}

impl FallNow {
    pub const fn assumed(self) -> f64 {
        self.measured.max(self.least)
    }

    /// Returns the fall without what has just stopped to grow, such as workloads that have started. A leak by steps stands still between them,
    /// so a fall of less than `least` at present says nothing.
    pub const fn that_goes_on(self) -> f64 {
        if self.present_most >= self.least { self.measured.min(self.present_most) } else { self.measured }
    }

    pub fn is_falling(self) -> bool {
        self.measured > self.least
    }
}

/// Samples of a stretch of time, oldest first. The first one is at least as old as the stretch, if a sample that old was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    span: Duration,
    spacing: Duration,
    samples: Vec<(Monotonic, i64)>,
}

impl Window {
    pub const fn of(span: Duration, spacing: Duration) -> Self {
        Self { span, spacing, samples: Vec::new() }
    }

    /// Takes in one sample. A sample that follows the last one too soon is left out.
    pub fn observe(&mut self, value: i64, now: Monotonic) {
        if self.samples.last().is_some_and(|(last, _)| now.since(*last) < self.spacing) {
            return;
        }
        let is_old = |(at, _): &(Monotonic, i64)| now.since(*at) >= self.span;
        // The newest of the old samples stays: it begins the stretch.
        let old = self.samples.iter().take_while(|sample| is_old(sample)).count();
        self.samples.drain(..old.saturating_sub(1));
        self.samples.push((now, value));
    }

    /// Returns by how much the value fell per second since the last sample.
    pub fn since_last(&self, value: i64, now: Monotonic) -> Option<f64> {
        since_sample(self.samples.last()?, value, now).map(|fall| fall.per_second)
    }

    /// Returns by how much the value fell per second over this stretch of time. It is negative for a rise.
    pub fn fall(&self, value: i64, now: Monotonic) -> Option<f64> {
        fall(&self.samples, self.span, value, now).map(|fall| fall.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: i64 = 6_000;

    #[test]
    fn the_present_fall_forgets_what_came_back() {
        let capacity = 1_000_000;
        let mut samples = Fall::default();
        // The memory of a victim came back after half a second, and something else goes on.
        let value = |ms: u64| i64::try_from(if ms < 500 { 400_000 - 400 * ms } else { 900_000 - 400 * ms }).unwrap();
        for step in 0..=16 {
            samples.observe(value(step * 50), at(step * 50));
        }
        let now = samples.per_second(value(800), capacity, at(800)).unwrap();
        assert!(now.measured < 0.0, "{now:?}");
        assert!((360_000.0..=400_000.0).contains(&now.present), "less a jump of the counters: {now:?}");
    }

    #[test]
    fn what_has_stopped_to_grow_does_not_go_on() {
        let capacity = 1_000_000;
        let mut samples = Fall::default();
        // 400,000 within half a second, then 100,000 a second.
        let value = |ms: i64| if ms <= 500 { 900_000 - 800 * ms } else { 550_000 - 100 * ms };
        (0..=16).for_each(|step| samples.observe(value(step * 50), at(step.unsigned_abs() * 50)));
        let now = samples.per_second(value(800), capacity, at(800)).unwrap();
        assert!(now.measured > 500_000.0, "{now:?}");
        assert!((130_000.0..140_000.0).contains(&now.that_goes_on()), "a jump of the counters is added: {now:?}");
        // The leaker has died, and memory comes back.
        samples.observe(480_000, at(1_000));
        let now = samples.per_second(500_000, capacity, at(1_050)).unwrap();
        assert!((now.that_goes_on() - now.measured).abs() < 1.0, "{now:?}");
    }

    fn at(milliseconds: u64) -> Monotonic {
        Monotonic(milliseconds * 1_000_000)
    }

    /// Returns the fall after samples at these milliseconds.
    fn fall(samples: &[(u64, i64)]) -> Option<i64> {
        let mut fall = Fall::default();
        samples.iter().for_each(|(then, value)| fall.observe(*value, at(*then)));
        let (now, value) = samples.last().copied()?;
        #[expect(clippy::cast_possible_truncation, reason = "small figures")]
        let rounded = |rate: f64| rate.round() as i64;
        fall.per_second(value, CAPACITY, at(now)).map(|fall| rounded(fall.assumed()))
    }

    #[test]
    fn the_faster_of_two_averages_counts() {
        for (name, samples, expected) in [
            ("one sample", &[(0, 5_000)][..], None),
            ("too short a time", &[(0, 5_000), (40, 4_000)], None),
            ("a burst of 100 ms, less a jump of the counters", &[(0, 5_000), (100, 4_900)], Some(520)),
            ("a burst after a calm", &[(0, 5_000), (9_000, 5_000), (10_000, 4_000)], Some(952)),
            ("a jump of the counters", &[(0, 5_000), (9_000, 4_995), (10_000, 4_966)], Some(3)),
            ("a pause after a fall", &[(0, 5_000), (8_000, 1_000), (9_500, 1_000)], Some(421)),
            ("a rise: one percent of the capacity a minute", &[(0, 1_000), (500, 3_000)], Some(1)),
            ("samples that are too old", &[(0, 5_000), (60_000, 1_000)], None),
        ] {
            assert_eq!(fall(samples), expected, "{name}");
        }
    }

    #[test]
    fn the_fall_since_a_kill_is_that_of_the_last_second_at_most() {
        // It falls by one each millisecond for two seconds.
        let level = |now: u64| i64::try_from(5_000 - now.min(2_000)).unwrap();
        for (name, now, since, expected) in [
            ("the fall ended long ago", 3_000, 0, Some(-48.0)),
            ("killed after the fall", 3_000, 2_500, Some(-96.0)),
            ("killed just now", 3_000, 2_920, None),
            ("it fell for half of the last second", 2_500, 0, Some(452.0)),
            ("it falls", 1_500, 1_000, Some(904.0)),
        ] {
            let mut fall = Fall::default();
            (0..now).step_by(50).for_each(|now| fall.observe(level(now), at(now)));
            let found = fall.since(at(since), (level(now), CAPACITY), at(now)).map(|(_, fall)| fall);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn few_samples_are_kept() {
        let mut fall = Fall::default();
        (0..100_000).for_each(|millisecond| fall.observe(0, at(millisecond)));
        assert!(fall.0.len() <= 42, "{}", fall.0.len());
    }
}
