//! When to look next: the soonest moment at which a threshold could be crossed.

use std::time::Duration;

use crate::config::{Policy, Sampling, Threshold};
use crate::units::{Amount, Bytes, Monotonic};

use super::{NodeCondition, Observation};

/// The fastest fall of a signal seen lately, or possible. Forgets what it saw slowly: half every `HALF_LIFE`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FallRate {
    possible: f64,
    seen: f64,
    last: Option<(f64, Monotonic)>,
}

const HALF_LIFE: Duration = Duration::from_secs(60);
/// A fall measured over less says more about the kernel's counters than about memory.
const SHORTEST: Duration = Duration::from_micros(500);

impl FallRate {
    /// Nothing seen yet; `possible` bytes per second are assumed in any case.
    pub fn assuming(possible: Bytes) -> Self {
        Self::of_units(possible.as_f64())
    }

    /// The same of anything that is counted.
    pub const fn of_units(possible: f64) -> Self {
        Self { possible, seen: 0.0, last: None }
    }

    /// Takes in one more sample.
    pub fn observe(&mut self, available: Bytes, at: Monotonic) {
        self.observe_units(available.as_f64(), at);
    }

    /// Takes in one more sample of anything that is counted.
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

    /// Takes somebody else's word for how fast it falls, who saw it sooner.
    pub fn believe(&mut self, per_second: f64) {
        self.seen = self.seen.max(per_second);
    }

    /// The greater of both, in bytes (or what else is counted) per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.seen.max(self.possible).max(1.0)
    }
}

/// While a threshold is crossed there is nothing left to catch on its way down: often enough to see it recover.
const CROSSED: Duration = Duration::from_millis(100);

/// So near, in time, a few looks more cost little, and the kernel's counters move in jumps.
const NEAR: Duration = Duration::from_millis(50);

/// How long until the next sample of memory: the time in which the signal nearest to a threshold could reach it at the fastest rate seen
/// or assumed possible, between the floor and the ceiling.
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
    /// At the fastest rate seen or assumed possible it takes so long to get there.
    In(Duration),
}

/// How far away `threshold` is; nothing where its signal is not observed, or it is too far to be told.
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
    // Whole units of whatever is counted.
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
    fn the_closer_the_sooner() {
        let still = FallRate::assuming(Bytes(6 << 30));
        assert_eq!(until(100 + 6 * 1024, &still), Duration::from_secs(1));
        assert_eq!(until(100 + 614, &still).as_millis(), 99);
        assert_eq!(until(100 + 60, &still).as_micros(), 2441, "near: four times as often");
        assert_eq!(until(101, &still), Duration::from_millis(1), "the floor");
        assert_eq!(until(50, &still), CROSSED, "crossed already");
        assert_eq!(until(1 << 20, &still), Duration::from_secs(10), "the ceiling");
    }

    #[test]
    fn a_faster_fall_than_assumed_is_believed() {
        let mut rate = FallRate::assuming(Bytes(6 << 30));
        rate.observe(Bytes(30 << 30), Monotonic(0));
        rate.observe(Bytes(18 << 30), Monotonic(1_000_000_000));
        assert_eq!(until(100 + 12 * 1024, &rate), Duration::from_secs(1));
    }

    #[test]
    fn what_is_no_memory_is_looked_at_by_others() {
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
        assert_eq!(reach(600, 5000.0), Some(Reach::In(Duration::from_millis(100))), "somebody saw it go faster");
        assert_eq!(reach(99, 0.0), Some(Reach::Crossed));
        assert_eq!(until_reached(&config.policy, threshold, &Observation::default(), &rate), None);
    }

    #[test]
    fn rates_fade() {
        let mut rate = FallRate::assuming(Bytes(0));
        rate.observe(Bytes(2000), Monotonic(0));
        rate.observe(Bytes(1000), Monotonic(1_000_000_000));
        assert!((rate.bytes_per_second() - 1000.0).abs() < 1e-6);
        rate.observe(Bytes(1000), Monotonic(61_000_000_000));
        assert!((rate.bytes_per_second() - 500.0).abs() < 1e-6);
    }

    #[test]
    fn without_thresholds_only_the_ceiling_counts() {
        let mut config = MonitorConfig::default();
        config.policy.thresholds.clear();
        let observation = Observation::default();
        let until = until_next_sample(&config.policy, &config.sampling, &observation, &FallRate::assuming(Bytes(1)));
        assert_eq!(until, config.sampling.ceiling);
    }
}
