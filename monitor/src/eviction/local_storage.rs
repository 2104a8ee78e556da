//! Limits of local storage, which the kernel does not enforce: a pod above one is evicted.

use crate::config::{Amount, Policy, Quantity, Quirk};
use crate::workloads::Pod;
use crate::workloads::statistics::PodStats;

use super::Layout;
use super::evicted::{Cause, Eviction, IMMEDIATE_GRACE_SECONDS};
use super::usage::{PodStatistics, units};

/// Evicts every active pod that is above one of its limits (`eviction-semantics.md` §8); critical pods and pods without statistics
/// are let be.
#[must_use]
pub fn evictions<'a>(
    policy: &Policy,
    layout: Layout,
    pods: &'a [Pod],
    statistics: &PodStatistics<'a>,
) -> Vec<Eviction<'a>> {
    if !policy.local_storage_isolation {
        return Vec::new();
    }
    let active = pods.iter().filter(|pod| pod.is_active());
    active.filter_map(|pod| eviction(policy, layout, pod, statistics.get(pod)?)).collect()
}

fn eviction<'a>(policy: &Policy, layout: Layout, pod: &'a Pod, stats: &PodStats) -> Option<Eviction<'a>> {
    let (cause, message) = above_empty_dir_limit(pod, stats)
        .map(|message| (Cause::EmptyDirLimit, message))
        .or_else(|| Some((Cause::PodLimit, above_pod_limit(pod, stats)?)))
        .or_else(|| Some((Cause::ContainerLimit, above_container_limit(layout, pod, stats)?)))?;
    // Looked at last: few pods get here.
    (!pod.is_critical()).then(|| Eviction {
        pod,
        cause,
        grace_period_seconds: IMMEDIATE_GRACE_SECONDS,
        message,
        annotations: Vec::new(),
        has_disruption_target: !policy.quirks.has(Quirk::LocalStorageWithoutDisruptionTarget),
    })
}

/// The first volume in the order of the pod that holds more than it may.
fn above_empty_dir_limit(pod: &Pod, stats: &PodStats) -> Option<String> {
    let is_above = |name: &str, limit: &Quantity| {
        // Where a name is given twice the last counts.
        let used = stats.volumes.iter().rev().find(|volume| volume.name == name).and_then(|volume| volume.used_bytes);
        limit.amount() > Amount::ZERO && used.is_some_and(|used| units(Some(used)) > limit.amount())
    };
    let limits = pod
        .spec
        .volumes
        .iter()
        .filter_map(|volume| Some((&volume.name, volume.empty_dir.as_ref()?.size_limit.as_ref()?)));
    let (name, limit) = limits.into_iter().find(|(name, limit)| is_above(name, limit))?;
    Some(format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". "))
}

fn above_pod_limit(pod: &Pod, stats: &PodStats) -> Option<String> {
    let limit = pod.ephemeral_storage_limit()?;
    let used = units(stats.ephemeral_storage.and_then(|stats| stats.used_bytes));
    (used > limit.amount())
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
}

/// The first container in the order of the statistics; its writable layer counts where it lies on the node's filesystem for sure.
fn above_container_limit(layout: Layout, pod: &Pod, stats: &PodStats) -> Option<String> {
    let limit_of = |name: &str| {
        // Where a name is given twice the last counts.
        let limits = pod.spec.containers.iter().rev().filter(|container| container.name == name);
        limits
            .filter_map(|container| container.resources.limits.get("ephemeral-storage"))
            .find(|limit| !limit.is_zero())
    };
    stats.containers.iter().find_map(|container| {
        let limit = limit_of(&container.name)?;
        let logs = units(container.logs.and_then(|fs| fs.used_bytes));
        let rootfs = container.rootfs.filter(|_| layout == Layout::Single).and_then(|fs| fs.used_bytes);
        let name = &container.name;
        (logs + units(rootfs) > limit.amount())
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}

#[cfg(test)]
#[path = "local_storage_tests.rs"]
mod tests;
