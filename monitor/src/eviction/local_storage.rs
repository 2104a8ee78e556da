//! Limits of local storage. The kernel does not enforce them, so a pod above one of them is evicted.

use crate::config::{Policy, Quirk};
use crate::units::{Amount, Quantity, Resource};
use crate::workloads::Pod;
use crate::workloads::kubelet_summary::{ContainerStats, PodStats};
use crate::workloads::pod::Container;

use super::Layout;
use super::evicted::{Cause, Eviction, IMMEDIATE_GRACE_SECONDS};
use super::names::Names;
use super::usage::{ActivePod, units};

/// Returns an eviction for every active pod that is above one of its limits (`eviction-semantics.md` §8). Critical pods and pods without
/// statistics are not evicted.
pub fn evictions<'a>(policy: &Policy, layout: Layout, active: &[ActivePod<'a>]) -> Vec<Eviction<'a>> {
    if !policy.local_storage_isolation {
        return Vec::new();
    }
    active.iter().filter_map(|active| eviction(policy, layout, active.pod, active.stats?)).collect()
}

fn eviction<'a>(policy: &Policy, layout: Layout, pod: &'a Pod, stats: &PodStats) -> Option<Eviction<'a>> {
    let (cause, message) = above_empty_dir_limit(pod, stats)
        .map(|message| (Cause::EmptyDirLimit, message))
        .or_else(|| above_container_limits(layout, pod, stats))?;
    // This check comes last because few pods are above a limit.
    (!pod.is_critical()).then(|| Eviction {
        pod,
        cause,
        grace_period_seconds: IMMEDIATE_GRACE_SECONDS,
        message,
        annotations: Vec::new(),
        has_disruption_target: !policy.quirks.has(Quirk::LocalStorageWithoutDisruptionTarget),
    })
}

/// Returns the message about the first emptyDir volume, in the order of the pod, that is above its limit.
fn above_empty_dir_limit(pod: &Pod, stats: &PodStats) -> Option<String> {
    let most = stats.volumes.iter().map(|it| units(it.used_bytes)).max().unwrap_or_default();
    let mut by_name = None;
    let mut exceeds = |name: &str, limit: Amount| {
        // Names are looked up only if the largest volume is above the limit. If a name occurs twice, the last figure counts.
        limit > Amount::ZERO && most > limit && {
            let volumes = by_name.get_or_insert_with(|| Names::new(&stats.volumes, |it| &it.name));
            volumes.last(name, |it| it.used_bytes).is_some_and(|used| units(Some(used)) > limit)
        }
    };
    pod.spec.volumes.iter().find_map(|volume| {
        let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
        exceeds(&volume.name, limit.amount())
            .then(|| format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{limit}\". ", volume.name))
    })
}

fn above_container_limits(layout: Layout, pod: &Pod, stats: &PodStats) -> Option<(Cause, String)> {
    // The limit of a pod is not less than the least limit of its containers. A pod whose usage is not above that needs no closer look.
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let least = containers.filter_map(limit).map(Quantity::amount).min()?;
    let pod_used = units(stats.ephemeral_storage.and_then(|stats| stats.used_bytes));
    let is_close = pod_used > least || stats.containers.iter().any(|container| used(layout, container) > least);
    if !is_close && pod.spec.overhead.0.is_empty() {
        return None;
    }
    above_pod_limit(pod, pod_used)
        .map(|message| (Cause::PodLimit, message))
        .or_else(|| Some((Cause::ContainerLimit, above_container_limit(layout, pod, stats)?)))
}

fn above_pod_limit(pod: &Pod, used: Amount) -> Option<String> {
    let limit = pod.ephemeral_storage_limit()?;
    (used > limit.amount())
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
}

/// Returns the message about the first container, in the order of the statistics, that is above its limit.
fn above_container_limit(layout: Layout, pod: &Pod, stats: &PodStats) -> Option<String> {
    let containers = Names::new(&pod.spec.containers, |it| &it.name);
    stats.containers.iter().find_map(|container| {
        // If a name occurs twice, the last limit counts.
        let limit = containers.last(&container.name, |it| limit(it).filter(|limit| !limit.is_zero()))?;
        let name = &container.name;
        (used(layout, container) > limit.amount())
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}

fn limit(container: &Container) -> Option<&Quantity> {
    container.resources.limits.get(Resource::EphemeralStorage.as_str())
}

/// Returns the usage of the container's logs. It includes the writable layer only in the layout in which all filesystems are one.
fn used(layout: Layout, container: &ContainerStats) -> Amount {
    let rootfs = container.rootfs.filter(|_| layout == Layout::Single);
    units(container.logs.and_then(|fs| fs.used_bytes)) + units(rootfs.and_then(|fs| fs.used_bytes))
}

#[cfg(test)]
#[path = "local_storage_tests.rs"]
mod tests;
