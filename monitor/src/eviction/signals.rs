//! Reads the signals from the kubelet's statistics of a node.

use crate::config::{Quirk, Quirks};
use crate::units::Signal;
use crate::workloads::Summary;
use crate::workloads::kubelet_summary::{FsStats, MemoryStats, RlimitStats, Timestamp};

use super::{Observation, SignalValue};

/// The name of the system container that has the statistics of all pods together.
const ALL_PODS: &str = "pods";

/// Reads every signal for which the statistics have both the available amount and the capacity (`eviction-semantics.md` §1).
pub fn observe(summary: &Summary, quirks: Quirks) -> Observation {
    let node = &summary.node;
    let all_pods = node.system_containers.iter().find(|container| container.name == ALL_PODS);
    let runtime = node.runtime.unwrap_or_default();
    let mut signals = Vec::with_capacity(Signal::ALL.len());
    signals.extend(node.memory.and_then(|stats| memory(Signal::MemoryAvailable, stats)));
    let pods_memory = all_pods.and_then(|container| container.memory);
    signals.extend(pods_memory.and_then(|stats| memory(Signal::AllocatableMemoryAvailable, stats)));
    for (stats, bytes, inodes) in [
        (node.fs, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        (runtime.image_fs, Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        (runtime.container_fs, Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree),
    ] {
        signals.extend(stats.into_iter().flat_map(|stats| filesystem(stats, bytes, inodes)).flatten());
    }
    signals.extend(node.rlimit.and_then(pids));
    if !quirks.has(Quirk::AvailableUnderflow) {
        for value in &mut signals {
            value.available = value.available.max(0);
        }
    }
    Observation { signals }
}

/// Reads a memory signal. Its capacity is the available amount plus the working set. For a cgroup above its limit the available amount
/// has wrapped below zero, and the sum wraps back to the limit.
fn memory(signal: Signal, stats: MemoryStats) -> Option<SignalValue> {
    let available = stats.available_bytes?;
    let capacity = available.wrapping_add(stats.working_set_bytes?);
    Some(value(signal, available.cast_signed(), capacity.cast_signed(), stats.time))
}

fn filesystem(stats: FsStats, bytes: Signal, inodes: Signal) -> [Option<SignalValue>; 2] {
    let both = |signal, available: Option<u64>, capacity: Option<u64>| {
        Some(value(signal, available?.cast_signed(), capacity?.cast_signed(), stats.time))
    };
    [both(bytes, stats.available_bytes, stats.capacity_bytes), both(inodes, stats.inodes_free, stats.inodes)]
}

fn pids(stats: RlimitStats) -> Option<SignalValue> {
    let most = stats.max_pid?;
    Some(value(Signal::PidAvailable, most.wrapping_sub(stats.running?), most, stats.time))
}

fn value(signal: Signal, available: i64, capacity: i64, time: Option<Timestamp>) -> SignalValue {
    SignalValue { signal, available, capacity, at: time.map(|time| time.0) }
}

#[cfg(test)]
#[path = "signals_tests.rs"]
mod tests;
