//! Extrapolates when a signal will run out.

use std::time::Duration;

use crate::units::{Monotonic, signed_float};

/// The time in which the weight of a sample falls to a third. After ten seconds a sample hardly counts. With a longer time, a fall that
/// lasts a few seconds would be over before the slope shows it.
const MEMORY: Duration = Duration::from_secs(2);
/// The same for [`SmoothRate`]. It is longer because inodes are used up slowly and sampled rarely.
const RATE_MEMORY: Duration = Duration::from_secs(5);
/// Samples closer together than this are ignored. Near a threshold the agent samples a thousand times a second; a hundred samples give
/// the same slope.
const APART: Duration = Duration::from_millis(10);
/// The slope is unknown until the samples cover this time.
const SHORTEST: Duration = Duration::from_millis(500);

/// A rate that was measured over seconds says nothing about a time beyond this many seconds (one hour).
pub const FORESEEABLE: f64 = 3_600.0;

/// The slope of a signal over the last seconds: a least-squares line through all samples. Each sample is weighted by the time that it
/// stands for and by its age. One outlier therefore hardly changes the slope, and the sampling rate does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slope {
    last: Option<Monotonic>,
    first: Option<Monotonic>,
    /// The first value. Sums hold values relative to it, so that they stay exact.
    reference: f64,
    /// The sums over the weights, the times (relative to the last sample) and the values.
    weight: f64,
    time: f64,
    value: f64,
    time_squared: f64,
    time_value: f64,
}

impl Slope {
    /// Takes in one more sample.
    pub fn observe(&mut self, value: f64, at: Monotonic) {
        let Some(last) = self.last else {
            *self = Self { last: Some(at), first: Some(at), reference: value, weight: 1.0, ..Self::default() };
            return;
        };
        let passed = at.since(last);
        if passed < APART {
            return;
        }
        self.last = Some(at);
        let seconds = passed.as_secs_f64();
        let faded = (-seconds / MEMORY.as_secs_f64()).exp();
        // Times are relative to the last sample, so the old samples move `seconds` further back.
        self.time_squared += seconds * seconds * self.weight - 2.0 * seconds * self.time;
        self.time_value -= seconds * self.value;
        self.time -= seconds * self.weight;
        for sum in [&mut self.weight, &mut self.time, &mut self.value, &mut self.time_squared, &mut self.time_value] {
            *sum *= faded;
        }
        let weight = 1.0 - faded;
        self.weight += weight;
        self.value += weight * (value - self.reference);
    }

    /// Returns the slope in units per second, or `None` while the samples cover too little time. The slope is negative while the signal
    /// falls.
    pub fn per_second(&self) -> Option<f64> {
        if self.last?.since(self.first?) < SHORTEST {
            return None;
        }
        let spread = self.weight * self.time_squared - self.time * self.time;
        let slope = (self.weight * self.time_value - self.time * self.value) / spread;
        (spread > 0.0 && slope.is_finite()).then_some(slope)
    }

    /// Returns the seconds until the signal has fallen by `distance` at the present slope. Returns infinity while the signal does not fall,
    /// and `None` while the slope is unknown.
    pub fn seconds_until(&self, distance: f64) -> Option<f64> {
        let slope = self.per_second()?;
        Some(seconds_until(distance, -slope))
    }
}

/// Returns the seconds until `distance` is used up at `rate` per second. Returns zero if nothing is left, and infinity if the rate is
/// not positive.
pub fn seconds_until(distance: f64, rate: f64) -> f64 {
    if distance <= 0.0 {
        0.0
    } else if rate > 0.0 {
        distance / rate
    } else {
        f64::INFINITY
    }
}

/// Returns the seconds until `distance` is used up at a change of `per_second`, if that can be foreseen.
pub fn foreseeable_seconds(distance: i64, per_second: f64) -> Option<f64> {
    Some(seconds_until(signed_float(distance), -per_second)).filter(|seconds| *seconds <= FORESEEABLE)
}

/// A rate that is smoothed over the last seconds. It is computed from counts between two samples, however far apart they are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SmoothRate {
    per_second: f64,
    last: Option<Monotonic>,
}

impl SmoothRate {
    /// Returns a rate that starts from zero at `at`.
    pub fn starting(at: Monotonic) -> Self {
        Self { per_second: 0.0, last: Some(at) }
    }

    /// Takes in the count since the sample before. The first sample only sets the start.
    pub fn observe(&mut self, counted: f64, at: Monotonic) {
        let passed = self.last.map(|last| at.since(last).as_secs_f64());
        match passed {
            None => self.last = Some(at),
            Some(seconds) if seconds > 0.0 => {
                let faded = (-seconds / RATE_MEMORY.as_secs_f64()).exp();
                self.per_second = self.per_second * faded + (1.0 - faded) * counted / seconds;
                self.last = Some(at);
            }
            // No time has passed since the sample before, so the count gives no rate.
            Some(_) => {}
        }
    }

    /// Returns the rate per second. It is zero before the second sample.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Returns the slope after samples of `value(seconds)`, taken every `step` seconds until `end`.
    fn slope(step: f64, end: f64, value: impl Fn(f64) -> f64) -> Slope {
        let mut slope = Slope::default();
        let mut time = 0.0;
        while time <= end {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
            slope.observe(value(time), Monotonic((time * 1e9) as u64));
            time += step;
        }
        slope
    }

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected.abs() * 0.01 + 1e-6
    }

    #[test]
    fn the_slope_does_not_depend_on_the_sampling_rate() {
        for step in [0.001, 0.05, 0.5, 3.0, 10.0] {
            // A node with 24 GiB loses 60 MiB a second.
            let slope = slope(step, 30.0, |time| (24.0 * 1024.0 - 60.0 * time) * 1_048_576.0);
            let found = slope.per_second().unwrap() / 1_048_576.0;
            assert!(near(found, -60.0), "{step}: {found}");
            let left = (24.0 * 1024.0 - 60.0 * 30.0) * 1_048_576.0;
            assert!(near(slope.seconds_until(left).unwrap(), left / 1_048_576.0 / 60.0), "{step}");
        }
    }

    #[test]
    fn old_samples_lose_their_weight() {
        let turned = |time: f64| if time < 20.0 { 1000.0 } else { 1000.0 - 10.0 * (time - 20.0) };
        let after = |seconds: f64| slope(0.1, 20.0 + seconds, turned).per_second().unwrap();
        assert!((-10.0..-5.0).contains(&after(4.0)), "the slope turns after four seconds: {}", after(4.0));
        assert!(near(after(40.0), -10.0), "{}", after(40.0));
    }

    #[test]
    fn one_outlier_hardly_changes_the_slope() {
        let falling = |time: f64| 10_000.0 - 100.0 * time - if (4.95..5.05).contains(&time) { 500.0 } else { 0.0 };
        let found = slope(0.1, 10.0, falling).per_second().unwrap();
        assert!((-130.0..-70.0).contains(&found), "{found}");
    }

    #[test]
    fn a_signal_that_does_not_fall_never_runs_out() {
        for (name, rises) in [("still", 0.0), ("rising", 5.0)] {
            let until = slope(0.5, 10.0, |time| 100.0 + rises * time).seconds_until(100.0);
            assert_eq!(until, Some(f64::INFINITY), "{name}");
        }
        assert_eq!(slope(0.5, 10.0, |time| 100.0 - time).seconds_until(-3.0), Some(0.0), "nothing is left already");
    }

    #[test]
    fn a_slope_needs_half_a_second_of_samples() {
        assert_eq!(Slope::default().per_second(), None);
        let mut slope = Slope::default();
        slope.observe(100.0, Monotonic(0));
        assert_eq!(slope.seconds_until(1.0), None);
        slope.observe(50.0, Monotonic(SECOND / 4));
        assert_eq!(slope.per_second(), None, "the samples cover a quarter of a second");
        slope.observe(0.0, Monotonic(SECOND / 2));
        assert!(near(slope.per_second().unwrap(), -200.0), "{:?}", slope.per_second());
    }

    #[test]
    fn a_smooth_rate_fades_when_nothing_is_counted() {
        let mut rate = SmoothRate::default();
        for second in 0..60 {
            rate.observe(30.0, Monotonic(second * SECOND));
        }
        assert!(near(rate.per_second(), 30.0), "{}", rate.per_second());
        rate.observe(0.0, Monotonic(89 * SECOND));
        assert!(rate.per_second() < 0.2, "{}", rate.per_second());
        assert!(near(seconds_until(300.0, 30.0), 10.0));
    }
}
