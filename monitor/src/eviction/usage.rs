//! Pods as candidates: how much of the resource that runs out each pod uses and has requested.

use std::borrow::{Borrow, Cow};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::config::{Policy, Quirk, Quirks};
use crate::units::{Amount, CgroupId, Resource, Signal};
use crate::workloads::kubelet_summary::{FsUsage, PodStats, VolumeStats};
use crate::workloads::pod::{FullName, Metadata, Volume};
use crate::workloads::{Outlook, Pod, Preference, Summary};

use super::Layout;
use super::names::Names;
use super::rank::{Candidate, Facts};
use super::standing::Standing;

/// A pod that has not ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ActivePod<'a> {
    pub pod: &'a Pod,
    /// The known part of its usage.
    pub stats: Option<&'a PodStats>,
}

/// Returns the pods that have not ended, including critical ones, with the statistics of their UID. If statistics of a UID occur twice,
/// the last count. A mirror pod has a UID of its own, but the statistics are those of the static pod that it mirrors.
pub fn active_pods<'a, P: Borrow<Pod>>(pods: &'a [P], summary: &'a Summary) -> Vec<ActivePod<'a>> {
    let by_uid: HashMap<&str, &PodStats> =
        summary.pods.iter().map(|stats| (stats.pod_ref.uid.as_str(), stats)).collect();
    let of_mirrored = |pod: &Pod| pod.mirrored_uid().and_then(|uid| by_uid.get(uid));
    let stats = |pod: &Pod| by_uid.get(pod.metadata.uid.as_str()).or_else(|| of_mirrored(pod)).copied();
    let active = pods.iter().map(Borrow::borrow).filter(|pod: &&Pod| pod.is_active());
    active.map(|pod| ActivePod { pod, stats: stats(pod) }).collect()
}

/// A pod that can be ranked.
#[derive(Debug, Clone, PartialEq)]
pub struct PodCandidate<'a> {
    pub pod: &'a Pod,
    /// The facts that the ranking keys use.
    pub facts: Facts,
    /// The known part of its usage.
    pub stats: Option<&'a PodStats>,
    /// Why the pod must not be evicted, if its node or the configuration says so and not the pod itself.
    pub exempt: Option<&'static str>,
    /// What is known about its memory beyond its usage. The kubelet's rules use none of it.
    pub outlook: Outlook,
}

impl PodCandidate<'_> {
    /// Returns an identity in the place of the pod's cgroup, which statistics do not tell.
    pub fn cgroup_of(pod: &Pod) -> CgroupId {
        let mut hasher = DefaultHasher::new();
        let Metadata { uid, namespace, name, .. } = &pod.metadata;
        (uid, namespace, name).hash(&mut hasher);
        CgroupId(hasher.finish())
    }
}

impl Candidate for PodCandidate<'_> {
    type Name<'a>
        = FullName<'a>
    where
        Self: 'a;

    fn name(&self) -> FullName<'_> {
        self.pod.qualified_name()
    }

    fn id(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.pod.metadata.uid)
    }

    fn facts(&self) -> Facts {
        self.facts
    }

    fn cgroup(&self) -> CgroupId {
        Self::cgroup_of(self.pod)
    }

    fn outlook(&self) -> Outlook {
        self.outlook
    }

    fn standing(&self) -> Option<Standing> {
        Some(Standing { is_critical: self.exempt.is_some() || self.pod.is_critical(), ..standing(self.pod) })
    }
}

/// Returns the standing of a pod that is not critical.
pub(super) fn standing(pod: &Pod) -> Standing {
    let grace_period_seconds = pod.spec.termination_grace_period_seconds;
    Standing { is_pod: true, is_known: true, grace_period_seconds, ..Standing::default() }
}

/// Returns the active pods as candidates for an eviction for `signal`.
pub fn candidates<'a>(
    policy: &Policy,
    signal: Signal,
    layout: Layout,
    active: &[ActivePod<'a>],
) -> impl Iterator<Item = PodCandidate<'a>> {
    active.iter().map(move |&ActivePod { pod, stats }| {
        let facts = facts(policy, signal, layout, pod, stats);
        PodCandidate { pod, facts, stats, exempt: None, outlook: Outlook::default() }
    })
}

fn facts(policy: &Policy, signal: Signal, layout: Layout, pod: &Pod, stats: Option<&PodStats>) -> Facts {
    let resource = signal.resource();
    let (request, subtracted) = request(pod, resource, policy.quirks);
    Facts {
        preference: Preference::None,
        qos: pod.qos_class(policy.quirks),
        priority: pod.priority(),
        usage: stats.map(|stats| usage(signal, layout, pod, stats)),
        request,
        subtracted,
    }
}

/// Returns what the pod requested, and what is subtracted from its usage. Inodes cannot be requested, so their request counts as zero,
/// and a pod that uses one inode exceeds it.
fn request(pod: &Pod, resource: Resource, quirks: Quirks) -> (Option<Amount>, Amount) {
    match resource {
        Resource::Memory | Resource::EphemeralStorage => {
            let request = pod.request(resource, quirks);
            (Some(request), request)
        }
        Resource::Inodes if quirks.has(Quirk::InodesMinusBytes) => {
            (Some(Amount::ZERO), pod.request(Resource::EphemeralStorage, quirks))
        }
        Resource::Inodes => (Some(Amount::ZERO), Amount::ZERO),
        Resource::Pids => (None, Amount::ZERO),
    }
}

/// Returns how much the pod uses of what `signal` counts. Figures that are missing in the statistics count as zero.
pub fn usage(signal: Signal, layout: Layout, pod: &Pod, stats: &PodStats) -> Amount {
    match signal.resource() {
        Resource::Memory => units(stats.memory.and_then(|stats| stats.working_set_bytes)),
        Resource::Pids => {
            let processes = stats.process_stats.and_then(|stats| stats.process_count);
            Amount::from_billionths(i128::from(processes.unwrap_or(0)) * Amount::from_units(1).billionths())
        }
        Resource::EphemeralStorage => {
            disk(Measured::of(signal, layout), pod, stats, |fs| fs.used_bytes, |volume| volume.used_bytes)
        }
        Resource::Inodes => {
            disk(Measured::of(signal, layout), pod, stats, |fs| fs.inodes_used, |volume| volume.inodes_used)
        }
    }
}

/// Returns the number as an amount, reinterpreted as signed like in the kubelet.
pub(super) fn units(number: Option<u64>) -> Amount {
    Amount::from_units(number.unwrap_or(0).cast_signed())
}

/// Which parts of a pod's disk usage lie on the filesystem of a signal. Images are charged to no pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) writable_layers: bool,
    pub(super) logs_and_volumes: bool,
}

impl Measured {
    pub(super) fn of(signal: Signal, layout: Layout) -> Self {
        let is_node = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
        let is_image = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
        let (writable_layers, logs_and_volumes) = match layout {
            Layout::Single => (true, true),
            Layout::DedicatedImageFs => (!is_node, is_node),
            Layout::SplitImageFs => (!is_image, !is_image),
        };
        Self { writable_layers, logs_and_volumes }
    }
}

fn disk(
    measured: Measured,
    pod: &Pod,
    stats: &PodStats,
    of_fs: impl Fn(&FsUsage) -> Option<u64>,
    of_volume: impl Fn(&VolumeStats) -> Option<u64>,
) -> Amount {
    let mut sum = Amount::ZERO;
    for container in &stats.containers {
        if measured.writable_layers {
            sum = sum + units(container.rootfs.as_ref().and_then(&of_fs));
        }
        if measured.logs_and_volumes {
            sum = sum + units(container.logs.as_ref().and_then(&of_fs));
        }
    }
    if measured.logs_and_volumes {
        let measured = Names::new(&stats.volumes, |it| &it.name);
        for volume in pod.spec.volumes.iter().filter(|volume| is_local(volume)) {
            // If a name occurs twice, the first counts.
            sum = sum + units(measured.first(&volume.name).and_then(&of_volume));
        }
    }
    sum
}

/// Returns whether the content of the volume lies on the node's own filesystem.
pub(super) fn is_local(volume: &Volume) -> bool {
    let is_directory = volume.empty_dir.as_ref().is_some_and(|empty_dir| empty_dir.medium.is_empty());
    is_directory || volume.host_path.is_some() || volume.config_map || volume.git_repo
}

#[cfg(test)]
#[path = "usage_tests.rs"]
mod tests;
