//! `allocatableMemory.available`: what the limit of the cgroup of all pods leaves to the pods.

use std::time::Duration;

use crate::config::{Policy, Quirk, Semantics, Threshold};
use crate::eviction::{SignalValue, daemons};
use crate::node::Hierarchy;
use crate::node::pods_memory::{PodsMemory, PodsMemoryError, PodsMemorySample};
use crate::units::{Amount, Monotonic, Signal};

/// The age of a figure that no threshold needs, and that is only shown.
const UNARMED: Duration = Duration::from_secs(5);
/// A limit that is not there is looked for this often.
const LIMITLESS: Duration = Duration::from_secs(1);
/// Far from every threshold, the file pages are read this often. At the limit the kernel may take them for other memory within milliseconds.
const FILE_AGE: Duration = Duration::from_millis(10);
const NO_LIMIT: &str = "the cgroup of all pods has no limit; let the kubelet set one (enforceNodeAllocatable: [pods])";

#[derive(Debug)]
pub struct AllocatableSignal {
    reader: PodsMemory,
    sample: Option<PodsMemorySample>,
    read_at: Option<Monotonic>,
    /// When all figures of the sample were read.
    read_whole_at: Option<Monotonic>,
    missing: Option<String>,
}

impl AllocatableSignal {
    pub fn new(hierarchy: Hierarchy) -> Self {
        let reader = PodsMemory::new(hierarchy);
        Self { reader, sample: None, read_at: None, read_whole_at: None, missing: None }
    }

    /// Reads the memory of all pods. Reuses an old sample if no threshold on the signal is armed, or if there is no limit. After an error
    /// there is no signal, which is a missing capability if the policy needs the figure.
    pub(super) fn observe(&mut self, policy: &Policy, is_armed: bool, now: Monotonic) {
        let has_limit = self.sample.is_some_and(|sample| sample.limit.is_some());
        let age = match (is_armed, has_limit) {
            (false, _) => UNARMED,
            (true, false) => LIMITLESS,
            (true, true) => Duration::ZERO,
        };
        if self.read_at.is_some_and(|at| now.since(at) < age) {
            return;
        }
        self.read_at = Some(now);
        if let Some(renewed) = self.renewed(policy, now) {
            self.sample = Some(renewed);
            return;
        }
        let sampled = self.reader.sample();
        self.read_whole_at = Some(now);
        self.missing = missing(policy, &sampled);
        self.sample = sampled.ok();
    }

    /// Reads only the limit and the usage, if the other figures are young and no threshold is near. The kubelet's figure is always read whole.
    fn renewed(&mut self, policy: &Policy, now: Monotonic) -> Option<PodsMemorySample> {
        let is_young = self.read_whole_at.is_some_and(|at| now.since(at) < FILE_AGE);
        let is_far = |sample: &PodsMemorySample| value(*sample, policy).is_some_and(|value| is_far(value, policy));
        let last = self.sample.filter(|last| policy.semantics == Semantics::Corrected && is_young && is_far(last))?;
        self.reader.renewed(last).filter(is_far)
    }

    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    pub fn sample(&self) -> Option<PodsMemorySample> {
        self.sample
    }

    pub(super) fn value(&self, policy: &Policy) -> Option<SignalValue> {
        value(self.sample?, policy)
    }
}

/// Returns the thresholds on the memory of all pods.
pub fn thresholds(policy: &Policy) -> impl Iterator<Item = &Threshold> {
    policy.thresholds.iter().filter(|it| it.signal == Signal::AllocatableMemoryAvailable)
}

/// Returns whether more than twice the amount of every threshold is left.
fn is_far(value: SignalValue, policy: &Policy) -> bool {
    let available = Amount::from_units(value.available);
    let quantity = |threshold: &Threshold| threshold.value.resolve(value.capacity, policy.quirks);
    thresholds(policy).map(quantity).all(|quantity| available > quantity + quantity)
}

/// Returns why the policy's need for the memory of all pods is not met, if it is not. Thresholds that apply by default need no limit.
pub fn missing(policy: &Policy, sampled: &Result<PodsMemorySample, PodsMemoryError>) -> Option<String> {
    let has_threshold = thresholds(policy).next().is_some();
    let is_written = thresholds(policy).any(|it| !policy.needs_no_limit(it));
    let is_reserved = daemons::reserved_memory(policy).is_some();
    match sampled {
        Err(reason @ PodsMemoryError::File(_)) if has_threshold || is_reserved => Some(reason.to_string()),
        Err(reason) if is_written || is_reserved => Some(reason.to_string()),
        Ok(PodsMemorySample { limit: None, .. }) if is_written => Some(NO_LIMIT.to_owned()),
        _ => None,
    }
}

/// Returns the signal's value; `None` without a limit. Under `kubelet` semantics the limit minus the working set. Under `corrected` active
/// file pages and reclaimable slab count as available too: the kernel reclaims them before it ends a process for the limit, and an eviction
/// does not count them as gained.
pub fn value(sample: PodsMemorySample, policy: &Policy) -> Option<SignalValue> {
    let used = match policy.semantics {
        Semantics::Kubelet => sample.working_set(),
        Semantics::Corrected => {
            sample.working_set().saturating_sub(sample.active_file).saturating_sub(sample.reclaimable_slab)
        }
    };
    let limit = sample.limit?;
    let left = limit.signed().saturating_sub(used.signed());
    let available = if policy.quirks.has(Quirk::AvailableUnderflow) { left } else { left.max(0) };
    Some(SignalValue { signal: Signal::AllocatableMemoryAvailable, available, capacity: limit.signed(), at: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MonitorConfig;
    use crate::eviction::deadline::{FallRate, until_next_sample};
    use crate::eviction::{Observation, is_below};
    use crate::node::CgroupVersion;
    use crate::units::Bytes;

    fn policy(semantics: &str) -> Policy {
        let text = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nsemantics: {semantics}\n\
             evictionHard: {{memory.available: 100}}\nsystemReserved: {{memory: 1Gi}}\nenforceNodeAllocatable: [pods]\n"
        );
        MonitorConfig::parse("m.yaml", &text).unwrap().config.policy
    }

    fn hierarchy(root: &std::path::Path) -> Hierarchy {
        Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false }
    }

    fn sample(limit: Option<u64>, usage: u64) -> PodsMemorySample {
        PodsMemorySample {
            limit: limit.map(Bytes),
            usage: Bytes(usage),
            inactive_file: Bytes(200),
            active_file: Bytes(300),
            reclaimable_slab: Bytes(50),
        }
    }

    #[test]
    fn the_value_is_what_the_limit_leaves() {
        for (semantics, limit, usage, expected) in [
            ("kubelet", Some(1000), 900, Some(300)),
            ("corrected", Some(1000), 900, Some(650)),
            ("kubelet", Some(1000), 1000, Some(200)),
            // Above the limit: the kubelet's arithmetic wraps, and so does its quirk.
            ("kubelet", Some(500), 1000, Some(-300)),
            ("corrected", Some(400), 1000, Some(0)),
            ("kubelet", Some(1000), 100, Some(1000)),
            ("kubelet", None, 900, None),
        ] {
            let value = value(sample(limit, usage), &policy(semantics));
            assert_eq!(value.map(|value| value.available), expected, "{semantics} {limit:?} {usage}");
            assert_eq!(value.map(|value| value.capacity), limit.and_then(|limit| i64::try_from(limit).ok()));
        }
    }

    #[test]
    fn a_figure_that_no_threshold_needs_is_not_missing() {
        let needs = policy("corrected");
        let mut reserves = Policy { thresholds: Vec::new(), ..needs.clone() };
        let absent = Err(PodsMemoryError::Absent("/cg".into()));
        assert_eq!(missing(&needs, &absent).as_deref(), Some("no kubepods.slice or kubepods in /cg"));
        assert_eq!(missing(&reserves, &absent).as_deref(), Some("no kubepods.slice or kubepods in /cg"));
        assert!(missing(&needs, &Ok(sample(None, 1))).unwrap().starts_with("the cgroup of all pods has no limit"));
        assert_eq!(missing(&reserves, &Ok(sample(None, 1))), None);
        assert_eq!(missing(&needs, &Ok(sample(Some(1), 1))), None);
        reserves.reservations.system.clear();
        assert_eq!(missing(&reserves, &absent), None);
    }

    #[test]
    fn thresholds_by_default_need_no_limit() {
        let default = Policy::default();
        assert_eq!(thresholds(&default).count(), 1);
        assert_eq!(missing(&default, &Err(PodsMemoryError::Absent("/cg".into()))), None);
        assert_eq!(missing(&default, &Ok(sample(None, 1))), None);
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("kubepods")).unwrap();
        let unreadable = PodsMemory::new(hierarchy(root.path())).sample();
        assert!(missing(&default, &unreadable).is_some_and(|reason| reason.contains("memory.max")));
    }

    /// Far from the threshold the file pages may be 10 ms old. Near it they are of now.
    #[test]
    fn file_pages_are_read_anew_near_a_threshold() {
        let root = tempfile::tempdir().unwrap();
        let pods = root.path().join("kubepods");
        std::fs::create_dir(&pods).unwrap();
        let write = |usage: &str, file: &str| {
            std::fs::write(pods.join("memory.max"), "1000\n").unwrap();
            std::fs::write(pods.join("memory.stat"), format!("inactive_file {file}\nactive_file 0\n")).unwrap();
            std::fs::write(pods.join("memory.current"), usage).unwrap();
        };
        let policy = policy("corrected");
        let mut signal = AllocatableSignal::new(hierarchy(root.path()));
        let mut available = |millisecond: u64| {
            signal.observe(&policy, true, Monotonic(millisecond * 1_000_000));
            signal.value(&policy).map(|value| value.available)
        };
        write("900", "700");
        assert_eq!(available(0), Some(800));
        write("950", "0");
        assert_eq!(available(1), Some(750), "the file pages of before");
        assert_eq!(available(10), Some(50));
        write("800", "700");
        assert_eq!(available(11), Some(900), "near a threshold everything is read");
        write("1000", "150");
        assert_eq!(available(12), Some(700));
        write("1600", "700");
        assert_eq!(available(13), Some(100), "the usage alone comes near: all is read");
    }

    #[test]
    fn a_limit_that_appears_is_found_within_a_second() {
        let root = tempfile::tempdir().unwrap();
        let pods = root.path().join("kubepods");
        let policy = Policy::default();
        let mut signal = AllocatableSignal::new(hierarchy(root.path()));
        let mut has_signal = |millisecond: u64| {
            signal.observe(&policy, true, Monotonic(millisecond * 1_000_000));
            assert_eq!(signal.missing(), None);
            signal.value(&policy).is_some()
        };
        assert!(!has_signal(0));
        std::fs::create_dir(&pods).unwrap();
        for (name, text) in
            [("memory.max", "max"), ("memory.current", "1"), ("memory.stat", "inactive_file 0\nactive_file 0\n")]
        {
            std::fs::write(pods.join(name), text).unwrap();
        }
        assert!(!has_signal(1_000));
        std::fs::write(pods.join("memory.max"), "5000").unwrap();
        assert!(!has_signal(1_999));
        assert!(has_signal(2_000));
        std::fs::write(pods.join("memory.max"), "max").unwrap();
        assert!(!has_signal(2_001));
    }

    /// The figures follow the files of a cgroup that the kubelet limits, removes and makes again.
    #[test]
    fn a_threshold_follows_the_cgroup_of_all_pods() {
        let root = tempfile::tempdir().unwrap();
        let pods = root.path().join("kubepods.slice");
        let write = |usage: &str| {
            std::fs::create_dir_all(&pods).unwrap();
            std::fs::write(pods.join("memory.max"), "1000\n").unwrap();
            std::fs::write(pods.join("memory.stat"), "inactive_file 0\nactive_file 0\n").unwrap();
            std::fs::write(pods.join("memory.current"), usage).unwrap();
        };
        let policy = policy("corrected");
        let threshold = policy.thresholds.iter().find(|it| it.signal == Signal::AllocatableMemoryAvailable).unwrap();
        let mut signal = AllocatableSignal::new(hierarchy(root.path()));
        let mut met = |second: u64| {
            signal.observe(&policy, true, Monotonic(second * 1_000_000_000));
            let observation = Observation { signals: signal.value(&policy).into_iter().collect() };
            (signal.missing().is_some(), is_below(&policy, threshold, &observation, false))
        };
        assert_eq!(met(0), (true, false), "no such cgroup");
        write("800");
        assert_eq!(met(1), (false, false));
        write("901");
        assert_eq!(met(2), (false, true));
        std::fs::write(pods.join("memory.stat"), "").unwrap();
        assert_eq!(met(3), (true, false), "unreadable");
        write("950");
        assert_eq!(met(4), (false, true), "made again");
    }

    #[test]
    fn memory_is_sampled_sooner_near_the_limit_of_the_pods() {
        let config = MonitorConfig::default();
        let policy = policy("corrected");
        let rate = FallRate::of_units(1000.0);
        let until = |usage| {
            let node = SignalValue::now(Signal::MemoryAvailable, Bytes(1 << 40), Bytes(1 << 41));
            let pods = value(sample(Some(1 << 20), usage), &policy).unwrap();
            until_next_sample(&policy, &config.sampling, &Observation { signals: vec![node, pods] }, &rate)
        };
        assert_eq!(until(1000), config.sampling.ceiling);
        let near = until((1 << 20) - 600);
        assert!(near < Duration::from_secs(2), "{near:?}");
    }
}
