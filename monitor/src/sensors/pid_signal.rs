//! `pid.available`. The loop reads it early enough before process ids can run out.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{MonitorConfig, Policy, Threshold};
use crate::eviction::deadline::{FallRate, Reach, until_reached};
use crate::eviction::{Observation, SignalValue};
use crate::node::{PidReader, PidSample, cpus};
use crate::units::{Monotonic, Signal, signed, signed_float};

/// The number of process ids that one CPU can use up per second, rounded up. A fork takes about 50 us.
const FORKS_PER_CPU: f64 = 20_000.0;
/// The shortest wait, near the threshold.
const FLOOR: Duration = Duration::from_millis(5);
/// The wait while the threshold is crossed, to notice the recovery.
const CROSSED: Duration = Duration::from_millis(100);
/// The wait without a threshold, when the figure is only shown.
const UNARMED: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct PidSignal {
    proc_root: PathBuf,
    reader: Option<PidReader>,
    sample: Option<PidSample>,
    rate: FallRate,
    missing: Option<String>,
}

impl PidSignal {
    pub fn open(config: &MonitorConfig) -> Self {
        // The program reports once that the number is a guess.
        let (cpus, _guessed) = cpus::online();
        #[expect(clippy::cast_precision_loss, reason = "there are fewer CPUs than 2^53")]
        let rate = FallRate::of_units(cpus as f64 * FORKS_PER_CPU);
        let proc_root = config.proc_root.clone();
        let mut pids = Self { proc_root, reader: None, sample: None, rate, missing: None };
        pids.reconfigure(&config.policy);
        pids
    }

    /// Opens the files if that failed before. A failure is a missing capability only if a threshold is set.
    pub(super) fn reconfigure(&mut self, policy: &Policy) {
        self.missing = None;
        if self.reader.is_some() {
            return;
        }
        match PidReader::open(&self.proc_root) {
            Ok(reader) => self.reader = Some(reader),
            Err(error) if policy.thresholds.iter().any(is_of_pids) => {
                self.missing = Some(format!("{error}; there is no such signal"));
            }
            Err(_) => {}
        }
    }

    /// Reads the number of process ids. Reuses an old one if no threshold is armed. After an error there is no signal.
    pub(super) fn observe(&mut self, is_armed: bool, now: Monotonic) {
        if !is_armed && self.sample.is_some_and(|sample| now.since(sample.at) < UNARMED) {
            return;
        }
        let Some(reader) = &mut self.reader else { return };
        let sampled = reader.sample();
        self.sample = sampled.as_ref().ok().copied();
        if let Some(sample) = self.sample {
            self.rate.observe_units(signed_float(value(&sample).available), sample.at);
        }
        self.missing = sampled.err().map(|error| format!("{error}; there is no such signal"));
    }

    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub(super) fn value(&self) -> Option<SignalValue> {
        self.sample.as_ref().map(value)
    }

    pub(super) fn sampled(&self) -> Option<Monotonic> {
        self.sample.map(|sample| sample.at)
    }

    /// Returns how long until the next read; nothing without a threshold.
    pub fn until_due(&self, policy: &Policy, ceiling: Duration, now: Monotonic) -> Option<Duration> {
        let sample = self.sample?;
        let observation = Observation { signals: vec![value(&sample)] };
        let reach = |threshold: &Threshold| until_reached(policy, threshold, &observation, &self.rate);
        let until = policy.thresholds.iter().filter_map(reach).map(|reach| match reach {
            Reach::Crossed => CROSSED,
            Reach::In(until) => until,
        });
        until.min().map(|until| until.clamp(FLOOR, ceiling.max(FLOOR)).saturating_sub(now.since(sample.at)))
    }
}

fn is_of_pids(threshold: &Threshold) -> bool {
    threshold.signal == Signal::PidAvailable
}

fn value(sample: &PidSample) -> SignalValue {
    SignalValue {
        signal: Signal::PidAvailable,
        available: signed(sample.available()),
        capacity: signed(sample.most),
        at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(hard: &str) -> MonitorConfig {
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        MonitorConfig::parse("m.yaml", &format!("{head}evictionHard: {{{hard}}}\n")).unwrap().config
    }

    fn until(pids: &PidSignal, config: &MonitorConfig, now: Monotonic) -> Option<Duration> {
        pids.until_due(&config.policy, config.sampling.ceiling, now)
    }

    #[test]
    fn process_ids_are_read_before_they_can_run_out() {
        let pids = |tasks| PidSignal {
            rate: FallRate::of_units(20_000.0),
            sample: Some(PidSample { tasks, most: 4096, at: Monotonic(0) }),
            ..PidSignal::open(&config("memory.available: 1"))
        };
        let until = |tasks, hard| until(&pids(tasks), &config(hard), Monotonic(0)).map(|until| until.as_millis());
        assert_eq!(until(96, "pid.available: 1000"), Some(150), "3000 ids at 20,000 per second");
        assert_eq!(until(3090, "pid.available: 1000"), Some(5), "the floor");
        assert_eq!(until(3097, "pid.available: 1000"), Some(100), "crossed");
        assert_eq!(until(96, "memory.available: 1Mi"), None, "no threshold");
    }

    #[test]
    fn unreadable_process_ids_are_missing_where_a_threshold_is_set() {
        let nowhere = |hard| MonitorConfig { proc_root: "/nonexistent".into(), ..config(hard) };
        let mut pids = PidSignal::open(&nowhere("memory.available: 1"));
        assert_eq!(pids.missing(), None);
        pids.reconfigure(&config("pid.available: 10").policy);
        assert!(pids.missing().is_some_and(|reason| reason.ends_with("there is no such signal")));
        pids.reconfigure(&config("memory.available: 1").policy);
        assert_eq!(pids.missing(), None);
    }

    /// Tests a fork bomb with `pid_max` 4096 on two CPUs. The bomb begins at each moment between two reads.
    #[test]
    fn a_fork_bomb_is_noticed_while_process_ids_are_left() {
        let config = config("pid.available: 10%");
        let mut pids = PidSignal::open(&config);
        let mut worst = u64::MAX;
        for begins_ms in 0..100 {
            let forks_per_ms = 40;
            let tasks = |ms: u64| 100 + forks_per_ms * ms.saturating_sub(begins_ms);
            pids.rate = FallRate::of_units(2.0 * FORKS_PER_CPU);
            let mut ms = 0;
            let left = loop {
                let sample = PidSample { tasks: tasks(ms), most: 4096, at: Monotonic(ms * 1_000_000) };
                pids.rate.observe_units(signed_float(value(&sample).available), sample.at);
                pids.sample = Some(sample);
                if sample.available() < 4096 / 10 {
                    break sample.available();
                }
                let wait = until(&pids, &config, sample.at).unwrap();
                ms += u64::try_from(wait.as_millis()).unwrap().max(1);
            };
            worst = worst.min(left);
        }
        println!("a bomb of 40,000 forks a second leaves {worst} of 4096 process ids at worst; the threshold is 409");
        assert!(worst >= 200, "{worst}");
    }
}
