//! When a signal will have run out, if it goes on as it did lately.

use std::time::Duration;

use crate::units::Monotonic;

/// How far back the slope looks: what is this old counts a third of what is new, and after ten seconds nothing. Longer, and a ramp
/// that takes a few seconds would be over before it is believed.
const MEMORY: Duration = Duration::from_secs(2);
/// Inodes go slowly, and are looked at seldom.
const RATE_MEMORY: Duration = Duration::from_secs(5);
/// Near a threshold there are a thousand samples a second, which say no more than a hundred.
const APART: Duration = Duration::from_millis(10);
/// Before this much has been seen there is no slope to speak of.
const SHORTEST: Duration = Duration::from_millis(500);

/// The slope of a signal over the last seconds: a line through all samples with the least squares, each weighted by the time that it
/// stands for and by its age. One odd sample does not turn it, and it does not matter how often the agent looked.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slope {
    last: Option<Monotonic>,
    first: Option<Monotonic>,
    /// Values are taken relative to the first one, so that their squares stay exact.
    reference: f64,
    /// Sums over weights, times (relative to the last sample) and values.
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
        // Seen from the new sample, the old ones lie `seconds` further back.
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

    /// Units a second, negative when it falls; nothing while too little has been seen.
    pub fn per_second(&self) -> Option<f64> {
        if self.last?.since(self.first?) < SHORTEST {
            return None;
        }
        let spread = self.weight * self.time_squared - self.time * self.time;
        let slope = (self.weight * self.time_value - self.time * self.value) / spread;
        (spread > 0.0 && slope.is_finite()).then_some(slope)
    }

    /// Seconds until `distance` has been fallen through at the present slope: infinite while it does not fall, and nothing while it is not known.
    pub fn seconds_until(&self, distance: f64) -> Option<f64> {
        let slope = self.per_second()?;
        Some(seconds_until(distance, -slope))
    }
}

/// Seconds until `distance` is used up at `rate` a second: none when nothing is left, infinite when nothing is used.
pub fn seconds_until(distance: f64, rate: f64) -> f64 {
    if distance <= 0.0 {
        0.0
    } else if rate > 0.0 {
        distance / rate
    } else {
        f64::INFINITY
    }
}

/// A rate that is smoothed over the last seconds, from what was counted between two looks, however far they are apart.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SmoothRate {
    per_second: f64,
    last: Option<Monotonic>,
}

impl SmoothRate {
    /// Nothing has been counted before `at`.
    pub fn starting(at: Monotonic) -> Self {
        Self { per_second: 0.0, last: Some(at) }
    }

    /// Takes in what was counted since the look before; the first look only starts the clock.
    pub fn observe(&mut self, counted: f64, at: Monotonic) {
        let passed = self.last.map(|last| at.since(last).as_secs_f64());
        match passed {
            None => self.last = Some(at),
            Some(seconds) if seconds > 0.0 => {
                let faded = (-seconds / RATE_MEMORY.as_secs_f64()).exp();
                self.per_second = self.per_second * faded + (1.0 - faded) * counted / seconds;
                self.last = Some(at);
            }
            // At the very moment that it starts from: all that was counted before is no rate.
            Some(_) => {}
        }
    }

    /// A second; nothing before the second look.
    pub fn per_second(&self) -> f64 {
        self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Samples of `value(seconds)`, every `step` seconds until `end`.
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
    fn a_steady_fall_is_found_however_often_it_is_looked_at() {
        for step in [0.001, 0.05, 0.5, 3.0, 10.0] {
            // A 24 GiB node that loses 60 MiB a second.
            let slope = slope(step, 30.0, |time| (24.0 * 1024.0 - 60.0 * time) * 1_048_576.0);
            let found = slope.per_second().unwrap() / 1_048_576.0;
            assert!(near(found, -60.0), "{step}: {found}");
            let left = (24.0 * 1024.0 - 60.0 * 30.0) * 1_048_576.0;
            assert!(near(slope.seconds_until(left).unwrap(), left / 1_048_576.0 / 60.0), "{step}");
        }
    }

    #[test]
    fn what_was_before_is_forgotten() {
        let turned = |time: f64| if time < 20.0 { 1000.0 } else { 1000.0 - 10.0 * (time - 20.0) };
        let after = |seconds: f64| slope(0.1, 20.0 + seconds, turned).per_second().unwrap();
        assert!((-10.0..-5.0).contains(&after(4.0)), "it has begun: {}", after(4.0));
        assert!(near(after(40.0), -10.0), "{}", after(40.0));
    }

    #[test]
    fn one_odd_sample_does_not_turn_it() {
        let falling = |time: f64| 10_000.0 - 100.0 * time - if (4.95..5.05).contains(&time) { 500.0 } else { 0.0 };
        let found = slope(0.1, 10.0, falling).per_second().unwrap();
        assert!((-130.0..-70.0).contains(&found), "{found}");
    }

    #[test]
    fn what_does_not_fall_never_runs_out() {
        for (name, rises) in [("still", 0.0), ("rising", 5.0)] {
            let until = slope(0.5, 10.0, |time| 100.0 + rises * time).seconds_until(100.0);
            assert_eq!(until, Some(f64::INFINITY), "{name}");
        }
        assert_eq!(slope(0.5, 10.0, |time| 100.0 - time).seconds_until(-3.0), Some(0.0), "below it already");
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(Slope::default().per_second(), None);
        let mut slope = Slope::default();
        slope.observe(100.0, Monotonic(0));
        assert_eq!(slope.seconds_until(1.0), None);
        slope.observe(50.0, Monotonic(SECOND / 4));
        assert_eq!(slope.per_second(), None, "a quarter of a second");
        slope.observe(0.0, Monotonic(SECOND / 2));
        assert!(near(slope.per_second().unwrap(), -200.0), "{:?}", slope.per_second());
    }

    #[test]
    fn rates_are_smooth_and_end() {
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
