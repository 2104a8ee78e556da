//! The disk usage of a workload on each filesystem, in the form that decisions and reports use. Pure.

use std::sync::Arc;

use crate::config::ProjectQuotas;
use crate::disk::{Held, Part, PartUsage, Source, Usage, Usages};
use crate::eviction::DiskUsage;
use crate::eviction::footprint::Taken;
use crate::kernel::DeviceId;
use crate::node::filesystem_roles::Role;
use crate::node::statfs::Place;
use crate::units::Monotonic;
use crate::workloads::Pod;
use crate::workloads::pod::Volume;

use super::figure_report::{DiskUsageReport, KeptReport};

/// The filesystems on which workloads are measured. A part matches any device while the device of its role is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles {
    /// The filesystem of logs and volumes.
    pub(super) node: Option<DeviceId>,
    /// The filesystem of writable layers.
    pub(super) container: Option<DeviceId>,
}

impl Roles {
    pub fn at<'p>(place: impl Fn(Role) -> Option<&'p Place>) -> Self {
        let device = |role| place(role).and_then(device);
        // Writable layers are on the filesystem of the images unless a container filesystem was found.
        Self { node: device(Role::Node), container: device(Role::Container).or_else(|| device(Role::Image)) }
    }

    /// Returns whether a part is on the filesystem of its role.
    pub fn holds(&self, part: &PartUsage) -> bool {
        let role = if matches!(part.part, Part::WritableLayer { .. }) { self.container } else { self.node };
        role.is_none_or(|device| device == part.device)
    }
}

/// Returns the device number of the files on a filesystem; nothing where files have other numbers than their mount.
pub(super) fn device(place: &Place) -> Option<DeviceId> {
    let (major, minor) = place.device.split_once(':').filter(|_| !MANY_DEVICES.contains(&place.kind.as_str()))?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(DeviceId(major << 20 | minor))
}

/// On these filesystems each subvolume or layer has its own device number.
const MANY_DEVICES: [&str; 3] = ["btrfs", "bcachefs", "overlay"];

/// Sums the disk usage of a workload on the filesystems of the roles. Parts on another disk (`/var/log` may be one) are omitted,
/// because evicting the workload does not free space on these filesystems. `figure` is the figure of a part that counts.
pub(super) fn disk_usage(usage: &Usage, roles: Roles, figure: impl Fn(&PartUsage) -> Held) -> DiskUsage {
    let sum = |is_wanted: &dyn Fn(&Part) -> bool| {
        let parts = usage.parts.iter().filter(|part| is_wanted(&part.part) && roles.holds(part));
        let Held { bytes, inodes } = parts.map(&figure).sum();
        Taken { bytes, inodes }
    };
    let is_logs = |part: &Part| matches!(part, Part::Logs { .. });
    let is_layer = |part: &Part| matches!(part, Part::WritableLayer { .. });
    DiskUsage {
        layers: sum(&is_layer),
        logs: sum(&is_logs),
        volumes: sum(&|part| part.is_on_disk() && !is_logs(part) && !is_layer(part)),
        at: usage.at,
    }
}

/// Raises the inodes of an incompletely measured workload to those that it has created and not removed, as the eBPF programs count. `made`
/// returns their number on a filesystem. What was missed most likely lies where the workload writes: in its volumes, or in its layers if
/// they are on a filesystem of their own.
pub(super) fn at_least_made(mut usage: DiskUsage, roles: Roles, made: impl Fn(DeviceId) -> u64) -> DiskUsage {
    let made = |device: Option<DeviceId>| device.map_or(0, &made);
    let mut seen = usage.logs.inodes.saturating_add(usage.volumes.inodes);
    if roles.node == roles.container {
        seen = seen.saturating_add(usage.layers.inodes);
    } else {
        usage.layers.inodes = usage.layers.inodes.max(made(roles.container));
    }
    let missed = made(roles.node).saturating_sub(seen);
    usage.volumes.inodes = usage.volumes.inodes.saturating_add(missed);
    usage
}

pub(super) fn report(usages: &Usages, now: Monotonic) -> DiskUsageReport {
    let mut workloads: Vec<_> = usages.by_workload.iter().collect();
    workloads.sort_unstable_by_key(|(name, _)| *name);
    let of_workload = |(name, usage): (&Arc<str>, &Arc<Usage>)| -> Vec<KeptReport> {
        let of_source = |source: Source| {
            let parts = || usage.parts.iter().filter(move |part| part.source == source && part.part.is_on_disk());
            let oldest = parts().map(|part| part.at).min()?;
            let Held { bytes, inodes } = parts().map(|part| part.held).sum();
            let (workload, source) = (name.to_string(), source.as_str());
            Some(KeptReport { workload, source, bytes, inodes, age: now.since(oldest) })
        };
        Source::ALL.into_iter().filter_map(of_source).collect()
    };
    DiskUsageReport {
        kept: workloads.into_iter().flat_map(of_workload).collect(),
        walked: usages.effort.entries,
        recounts: usages.effort.recounts,
        cpu: usages.effort.cpu,
    }
}

/// Returns whether no process of a pod can change what its project quota counts.
pub fn trusts_quotas(quotas: ProjectQuotas, pod: Option<&Pod>) -> bool {
    match quotas {
        ProjectQuotas::Isolated => pod.is_some_and(|pod| pod.spec.host_users == Some(false)),
        ProjectQuotas::Trusted => true,
        ProjectQuotas::Off => false,
    }
}

/// Returns whether a pod has a limit of local storage.
pub(super) fn is_limited(pod: &Pod) -> bool {
    let has_size = |volume: &Volume| volume.empty_dir.as_ref().is_some_and(|it| it.size_limit.is_some());
    pod.spec.volumes.iter().any(has_size) || pod.ephemeral_storage_limit().is_some()
}

#[cfg(test)]
#[path = "disk_usage_by_role_tests.rs"]
mod tests;
