//! How far the kernel's counters of memory may be off on this machine, the default threshold that follows, and thresholds that are too
//! close to the error.

use std::path::Path;

use crate::config::{MonitorConfig, Policy, Semantics, Threshold, ThresholdValue};
use crate::node::cpus;
use crate::node::meminfo::MemInfo;
use crate::node::zoneinfo::ZoneInfo;
use crate::units::{Bytes, Signal, page_size};

/// The capability's name.
const CAPABILITY: &str = "counter error";
/// A threshold should be at least this many times the error.
const WELL_ABOVE: u64 = 2;
/// The default threshold is this many times the error, if that is more than the kubelet's default.
const DEFAULT_ABOVE: u64 = 4;
/// The default threshold is at most this part of the capacity, unless that is less than the kubelet's default.
const DEFAULT_PART: u64 = 50;
/// A read of `memory.stat` may miss this many pages for each CPU (mm/memcontrol.c, `MEMCG_CHARGE_BATCH` and
/// `memcg_vmstats_needs_flush`, Linux 6.12). The kubelet's figure rests on that file.
const STAT_BATCH: u64 = 64;

/// The machine's size, and the uncertainty that follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterError {
    capacity: Bytes,
    cpus: usize,
    /// The error of `MemAvailable`.
    available: Bytes,
    /// The error of the kubelet's figure.
    working_set: Bytes,
    /// The kubelet's figure counts what lies below the lowest watermarks as available.
    min: Bytes,
}

impl CounterError {
    /// Reads the figures of this machine. Returns `None` if they cannot be read; then no threshold is judged.
    pub fn read(proc_root: &Path) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(proc_root.join(name)).ok();
        let (zones, meminfo) = (ZoneInfo::parse(&read("zoneinfo")?), MemInfo::parse(&read("meminfo")?).ok()?);
        let (cpus, _guessed) = cpus::online();
        let pages = |pages: u64| Bytes(pages.saturating_mul(page_size()));
        Some(Self {
            capacity: meminfo.total,
            cpus,
            available: pages(zones.drift),
            working_set: pages(STAT_BATCH.saturating_mul(cpus as u64)),
            min: pages(zones.min),
        })
    }

    /// Raises the default threshold on a machine whose counters are so inexact that it could be met too late. Only the default under
    /// `corrected` semantics is raised. `MemAvailable` excludes the watermarks, which grow with the machine.
    pub fn fit(&self, config: &mut MonitorConfig) {
        if !config.has_default_hard || config.policy.semantics == Semantics::Kubelet {
            return;
        }
        let default = Policy::default_hard_threshold();
        let fitting = Bytes((self.available.0.saturating_mul(DEFAULT_ABOVE)).min(self.capacity.0 / DEFAULT_PART));
        let fitting = Bytes(fitting.0.next_multiple_of(Bytes::MIB));
        if fitting <= default.value.resolve(0, config.policy.quirks).bytes() {
            return;
        }
        // The copy for the cgroup of all pods keeps the value of its original.
        let copy = Threshold { signal: Signal::AllocatableMemoryAvailable, ..default.clone() };
        let defaults = [default, copy];
        for threshold in config.policy.thresholds.iter_mut().filter(|threshold| defaults.contains(threshold)) {
            threshold.value = ThresholdValue::bytes(fitting);
        }
    }

    /// Returns the degradation if a threshold on memory is not well above the error.
    pub fn degradation(&self, policy: &Policy) -> Option<String> {
        let (error, least) = match policy.semantics {
            Semantics::Corrected => (self.available, self.available.saturating_mul(WELL_ABOVE)),
            Semantics::Kubelet => {
                let least = self.working_set.saturating_mul(WELL_ABOVE);
                (self.working_set, Bytes(least.0.saturating_add(self.min.0)))
            }
        };
        let amount = |threshold: &Threshold| threshold.value.resolve(self.capacity.signed(), policy.quirks).bytes();
        let of_memory = policy.thresholds.iter().filter(|threshold| threshold.signal == Signal::MemoryAvailable);
        let lowest = of_memory.min_by_key(|threshold| amount(threshold)).filter(|lowest| amount(lowest) < least)?;
        let mib = least.0.div_ceil(Bytes::MIB);
        let (cpus, min) = (self.cpus, self.min);
        let because = match policy.semantics {
            Semantics::Corrected => format!("the kernel's counters of {cpus} CPUs may be off by {error}"),
            Semantics::Kubelet => format!(
                "the kernel's counters of {cpus} CPUs may be off by {error}, and the kernel keeps {min} for itself"
            ),
        };
        Some(format!("{CAPABILITY}: {lowest}: {because}; the threshold may be met too late; write at least {mib}Mi"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn machine(capacity: u64, cpus: usize, available: u64, min: u64) -> CounterError {
        CounterError {
            capacity: Bytes(capacity),
            cpus,
            available: Bytes::from_mib(available),
            working_set: Bytes(STAT_BATCH * 4096 * cpus as u64),
            min: Bytes::from_mib(min),
        }
    }

    fn config(rest: &str) -> MonitorConfig {
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        MonitorConfig::parse("m.yaml", &format!("{head}{rest}")).unwrap().config
    }

    fn thresholds(config: &MonitorConfig) -> Vec<String> {
        config.policy.thresholds.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_default_threshold_follows_from_the_error_and_the_size() {
        for (name, machine, rest, expected) in [
            ("two CPUs", machine(24 * GIB, 2, 1, 66), "", "memory.available<100Mi"),
            ("64 CPUs: a quarter of the default", machine(256 * GIB, 64, 25, 90), "", "memory.available<100Mi"),
            ("200 CPUs", machine(1024 * GIB, 200, 340, 400), "", "memory.available<1360Mi"),
            ("200 CPUs, little memory", machine(16 * GIB, 200, 340, 66), "", "memory.available<328Mi"),
            ("hardly any memory", machine(GIB, 200, 340, 66), "", "memory.available<100Mi"),
            (
                "a threshold that the operator wrote",
                machine(1024 * GIB, 200, 340, 400),
                "evictionHard: {memory.available: 100Mi}\n",
                "memory.available<100Mi",
            ),
            ("kubelet semantics", machine(1024 * GIB, 200, 340, 400), "semantics: kubelet\n", "memory.available<100Mi"),
        ] {
            let mut config = config(rest);
            machine.fit(&mut config);
            let mut expected = vec![expected.to_owned()];
            if config.policy.semantics == Semantics::Corrected {
                expected.push(format!("allocatableM{}", &expected[0][1..]));
            }
            assert_eq!(thresholds(&config), expected, "{name}");
        }
        let mut none = config("evictionHard: {}\n");
        machine(1024 * GIB, 200, 340, 400).fit(&mut none);
        assert_eq!(thresholds(&none), [""; 0]);
        let mut unread = MonitorConfig::default();
        machine(1024 * GIB, 200, 340, 400).fit(&mut unread);
        assert_eq!(
            thresholds(&unread),
            ["memory.available<1360Mi", "allocatableMemory.available<1360Mi"],
            "without a file"
        );
    }

    #[test]
    fn a_threshold_that_is_not_well_above_the_error_is_reported() {
        let large = machine(1024 * GIB, 200, 340, 400);
        for (name, machine, rest, expected) in [
            ("an ordinary machine", machine(24 * GIB, 2, 1, 66), "", None),
            ("the kubelet's default there", machine(24 * GIB, 2, 1, 66), "semantics: kubelet\n", None),
            (
                "the kubelet's default on a large one",
                large,
                "semantics: kubelet\n",
                Some(
                    "200 CPUs may be off by 50.0 MiB, and the kernel keeps 400.0 MiB for itself; the threshold may be met too late; write at least 500Mi",
                ),
            ),
            (
                "an absolute threshold",
                large,
                "evictionHard: {memory.available: 500Mi}\n",
                Some(
                    "memory.available<500Mi: the kernel's counters of 200 CPUs may be off by 340.0 MiB; the threshold may be met too late; write at least 680Mi",
                ),
            ),
            ("well above", large, "evictionHard: {memory.available: 1Gi}\n", None),
            ("a percentage", large, "evictionHard: {memory.available: 1%}\n", None),
            ("another signal", large, "evictionHard: {pid.available: 10}\n", None),
        ] {
            let found = machine.degradation(&config(rest).policy);
            assert_eq!(found.is_some(), expected.is_some(), "{name}: {found:?}");
            assert!(
                found.is_none_or(
                    |found| found.starts_with("counter error: ") && expected.is_some_and(|it| found.ends_with(it))
                ),
                "{name}"
            );
        }
    }

    #[test]
    fn this_machine_is_read() {
        let found = CounterError::read(Path::new("/proc")).unwrap();
        assert!(found.cpus > 0 && !found.capacity.is_zero() && !found.min.is_zero(), "{found:?}");
        assert_eq!(CounterError::read(Path::new("/nonexistent")), None);
    }
}
