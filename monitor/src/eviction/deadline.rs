//! Computes when to sample next: at the soonest moment at which a threshold could be crossed.

use std::time::Duration;

use crate::config::{Policy, Sampling, Threshold};
use crate::units::{Amount, Bytes, Monotonic};

use super::{NodeCondition, Observation};

/// The fastest fall of a signal that was seen lately or that is assumed possible. The rate that was seen halves every `HALF_LIFE`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FallRate {
    possible: f64,
    seen: f64,
    last: Option<(f64, Monotonic)>,
}

const HALF_LIFE: Duration = Duration::from_secs(60);
/// Samples closer together than this are ignored: the kernel's counters move in jumps, and a short interval would measure a jump.
const SHORTEST: Duration = Duration::from_micros(500);

impl FallRate {
    /// Returns a rate for a signal in bytes. No fall has been seen yet; `possible` bytes per second are assumed in any case.
    pub fn assuming(possible: Bytes) -> Self {
        Self::of_units(possible.as_f64())
    }

    /// Returns a rate for a signal in any unit. `possible` units per second are assumed in any case.
    pub const fn of_units(possible: f64) -> Self {
        Self { possible, seen: 0.0, last: None }
    }

    /// Takes in one more sample, in bytes.
    pub fn observe(&mut self, available: Bytes, at: Monotonic) {
        self.observe_units(available.as_f64(), at);
    }

    /// Takes in one more sample, in the unit of the signal.
    pub fn observe_units(&mut self, available: f64, at: Monotonic) {
        let Some((before, then)) = self.last else {
            self.last = Some((available, at));
            return;
        };
        let passed = at.since(then);
        if passed < SHORTEST {
            return;
        }
        self.last = Some((available, at));
        let fall = (before - available).max(0.0) / passed.as_secs_f64();
        let faded = self.seen * 0.5_f64.powf(passed.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.seen = fall.max(faded);
    }

    /// Takes in a rate of fall that another source measured sooner.
    pub fn believe(&mut self, per_second: f64) {
        self.seen = self.seen.max(per_second);
    }

    /// Returns the rate of a signal that falls so many times as fast.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { possible: self.possible * factor, seen: self.seen * factor, last: None }
    }

    /// Returns the greater of the rate that was seen and the rate that is possible, in units (mostly bytes) per second; at least one.
    pub fn bytes_per_second(&self) -> f64 {
        self.seen.max(self.possible).max(1.0)
    }
}

/// The interval while a threshold is crossed. It only has to be short enough to notice the recovery of the signal.
const CROSSED: Duration = Duration::from_millis(100);

/// A threshold that could be crossed within this time is sampled four times as often: a few more samples cost little, and the
/// kernel's counters move in jumps.
const NEAR: Duration = Duration::from_millis(50);

/// Returns the time until the next sample of memory: the time in which the signal nearest to a threshold could reach the threshold at
/// the fastest rate seen or possible. The result lies between the floor and the ceiling.
pub fn until_next_sample(policy: &Policy, sampling: &Sampling, observation: &Observation, rate: &FallRate) -> Duration {
    let until = |threshold: &Threshold| {
        Some(match until_reached(policy, threshold, observation, rate)? {
            Reach::Crossed => CROSSED,
            Reach::In(until) if until < NEAR => until / 4,
            Reach::In(until) => until,
        })
    };
    let is_memory = |threshold: &&Threshold| NodeCondition::of(threshold.signal) == NodeCondition::MemoryPressure;
    let soonest = policy.thresholds.iter().filter(is_memory).filter_map(until).min();
    soonest.unwrap_or(sampling.ceiling).clamp(sampling.floor, sampling.ceiling)
}

/// How far away a threshold is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The signal is below it.
    Crossed,
    /// The signal needs this time to reach the threshold, at the fastest rate seen or assumed possible.
    In(Duration),
}

/// Returns how far away `threshold` is. Returns `None` if its signal is not observed, or if the time is too long for a `Duration`.
pub fn until_reached(
    policy: &Policy,
    threshold: &Threshold,
    observation: &Observation,
    rate: &FallRate,
) -> Option<Reach> {
    let value = observation.get(threshold.signal)?;
    let distance = Amount::from_units(value.available) - threshold.value.resolve(value.capacity, policy.quirks);
    if distance.is_negative() {
        return Some(Reach::Crossed);
    }
    // Whole units of the signal. They are not always bytes.
    let distance = distance.bytes().as_f64();
    Duration::try_from_secs_f64(distance / rate.bytes_per_second()).ok().map(Reach::In)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MonitorConfig;
    use crate::eviction::SignalValue;
    use crate::units::Signal;

    const MIB: u64 = 1 << 20;

    fn until(available_mib: u64, rate: &FallRate) -> Duration {
        let config = MonitorConfig::default();
        let (available, capacity) = (Bytes(available_mib * MIB), Bytes(1024 * MIB));
        let observation = Observation { signals: vec![SignalValue::now(Signal::MemoryAvailable, available, capacity)] };
        until_next_sample(&config.policy, &config.sampling, &observation, rate)
    }

    #[test]
    fn a_nearer_threshold_shortens_the_interval() {
        let still = FallRate::assuming(Bytes(6 << 30));
        assert_eq!(until(100 + 6 * 1024, &still), Duration::from_secs(1));
        assert_eq!(until(100 + 614, &still).as_millis(), 99);
        assert_eq!(until(100 + 60, &still).as_micros(), 2441, "a near threshold is sampled four times as often");
        assert_eq!(until(101, &still), Duration::from_millis(1), "the floor");
        assert_eq!(until(50, &still), CROSSED, "the threshold is crossed");
        assert_eq!(until(1 << 20, &still), Duration::from_secs(10), "the ceiling");
    }

    #[test]
    fn a_fall_faster_than_assumed_sets_the_rate() {
        let mut rate = FallRate::assuming(Bytes(6 << 30));
        rate.observe(Bytes(30 << 30), Monotonic(0));
        rate.observe(Bytes(18 << 30), Monotonic(1_000_000_000));
        assert_eq!(until(100 + 12 * 1024, &rate), Duration::from_secs(1));
    }

    #[test]
    fn only_memory_thresholds_set_the_interval() {
        let text = "{apiVersion: node-pressure-monitor/v1alpha1, kind: MonitorConfiguration, evictionHard: {pid.available: 100}}";
        let config = MonitorConfig::parse("m.yaml", text).unwrap().config;
        let value = |available| SignalValue { signal: Signal::PidAvailable, available, capacity: 4096, at: None };
        let observation = |available| Observation { signals: vec![value(available)] };
        let mut rate = FallRate::of_units(1000.0);
        let until = until_next_sample(&config.policy, &config.sampling, &observation(50), &rate);
        assert_eq!(until, config.sampling.ceiling);
        let threshold = &config.policy.thresholds[0];
        let mut reach = |available, believed| {
            rate.believe(believed);
            until_reached(&config.policy, threshold, &observation(available), &rate)
        };
        assert_eq!(reach(600, 0.0), Some(Reach::In(Duration::from_millis(500))));
        assert_eq!(
            reach(600, 5000.0),
            Some(Reach::In(Duration::from_millis(100))),
            "another source measured a faster fall"
        );
        assert_eq!(reach(99, 0.0), Some(Reach::Crossed));
        assert_eq!(until_reached(&config.policy, threshold, &Observation::default(), &rate), None);
    }

    #[test]
    fn a_fall_rate_halves_every_minute() {
        let mut rate = FallRate::assuming(Bytes(0));
        rate.observe(Bytes(2000), Monotonic(0));
        rate.observe(Bytes(1000), Monotonic(1_000_000_000));
        assert!((rate.bytes_per_second() - 1000.0).abs() < 1e-6);
        rate.observe(Bytes(1000), Monotonic(61_000_000_000));
        assert!((rate.bytes_per_second() - 500.0).abs() < 1e-6);
    }

    #[test]
    fn without_thresholds_the_interval_is_the_ceiling() {
        let mut config = MonitorConfig::default();
        config.policy.thresholds.clear();
        let observation = Observation::default();
        let until = until_next_sample(&config.policy, &config.sampling, &observation, &FallRate::assuming(Bytes(1)));
        assert_eq!(until, config.sampling.ceiling);
    }
}
