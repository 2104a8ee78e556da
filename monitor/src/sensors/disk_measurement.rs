//! Orders the thread that measures disk usage which workloads to measure, in which order, and how urgently.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::ProjectQuotas;
use crate::disk::{Usages, Walker, WorkloadPlaces};
use crate::eviction::DiskUsage;
use crate::kernel::DeviceId;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::kubelet_summary::PodStats;
use crate::workloads::{PodSpecs, PodUid, Tracked, Workload, WorkloadTree};

use super::disk_usage_by_role::{Roles, at_least_made, disk_usage, is_limited, report, trusts_quotas};
use super::figure_report::DiskUsageReport;

/// How often the agent looks for new or removed storage limits of pods.
const LIMITS_EVERY: Duration = Duration::from_secs(10);

/// How long evictions are remembered. Within this time every workload gets a new measurement.
const EVICTED_KEPT: Duration = Duration::from_secs(600);

/// The decision's demand for measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskDemand {
    /// A threshold or a limit of local storage is decided by disk usage.
    pub is_needed: bool,
    /// The node has `DiskPressure`, and an eviction may follow soon.
    pub is_urgent: bool,
}

#[derive(Debug)]
pub struct DiskMeasurement {
    walker: Arc<Walker>,
    roles: Roles,
    workloads: Vec<CgroupId>,
    /// The workloads last passed to the thread: cgroup, whether the workload is limited, whether its quotas are reliable.
    wanted: Vec<(CgroupId, bool, bool)>,
    wanted_at: Option<Monotonic>,
    is_needed: bool,
    is_pressed: bool,
    is_urgent: bool,
    /// The reason why no workload is being measured.
    missing: Option<String>,
    /// The time of each workload's last eviction. A restarted workload has the same name and cgroup, but not the earlier usage.
    evicted: HashMap<CgroupId, Monotonic>,
    made: Made,
}

/// Inodes by workload and filesystem.
pub(super) type Made = HashMap<Arc<str>, HashMap<DeviceId, u64>>;

impl DiskMeasurement {
    pub fn new(walker: Arc<Walker>) -> Self {
        Self {
            walker,
            roles: Roles::default(),
            workloads: Vec::new(),
            wanted: Vec::new(),
            wanted_at: None,
            is_needed: false,
            is_pressed: false,
            is_urgent: false,
            missing: None,
            evicted: HashMap::new(),
            made: Made::new(),
        }
    }

    /// Returns the usages of all workloads without waiting.
    pub fn usages(&self) -> Arc<Usages> {
        self.walker.usages()
    }

    /// Returns the disk usage of a workload by role of the filesystem; nothing while it is unknown.
    pub fn usage(&self, workload: &str) -> Option<DiskUsage> {
        let usages = self.walker.usages();
        usages.by_workload.get(workload).map(|usage| disk_usage(usage, self.roles, |part| part.held))
    }

    /// Returns the disk usage that counts in a ranking, as [`Self::usage`]. A workload that hides files from a measurement has at least
    /// what it had at the last complete one, and at least the inodes that it has made.
    pub fn ranked_usage(&self, workload: &str) -> Option<DiskUsage> {
        let usages = self.walker.usages();
        let usage = usages.by_workload.get(workload)?;
        let ranked = disk_usage(usage, self.roles, |part| part.ranked);
        let misses_files = !usage.is_under_way && usage.parts.iter().any(|part| !part.is_complete);
        let made = |device| self.made.get(workload).and_then(|made| made.get(&device)).copied().unwrap_or(0);
        Some(if misses_files { at_least_made(ranked, self.roles, made) } else { ranked })
    }

    /// Sets how many inodes each workload has made and not removed, by filesystem.
    pub(super) fn set_made(&mut self, made: Made) {
        self.made = made;
    }

    /// Returns the disk usage of a pod in the format of the Summary API, and when its oldest part was measured. `name_of` maps
    /// the runtime's id of a container to the container's name.
    pub fn pod_stats(
        &self,
        (pod, workload, id): (&PodUid, &str, CgroupId),
        name_of: &dyn Fn(&str) -> Option<String>,
    ) -> Option<(PodStats, Monotonic)> {
        let usages = self.walker.usages();
        usages.get(workload, id).map(|usage| (usage.statistics(&pod.0, name_of), usage.at))
    }

    /// Has a workload measured before the others.
    pub fn hurry(&self, workload: &str) {
        self.walker.prioritize(workload);
    }

    /// Notes the eviction of a workload, for any cause.
    pub fn note_evicted(&mut self, id: CgroupId, now: Monotonic) {
        self.evicted.retain(|_, at| now.since(*at) < EVICTED_KEPT);
        self.evicted.insert(id, now);
    }

    pub fn was_evicted_since(&self, id: CgroupId, at: Monotonic) -> bool {
        self.evicted.get(&id).is_some_and(|evicted| at <= *evicted)
    }

    pub fn report(&self, now: Monotonic) -> DiskUsageReport {
        report(&self.walker.usages(), now)
    }

    /// Returns the reason why the figures are out of date.
    pub fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Sets whether the node has `DiskPressure`. Returns whether that has changed.
    pub fn set_pressure(&mut self, is_pressed: bool) -> bool {
        std::mem::replace(&mut self.is_pressed, is_pressed) != is_pressed
    }

    /// Returns whether the node has `DiskPressure`.
    pub const fn is_pressed(&self) -> bool {
        self.is_pressed
    }

    /// Passes the urgency to the thread, and notes whether the thread hangs.
    pub(super) fn steer(&mut self, is_urgent: bool, roles: Roles, now: Monotonic) {
        self.roles = roles;
        if is_urgent != self.is_urgent {
            self.is_urgent = is_urgent;
            self.walker.set_pressure(is_urgent);
        }
        self.missing = self.walker.stall_reason(now);
    }

    /// Has all candidates measured while a decision needs their disk usage, and the pods that have ended until the kubelet has removed them.
    pub(super) fn want(
        &mut self,
        is_needed: bool,
        tree: &WorkloadTree,
        (specs, quotas): (&PodSpecs, ProjectQuotas),
        now: Monotonic,
    ) {
        let ended = || tree.ended().iter().map(Tracked::workload);
        let workloads = || tree.workloads().filter(|workload| workload.protection.is_none()).chain(ended());
        let is_same =
            is_needed == self.is_needed && workloads().map(|workload| workload.id).eq(self.workloads.iter().copied());
        if is_same && self.wanted_at.is_some_and(|at| now.since(at) < LIMITS_EVERY) {
            return;
        }
        (self.wanted_at, self.is_needed) = (Some(now), is_needed);
        self.workloads = workloads().map(|workload| workload.id).collect();
        let places = |workload: &Workload| {
            let pod = workload.kind.pod_uid().and_then(|uid| specs.find(uid));
            let (is_limited, trusts_quotas) = (pod.is_some_and(is_limited), trusts_quotas(quotas, pod));
            WorkloadPlaces::of(workload, &tree.hierarchy().memory).map(|places| WorkloadPlaces {
                is_limited,
                trusts_quotas,
                ..places
            })
        };
        let all: Vec<WorkloadPlaces> = workloads().filter(|_| is_needed).filter_map(places).collect();
        let wanted: Vec<(CgroupId, bool, bool)> =
            all.iter().map(|places| (places.id, places.is_limited, places.trusts_quotas)).collect();
        if wanted != self.wanted {
            self.wanted = wanted;
            self.walker.set_workloads(all);
        }
    }

    /// Returns whether the figures of all candidates are at most `tolerated` older than `since`. `renew` has all candidates
    /// measured again.
    pub(super) fn is_measured(&self, since: Monotonic, tolerated: Duration, renew: bool, tree: &WorkloadTree) -> bool {
        if renew {
            self.walker.remeasure(since);
        }
        let usages = self.walker.usages();
        let is_renewed = |workload: &Workload| {
            let usage = usages.get(&workload.name, workload.id);
            usage.is_some_and(|usage| !usage.is_under_way && usage.at.after(tolerated) >= since)
        };
        let is_measured = |workload: &&Workload| workload.protection.is_none() && WorkloadPlaces::has(workload);
        tree.workloads().filter(is_measured).all(is_renewed)
    }
}
