//! Limits of local storage. The kernel does not enforce them, so a pod above one of them is evicted.

use crate::config::{Policy, Quirk, Quirks};
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
    let counted = Counted::of(policy.quirks, layout);
    let (cause, message) = above_empty_dir_limit(pod, stats)
        .map(|message| (Cause::EmptyDirLimit, message))
        .or_else(|| above_container_limits(counted, pod, stats))?;
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

/// What counts for the limit of a container.
#[derive(Debug, Clone, Copy)]
struct Counted {
    sidecars: bool,
    writable_layers: bool,
}

impl Counted {
    fn of(quirks: Quirks, layout: Layout) -> Self {
        let writable_layers = layout == Layout::Single || !quirks.has(Quirk::ContainerLimitWithoutWritableLayer);
        Self { sidecars: !quirks.has(Quirk::SidecarStorageLimitIgnored), writable_layers }
    }

    fn limit_of_init(self, container: &Container) -> Option<&Quantity> {
        if self.sidecars && container.is_sidecar() { limit_of_one(container) } else { None }
    }

    fn used(self, container: &ContainerStats) -> Amount {
        let rootfs = container.rootfs.filter(|_| self.writable_layers);
        units(container.logs.and_then(|fs| fs.used_bytes)) + units(rootfs.and_then(|fs| fs.used_bytes))
    }
}

fn above_container_limits(counted: Counted, pod: &Pod, stats: &PodStats) -> Option<(Cause, String)> {
    // The limit of a pod is not less than the least limit of its containers. A pod whose usage is not above that needs no closer look.
    let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let least = containers.filter_map(limit).map(Quantity::amount).min()?;
    let pod_used = units(stats.ephemeral_storage.and_then(|stats| stats.used_bytes));
    let is_close = pod_used > least || stats.containers.iter().any(|container| counted.used(container) > least);
    if !is_close && pod.spec.overhead.0.is_empty() {
        return None;
    }
    above_pod_limit(pod, pod_used)
        .map(|message| (Cause::PodLimit, message))
        .or_else(|| Some((Cause::ContainerLimit, above_container_limit(counted, pod, stats)?)))
}

fn above_pod_limit(pod: &Pod, used: Amount) -> Option<String> {
    let limit = pod.ephemeral_storage_limit()?;
    (used > limit.amount())
        .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
}

/// Returns the message about the first container, in the order of the statistics, that is above its limit.
fn above_container_limit(counted: Counted, pod: &Pod, stats: &PodStats) -> Option<String> {
    let [containers, init] =
        [&pod.spec.containers, &pod.spec.init_containers].map(|all| Names::new(all, |it| &it.name));
    stats.containers.iter().find_map(|container| {
        let name = &container.name;
        // If a name occurs twice, the last limit counts.
        let of_sidecar = || init.last(name, |it| counted.limit_of_init(it));
        let limit = containers.last(name, limit_of_one).or_else(of_sidecar)?;
        (counted.used(container) > limit.amount())
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}

/// Returns the limit of a container alone. Zero is a limit for the pod only.
fn limit_of_one(container: &Container) -> Option<&Quantity> {
    limit(container).filter(|limit| !limit.is_zero())
}

fn limit(container: &Container) -> Option<&Quantity> {
    container.resources.limits.get(Resource::EphemeralStorage.as_str())
}

#[cfg(test)]
#[path = "local_storage_tests.rs"]
mod tests;
