//! The thread that measures disks: whom it is to measure, whom first, and what it found in the shapes that decisions want.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::config::ProjectQuotas;
use crate::disk::{Held, Part, PartUsage, Source, Usage, Usages, Walker, WorkloadPlaces};
use crate::eviction::footprint::Taken;
use crate::eviction::{Armed, DiskUsage, DiskUsages, NodeCondition};
use crate::kernel::DeviceId;
use crate::node::filesystem_roles::Role;
use crate::node::statfs::Place;
use crate::report::{DiskUsageReport, KeptReport};
use crate::units::{CgroupId, Monotonic};
use crate::workloads::kubelet_summary::PodStats;
use crate::workloads::pod::Volume;
use crate::workloads::{Pod, PodUid, Workload};

use super::Agent;
use super::local_storage::PodUsages;
use super::signals::Signals;

/// The thread, as the loop sees it.
#[derive(Debug, Clone)]
pub struct Measured {
    walker: Arc<Walker>,
    roles: Arc<Mutex<Roles>>,
}

/// The filesystems of the roles; what is not known here is taken for the right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles {
    /// Logs and volumes.
    node: Option<DeviceId>,
    /// Writable layers.
    container: Option<DeviceId>,
}

impl Roles {
    fn of(signals: &Signals) -> Self {
        Self::at(|role| signals.place(role))
    }

    /// Where these roles are.
    pub fn at<'p>(place: impl Fn(Role) -> Option<&'p Place>) -> Self {
        let device = |role| place(role).and_then(device);
        // As the layout has it: layers are where the images are, unless somebody says otherwise.
        Self { node: device(Role::Node), container: device(Role::Container).or_else(|| device(Role::Image)) }
    }

    /// Whether a part lies on the filesystem of its role, as far as that is known.
    #[must_use]
    pub fn holds(&self, part: &PartUsage) -> bool {
        let role = if matches!(part.part, Part::WritableLayer { .. }) { self.container } else { self.node };
        role.is_none_or(|device| device == part.device)
    }
}

/// The device that the files of a filesystem have; that of others is not the one of their mount.
fn device(place: &Place) -> Option<DeviceId> {
    let (major, minor) = place.device.split_once(':').filter(|_| !MANY_DEVICES.contains(&place.kind.as_str()))?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    (major < 1 << 12 && minor < 1 << 20).then_some(DeviceId(major << 20 | minor))
}

/// Each subvolume has one of its own, or each layer.
const MANY_DEVICES: [&str; 3] = ["btrfs", "bcachefs", "overlay"];

/// Whether somebody's limits have come or gone is asked this often.
const LIMITS_AGAIN: Duration = Duration::from_secs(10);
/// What it is called among the capabilities that are missing.
const CAPABILITY: &str = "disk_usage";

/// What the loop has told it last.
#[derive(Debug, Default)]
pub(super) struct Steered {
    workloads: Vec<CgroupId>,
    /// With whether they have limits.
    wanted: Vec<(CgroupId, bool, bool)>,
    looked: Option<Monotonic>,
    is_needed: bool,
    is_pressed: bool,
    is_urgent: bool,
    hangs: bool,
}

impl Measured {
    /// What this thread measures.
    #[must_use]
    pub fn by(walker: Arc<Walker>) -> Self {
        Self { walker, roles: Arc::default() }
    }

    /// What is known of the disks.
    pub(super) fn usages(&self) -> Arc<Usages> {
        self.walker.usages()
    }

    fn roles(&self) -> MutexGuard<'_, Roles> {
        self.roles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskUsages for Measured {
    fn usage(&self, workload: &str) -> Option<DiskUsage> {
        let usages = self.walker.usages();
        let roles = *self.roles();
        usages.by_workload.get(workload).map(|usage| disk_usage(usage, roles))
    }
}

impl PodUsages for Measured {
    fn stats(
        &self,
        pod: &PodUid,
        workload: &str,
        id: CgroupId,
        name_of: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(PodStats, Monotonic)> {
        let usages = self.walker.usages();
        usages.get(workload, id).map(|usage| (usage.statistics(&pod.0, name_of), usage.at))
    }

    fn hurry(&self, workload: &str) {
        self.walker.prioritize(workload);
    }
}

/// What a workload has on the filesystems of the roles: what lies on a disk of its own (`/var/log` may) gives nothing back to another.
fn disk_usage(usage: &Usage, roles: Roles) -> DiskUsage {
    let sum = |is_wanted: &dyn Fn(&Part) -> bool| {
        let parts = usage.parts.iter().filter(|part| is_wanted(&part.part) && roles.holds(part));
        let Held { bytes, inodes } = parts.map(|part| part.held).sum();
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

fn report(usages: &Usages, now: Monotonic) -> DiskUsageReport {
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

/// Whether nobody in a pod can change what its project quota counts.
#[must_use]
pub fn trusts_quotas(quotas: ProjectQuotas, pod: Option<&Pod>) -> bool {
    match quotas {
        ProjectQuotas::Isolated => pod.is_some_and(|pod| pod.spec.host_users == Some(false)),
        ProjectQuotas::Trusted => true,
        ProjectQuotas::Off => false,
    }
}

/// Whether what a pod keeps is limited.
fn is_limited(pod: &Pod) -> bool {
    let has_size = |volume: &Volume| volume.empty_dir.as_ref().is_some_and(|it| it.size_limit.is_some());
    pod.spec.volumes.iter().any(has_size) || pod.ephemeral_storage_limit().is_some()
}

impl Agent {
    /// What is known of the disks, for others to see.
    pub(super) fn disk_usage_report(&self) -> DiskUsageReport {
        let Some(Measured { walker, .. }) = &self.sensors.measured else { return DiskUsageReport::default() };
        report(&walker.usages(), Monotonic::now())
    }

    /// Tells the thread what the loop has learnt since: who is there, who is at work on the disks, and whether it is urgent.
    pub(super) fn steer_walker(&mut self) {
        let is_met = self.decision.assessment().met.iter().any(|met| met.threshold.signal.resource().is_on_disk());
        if !is_met {
            self.decision.reset_renewal();
        }
        let Some(measured) = &self.sensors.measured else { return };
        let now = Monotonic::now();
        *measured.roles() = Roles::of(&self.sensors.signals);
        let is_pressed = self.decision.assessment().conditions.contains(&NodeCondition::DiskPressure);
        if is_pressed != self.sensors.steered.is_pressed {
            self.sensors.steered.is_pressed = is_pressed;
            self.decision.reset_renewal();
            // Without a runtime there is nothing to look at more often.
            let _no_runtime = self.runtime.set_pressure(is_pressed);
        }
        let is_urgent = is_pressed && self.decision.renewal().is_urgent();
        if is_urgent != self.sensors.steered.is_urgent {
            self.sensors.steered.is_urgent = is_urgent;
            measured.walker.set_pressure(is_urgent);
        }
        self.tell_hang(now);
        self.tell_wanted(now);
    }

    /// Everybody is measured where something is decided by it: a threshold of a disk, or a limit of local storage. Nothing else is made
    /// of it.
    fn tell_wanted(&mut self, now: Monotonic) {
        let Some(measured) = &self.sensors.measured else { return };
        let workloads = || self.sensors.tree.workloads().filter(|workload| workload.protection.is_none());
        let is_of_disk = |armed: &Armed| armed.threshold.signal.resource().is_on_disk();
        let is_needed = self.sensors.local.has_limits() || self.decision.armed().iter().any(is_of_disk);
        let is_same = is_needed == self.sensors.steered.is_needed
            && workloads().map(|workload| workload.id).eq(self.sensors.steered.workloads.iter().copied());
        if is_same && self.sensors.steered.looked.is_some_and(|at| now.since(at) < LIMITS_AGAIN) {
            return;
        }
        (self.sensors.steered.looked, self.sensors.steered.is_needed) = (Some(now), is_needed);
        self.sensors.steered.workloads = workloads().map(|workload| workload.id).collect();
        let hierarchy = &self.sensors.tree.hierarchy().memory;
        let quotas = self.config.disk_usage.project_quotas;
        let specs = self.sensors.local.specs();
        let places = |workload: &Workload| {
            let pod = workload.kind.pod_uid().and_then(|uid| specs.find(uid));
            let (is_limited, trusts_quotas) = (pod.is_some_and(is_limited), trusts_quotas(quotas, pod));
            WorkloadPlaces::of(workload, hierarchy).map(|places| WorkloadPlaces { is_limited, trusts_quotas, ..places })
        };
        let all: Vec<WorkloadPlaces> = workloads().filter(|_| is_needed).filter_map(places).collect();
        let wanted: Vec<(CgroupId, bool, bool)> =
            all.iter().map(|places| (places.id, places.is_limited, places.trusts_quotas)).collect();
        if wanted != self.sensors.steered.wanted {
            self.sensors.steered.wanted = wanted;
            measured.walker.set_workloads(all);
        }
    }

    /// Says once that nothing more is measured, and once that it is again.
    fn tell_hang(&mut self, now: Monotonic) {
        let hangs = self.sensors.measured.as_ref().and_then(|measured| measured.walker.stall_reason(now));
        if hangs.is_some() == self.sensors.steered.hangs {
            return;
        }
        self.sensors.steered.hangs = hangs.is_some();
        self.reporter.set_capability(CAPABILITY, hangs.as_deref(), "disk usage is not measured", now);
    }

    /// Whether every candidate's disk usage is at most `tolerated` older than `since`; `renew`: all are measured anew.
    pub(super) fn are_disks_measured(&self, since: Monotonic, tolerated: Duration, renew: bool) -> bool {
        let Some(Measured { walker, .. }) = &self.sensors.measured else { return true };
        if renew {
            walker.remeasure(since);
        }
        let usages = walker.usages();
        let is_renewed = |workload: &Workload| {
            let usage = usages.get(&workload.name, workload.id);
            usage.is_some_and(|usage| !usage.is_under_way && usage.at.after(tolerated) >= since)
        };
        let is_measured = |workload: &&Workload| workload.protection.is_none() && WorkloadPlaces::has(workload);
        self.sensors.tree.workloads().filter(is_measured).all(is_renewed)
    }

    /// Whether the thread hangs, and nothing more is measured.
    pub(super) fn is_measuring_stuck(&self) -> bool {
        self.sensors.steered.hangs
    }

    /// Whoever makes inodes is measured first.
    pub(super) fn hurry_makers(&self) {
        let Some(Measured { walker, .. }) = &self.sensors.measured else { return };
        let mut makers: Vec<Arc<str>> =
            self.sensors.disks.at_work().filter_map(|id| self.sensors.tree.owner(id)).collect();
        makers.sort_unstable();
        makers.dedup();
        makers.iter().for_each(|workload| walker.prioritize(workload));
    }
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
