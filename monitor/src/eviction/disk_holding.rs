//! What a pod holds on the disk that is short, in words. A kubelet names the containers alone (`Quirk::MessageWithoutVolumes`).

use crate::config::{Policy, Quirk};
use crate::units::{Amount, Quantity, Resource, Signal};
use crate::workloads::Pod;
use crate::workloads::kubelet_summary::{ContainerStats, FsUsage, PodStats};

use super::Layout;
use super::usage::{Measured, is_local, units, usage};

#[derive(Debug)]
pub(super) struct DiskHolding<'a> {
    pod: &'a Pod,
    stats: &'a PodStats,
    resource: Resource,
    measured: Measured,
    held: Amount,
    request: Amount,
}

impl<'a> DiskHolding<'a> {
    /// Returns what the pod holds, or `None` where the message does not tell it.
    pub(super) fn of(
        policy: &Policy,
        signal: Signal,
        layout: Layout,
        pod: &'a Pod,
        stats: &'a PodStats,
    ) -> Option<Self> {
        let resource = signal.resource();
        let is_disk = matches!(resource, Resource::EphemeralStorage | Resource::Inodes);
        (is_disk && !policy.quirks.has(Quirk::MessageWithoutVolumes)).then(|| Self {
            pod,
            stats,
            resource,
            measured: Measured::of(signal, layout),
            held: usage(signal, layout, pod, stats),
            request: pod.request(resource, policy.quirks),
        })
    }

    /// Returns what the pod holds and requests, in words, if it holds more than it requests.
    pub(super) fn usage_above_request(&self) -> Option<(String, String)> {
        (self.held > self.request).then(|| (self.text(self.held), self.text(self.request)))
    }

    /// Returns a sentence for each volume that holds much, as in `Volume tmp holds 60Gi. `.
    pub(super) fn volumes(&self) -> impl Iterator<Item = String> {
        let local = self.pod.spec.volumes.iter().filter(|volume| self.measured.logs_and_volumes && is_local(volume));
        local.filter_map(|volume| {
            let stats = self.stats.volumes.iter().find(|stats| stats.name == volume.name)?;
            let held = units(if self.resource.is_bytes() { stats.used_bytes } else { stats.inodes_used });
            self.is_much(held).then(|| format!("Volume {} holds {}. ", volume.name, self.text(held)))
        })
    }

    /// Returns whether the container, without volumes, holds enough of what is short to be named.
    pub(super) fn is_worth_naming(&self, container: &ContainerStats) -> bool {
        let layer = container.rootfs.filter(|_| self.measured.writable_layers);
        let logs = container.logs.filter(|_| self.measured.logs_and_volumes);
        let held = |fs: Option<FsUsage>| units(fs.and_then(|fs| fs.used_bytes));
        self.is_much(held(layer) + held(logs))
    }

    /// Returns whether the amount is at least a tenth of what the pod holds.
    fn is_much(&self, amount: Amount) -> bool {
        !amount.is_zero() && amount.billionths().saturating_mul(10) >= self.held.billionths()
    }

    fn text(&self, amount: Amount) -> String {
        Quantity::from_units(amount.units(), self.resource.is_bytes()).to_string()
    }
}
