//! Resolves each threshold on this machine, and finds out whether an agent that starts now would act on it.

use crate::config::{MonitorConfig, Policy, Semantics, Threshold};
use crate::eviction::at_capacity::{self, Capacities};
use crate::eviction::decider::{Kept, Unarmed, at_arrival};
use crate::eviction::{Observation, SignalValue, is_below};
use crate::node::available_memory::MiscountedReader;
use crate::node::pods_memory::PodsMemorySample;
use crate::node::{Hierarchy, MemoryReader, PidReader};
use crate::sensors::allocatable_signal;
use crate::units::{Bytes, Signal, signed};

use super::facts::{Filesystem, NodeThreshold, PodsLimit, UnobservedThreshold};
use super::filesystem_facts::ByRole;

/// Resolves every threshold of the configuration whose signal is observed.
pub fn thresholds(
    config: &MonitorConfig,
    hierarchy: Option<&Hierarchy>,
    filesystems: &[Filesystem],
    pods: Option<PodsMemorySample>,
    kept: &Kept,
    of_reach: impl Fn(&Threshold) -> (Option<&'static str>, Option<String>),
) -> Vec<NodeThreshold> {
    let memory = hierarchy.and_then(|hierarchy| memory(config, hierarchy));
    let pids = PidReader::open(&config.proc_root).and_then(|mut reader| reader.sample()).ok();
    let pids = pids.map(|sample| (Signal::PidAvailable, sample.available(), sample.most));
    let values = filesystems.iter().flat_map(of_filesystem).chain(memory).chain(pids);
    let value = |(signal, available, capacity)| SignalValue {
        signal,
        available: signed(available),
        capacity: signed(capacity),
        at: None,
    };
    let policy = &config.policy;
    let of_pods = pods.and_then(|sample| allocatable_signal::value(sample, policy));
    let observation = Observation { signals: values.map(value).chain(of_pods).collect() };
    let resolved = |threshold: &Threshold| {
        let SignalValue { available, capacity, .. } = observation.get(threshold.signal)?;
        // A threshold that an agent of this boot has armed stays armed.
        let is_armed = kept.is_armed(threshold, capacity, policy.quirks);
        let (reported_only, evicts) = of_reach(threshold);
        let unarmed = at_arrival(policy, threshold, &observation);
        let unarmed = unarmed.filter(|why| !is_armed || matches!(why, Unarmed::Implausible { .. }));
        Some(NodeThreshold {
            threshold: threshold.to_string(),
            signal: threshold.signal,
            kind: threshold.kind(),
            is_bytes: threshold.signal.resource().is_bytes(),
            quantity: threshold.value.resolve(capacity, policy.quirks).units(),
            available,
            capacity,
            met: is_below(policy, threshold, &observation, false),
            is_plausible: !matches!(unarmed, Some(Unarmed::Implausible { .. })),
            is_waived: config.evictions.act_on_present_pressure,
            reported_only,
            evicts,
            unarmed,
        })
    };
    policy.thresholds.iter().filter_map(resolved).collect()
}

/// Returns the thresholds whose signal is not among the observed ones, each with the reason.
pub fn unobserved(policy: &Policy, observed: &[NodeThreshold], filesystems: &ByRole) -> Vec<UnobservedThreshold> {
    let is_observed = |threshold: &&Threshold| observed.iter().any(|it| it.signal == threshold.signal);
    let all = policy.thresholds.iter().filter(|it| !is_observed(it) && !policy.needs_no_limit(it));
    let of = |threshold: &Threshold| UnobservedThreshold {
        threshold: threshold.to_string(),
        kind: threshold.kind(),
        reason: why_unobserved(threshold.signal, filesystems),
    };
    all.map(of).collect()
}

fn why_unobserved(signal: Signal, filesystems: &ByRole) -> String {
    let role = signal.as_str().split('.').next().unwrap_or_default();
    let left_out = filesystems.left_out.iter().find(|it| it.role == role).map(|it| it.reason.clone());
    let found = filesystems.found.iter().find(|it| it.role == role);
    let without = found.map(|it| match signal.resource().is_bytes() {
        true => format!("{} is {}, which has no size of its own or is read-only", it.mount_point.display(), it.kind),
        false => format!("{} is {}, which has no limit of inodes or is read-only", it.mount_point.display(), it.kind),
    });
    let reason = left_out.or(without);
    reason.unwrap_or_else(|| match signal {
        Signal::AllocatableMemoryAvailable => "the cgroup of all pods is not there, or has no limit".to_owned(),
        _ => "its figures cannot be read".to_owned(),
    })
}

/// Returns the limit of all pods together, and the thresholds that act before the kernel does. `None` without a limit.
pub fn pods_limit(policy: &Policy, pods: PodsMemorySample) -> Option<PodsLimit> {
    let SignalValue { available, .. } = allocatable_signal::value(pods, policy)?;
    let Bytes(limit) = pods.limit?;
    let guards = allocatable_signal::thresholds(policy).map(|threshold| format!("{} {threshold}", threshold.kind()));
    Some(PodsLimit { limit, available, guarded_by: guards.collect() })
}

/// Says which thresholds cannot act at this machine's capacity. Reservations count where the configuration has some.
pub fn remarks(policy: &Policy, capacities: Capacities<'_>, filesystems: &[Filesystem]) -> Vec<(String, &'static str)> {
    let device = |role| filesystems.iter().find(|it| it.role == role).map(|it| &it.device);
    let is_one_disk = device("nodefs").is_some() && device("nodefs") == device("imagefs");
    let reserves = !(policy.reservations.system.is_empty() && policy.reservations.kube.is_empty());
    let remarks = at_capacity::remarks(policy, capacities, is_one_disk).into_iter();
    let remarks = remarks.filter(|remark| reserves || !remark.is_of_reservation);
    remarks.map(|remark| (remark.sentence(), remark.fix)).collect()
}

fn memory(config: &MonitorConfig, hierarchy: &Hierarchy) -> Option<(Signal, u64, u64)> {
    let mut reader = MemoryReader::open(&config.proc_root, hierarchy).ok()?;
    let meminfo = reader.sample().ok()?.meminfo;
    let available = match config.policy.semantics {
        Semantics::Corrected => {
            MiscountedReader::read_once(&config.proc_root, hierarchy).last().available(&meminfo, config.policy.quirks)
        }
        Semantics::Kubelet => reader.root_usage().ok()?.available(meminfo.total),
    };
    Some((Signal::MemoryAvailable, available.0, meminfo.total.0))
}

fn of_filesystem(filesystem: &Filesystem) -> Vec<(Signal, u64, u64)> {
    let signal = |what: &str| format!("{}.{what}", filesystem.role).parse::<Signal>().ok();
    // Without a size the filesystem has no such signal.
    let bytes = signal("available").filter(|_| filesystem.capacity_bytes > 0);
    let bytes = bytes.map(|it| (it, filesystem.available_bytes, filesystem.capacity_bytes));
    let inodes = signal("inodesFree").zip(filesystem.inodes).map(|(it, inodes)| (it, inodes.free, inodes.total));
    bytes.into_iter().chain(inodes).collect()
}
