//! `allocatableMemory.available`: what the limit of the cgroup of all pods leaves to the pods.

use std::time::Duration;

use crate::config::{Policy, Quirk, Semantics};
use crate::eviction::{SignalValue, daemons};
use crate::node::Hierarchy;
use crate::node::pods_memory::{PodsMemory, PodsMemorySample};
use crate::units::{Monotonic, Signal};

/// The age of a figure that no threshold needs, and that is only shown.
const UNARMED: Duration = Duration::from_secs(5);
const NO_LIMIT: &str = "the cgroup of all pods has no limit; let the kubelet set one (enforceNodeAllocatable: [pods])";

#[derive(Debug)]
pub struct AllocatableSignal {
    reader: PodsMemory,
    sample: Option<PodsMemorySample>,
    read_at: Option<Monotonic>,
    missing: Option<String>,
}

impl AllocatableSignal {
    pub fn new(hierarchy: Hierarchy) -> Self {
        Self { reader: PodsMemory::new(hierarchy), sample: None, read_at: None, missing: None }
    }

    /// Reads the memory of all pods. Reuses an old sample if no threshold on the signal is armed. After an error there is no signal, which
    /// is a missing capability if the policy needs the figure.
    pub(super) fn observe(&mut self, policy: &Policy, is_armed: bool, now: Monotonic) {
        if !is_armed && self.read_at.is_some_and(|at| now.since(at) < UNARMED) {
            return;
        }
        let sampled = self.reader.sample();
        self.read_at = Some(now);
        self.missing = missing(policy, &sampled);
        self.sample = sampled.ok();
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

/// Returns why the policy's need for the memory of all pods is not met, if it is not.
pub fn missing(policy: &Policy, sampled: &Result<PodsMemorySample, String>) -> Option<String> {
    let has_threshold = policy.thresholds.iter().any(|it| it.signal == Signal::AllocatableMemoryAvailable);
    match sampled {
        Err(reason) if has_threshold || daemons::reserved_memory(policy).is_some() => Some(reason.clone()),
        Ok(PodsMemorySample { limit: None, .. }) if has_threshold => Some(NO_LIMIT.to_owned()),
        _ => None,
    }
}

/// Returns the signal's value; `None` without a limit. Under `kubelet` semantics the limit minus the working set. Under `corrected` active
/// file pages count as available too: the kernel reclaims them before it ends a process for the limit, and an eviction does not count them
/// as gained.
pub fn value(sample: PodsMemorySample, policy: &Policy) -> Option<SignalValue> {
    let used = match policy.semantics {
        Semantics::Kubelet => sample.working_set(),
        Semantics::Corrected => sample.working_set().saturating_sub(sample.active_file),
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

    fn sample(limit: Option<u64>, usage: u64) -> PodsMemorySample {
        PodsMemorySample {
            limit: limit.map(Bytes),
            usage: Bytes(usage),
            inactive_file: Bytes(200),
            active_file: Bytes(300),
        }
    }

    #[test]
    fn the_value_is_what_the_limit_leaves() {
        for (semantics, limit, usage, expected) in [
            ("kubelet", Some(1000), 900, Some(300)),
            ("corrected", Some(1000), 900, Some(600)),
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
        let absent: Result<PodsMemorySample, String> = Err("no kubepods".to_owned());
        assert_eq!(missing(&needs, &absent).as_deref(), Some("no kubepods"));
        assert_eq!(missing(&reserves, &absent).as_deref(), Some("no kubepods"));
        assert!(missing(&needs, &Ok(sample(None, 1))).unwrap().starts_with("the cgroup of all pods has no limit"));
        assert_eq!(missing(&reserves, &Ok(sample(None, 1))), None);
        assert_eq!(missing(&needs, &Ok(sample(Some(1), 1))), None);
        reserves.reservations.system.clear();
        assert_eq!(missing(&reserves, &absent), None);
    }

    /// The figures follow the files of a cgroup that the kubelet limits, removes and makes again.
    #[test]
    fn a_threshold_follows_the_cgroup_of_all_pods() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy =
            Hierarchy { version: CgroupVersion::V2, memory: root.path().to_owned(), freezer: None, hybrid: false };
        let pods = root.path().join("kubepods.slice");
        let write = |usage: &str| {
            std::fs::create_dir_all(&pods).unwrap();
            std::fs::write(pods.join("memory.max"), "1000\n").unwrap();
            std::fs::write(pods.join("memory.stat"), "inactive_file 0\nactive_file 0\n").unwrap();
            std::fs::write(pods.join("memory.current"), usage).unwrap();
        };
        let policy = policy("corrected");
        let threshold = policy.thresholds.iter().find(|it| it.signal == Signal::AllocatableMemoryAvailable).unwrap();
        let mut signal = AllocatableSignal::new(hierarchy);
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
