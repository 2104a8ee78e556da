//! The memory of system daemons, compared with what is reserved for them (`systemReserved`, `kubeReserved`).

use std::cmp::Reverse;

use crate::config::Policy;
use crate::eviction::daemons;
use crate::units::Bytes;
use crate::workloads::WorkloadUsage;

use super::Sensors;
use super::figure_report::DaemonsReport;

/// Workloads that are named when the daemons exceed their reservation.
const NAMED: usize = 3;

impl Sensors {
    /// Compares what the pods do not use with the reservation. Returns `None` without a reservation, or without the figures of the node or
    /// of the pods. Reads the root cgroup, and every workload outside of pods while the reservation is exceeded.
    pub fn daemons(&mut self, policy: &Policy) -> Option<DaemonsReport> {
        let reserved = daemons::reserved_memory(policy)?.bytes();
        let pods = self.signals.allocatable.sample()?.working_set();
        let used = self.memory.working_set()?.saturating_sub(pods);
        let above = used.saturating_sub(reserved);
        let largest = if above.is_zero() { Vec::new() } else { self.largest_outside_pods() };
        Some(DaemonsReport { reserved, above, largest })
    }

    fn largest_outside_pods(&mut self) -> Vec<(String, Bytes)> {
        largest(self.workloads.tree_mut().usage_upper_bounds())
    }
}

fn largest(mut usages: Vec<WorkloadUsage>) -> Vec<(String, Bytes)> {
    usages.retain(|usage| usage.workload.kind.pod_uid().is_none());
    usages.sort_by_key(|usage| Reverse(usage.working_set));
    usages.into_iter().take(NAMED).map(|usage| (usage.workload.name.clone(), usage.working_set)).collect()
}
