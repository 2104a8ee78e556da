//! Steers the threads that measure disks by the state of the decider.

use std::sync::Arc;

use crate::config::{MonitorConfig, ProjectQuotas};
use crate::eviction::NodeCondition;
use crate::eviction::decider::Decider;
use crate::runtime::Runtime;
use crate::units::{Monotonic, Resource};
use crate::workloads::WorkloadUsage;

use super::Sensors;
use super::disk_measurement::DiskDemand;
use super::disk_usage_by_role::Roles;

impl Sensors {
    /// Passes the need for measurements, and its urgency, to the threads that measure disks. The runtime observes more often under pressure.
    pub fn steer_disks(
        &mut self,
        decider: &mut Decider<WorkloadUsage>,
        runtime: &Runtime,
        config: &MonitorConfig,
        now: Monotonic,
    ) {
        let mut armed = decider.armed().iter().map(|armed| armed.threshold.signal.resource());
        let is_inodes_armed = armed.clone().any(|resource| resource == Resource::Inodes);
        let is_disk_armed = armed.any(Resource::is_on_disk);
        self.steer_filesystems(is_inodes_armed, now);
        let assessment = decider.assessment();
        let is_met = assessment.met.iter().any(|met| met.threshold.signal.resource().is_on_disk());
        let is_pressed = assessment.conditions.contains(&NodeCondition::DiskPressure);
        let has_changed = self.disk.set_pressure(is_pressed);
        if has_changed {
            // Without a runtime no request rate can be raised.
            let _no_runtime = runtime.set_pressure(is_pressed);
        }
        if has_changed || !is_met {
            decider.reset_renewal();
        }
        let demand = DiskDemand {
            is_needed: self.pods.has_any() || is_disk_armed,
            is_urgent: is_pressed && decider.renewal().is_urgent(),
        };
        self.steer_disk_measurement(demand, config.disk_usage.project_quotas, now);
    }

    /// Passes the rate at which inodes are used up to the filesystem thread, and has workloads that create inodes measured first.
    /// `is_armed`: a threshold on inodes is set.
    fn steer_filesystems(&mut self, is_armed: bool, now: Monotonic) {
        if !is_armed || !self.facts().inodes || !self.signals.filesystems.is_growth_due(now) {
            return;
        }
        let inodes = self.events.inodes();
        self.inodes.observe(&inodes, now);
        self.signals.filesystems.pass_growth(self.inodes.growing(), now);
        let tree = self.workloads.tree();
        let mut makers: Vec<Arc<str>> = self.inodes.growing_cgroups().filter_map(|id| tree.owner(id)).collect();
        makers.sort_unstable();
        makers.dedup();
        makers.iter().for_each(|workload| self.disk.hurry(workload));
        self.disk.set_made(self.inodes.made(|id| tree.owner(id)));
    }

    /// Passes the workloads to measure, and the urgency, to the thread that measures disk usage.
    fn steer_disk_measurement(&mut self, demand: DiskDemand, quotas: ProjectQuotas, now: Monotonic) {
        let roles = Roles::at(|role| self.signals.filesystems.place(role));
        self.disk.steer(demand.is_urgent, roles, now);
        self.disk.want(demand.is_needed, self.workloads.tree(), (self.pods.specs(), quotas), now);
    }
}
