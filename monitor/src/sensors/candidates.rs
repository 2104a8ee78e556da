//! Candidates for an eviction, and their usage of the resource that is short.

use std::collections::HashMap;
use std::time::Duration;

use crate::config::{MonitorConfig, Quirks};
use crate::eviction::DiskUsage;
use crate::node::pinned_file::Buffer;
use crate::units::{Amount, CgroupId, Monotonic, Resource, Signal, signed};
use crate::workloads::{OtherUsage, Protection, Tracked, WorkloadUsage, task_count};

use super::{Sensors, growth};

/// Maximum age of the list of workloads at a decision. Usage is always read anew.
pub const LIST_AGE_AT_DECISION: Duration = Duration::from_millis(500);
/// Maximum age, at a decision, of the look for victims of other programs. A look takes five system calls or more for each of eight workloads.
const OTHERS_VICTIMS_AGE: Duration = Duration::from_millis(250);

impl Sensors {
    /// Returns the candidates with their usage of the resource behind `signal`.
    pub fn candidates(&mut self, signal: Signal, exact: bool, config: &MonitorConfig) -> Vec<WorkloadUsage> {
        self.workloads.list_if_older(LIST_AGE_AT_DECISION, Monotonic::now());
        let is_memory = signal.resource() == Resource::Memory;
        if is_memory {
            self.note_others_victims_if_older(OTHERS_VICTIMS_AGE, &config.proc_root);
        }
        let tree = self.workloads.tree_mut();
        let mut usages = if is_memory && exact { tree.usages() } else { tree.usage_upper_bounds() };
        if signal == Signal::AllocatableMemoryAvailable {
            keep_pods(&mut usages);
        }
        // A pod of a DaemonSet may be evicted for memory if it leaks. The decider judges that.
        let may_go = |protection: Protection| is_memory && protection == Protection::DaemonSet;
        usages.retain(|usage| usage.workload.protection.is_none_or(may_go));
        usages.iter_mut().for_each(|usage| growth::complete(&self.growth, usage));
        if !is_memory {
            self.add_usage_of(signal, &mut usages, config.policy.quirks);
        }
        usages
    }

    fn add_usage_of(&self, signal: Signal, usages: &mut Vec<WorkloadUsage>, quirks: Quirks) {
        if signal.resource().is_on_disk() {
            // Only the disk usage of a pod is given back, because the runtime removes the pod.
            let is_removed = self.platform.runtime.view().state.is_there();
            usages.retain(|usage| is_removed && usage.workload.kind.pod_uid().is_some());
        }
        let tracked: HashMap<CgroupId, &Tracked> =
            self.workloads.tree().tracked().iter().map(|tracked| (tracked.workload().id, tracked)).collect();
        let mut buffer = Buffer::new();
        for usage in usages {
            let tracked = tracked.get(&usage.workload.id).copied();
            usage.other = Some(self.other_usage(signal, tracked, &usage.workload.name, quirks, &mut buffer));
        }
    }

    fn other_usage(
        &self,
        signal: Signal,
        tracked: Option<&Tracked>,
        name: &str,
        quirks: Quirks,
        buffer: &mut Buffer,
    ) -> OtherUsage {
        let resource = signal.resource();
        if resource == Resource::Pids {
            let hierarchy = self.workloads.tree().hierarchy();
            let count = tracked.and_then(|it| task_count::count(it.directory(), name, hierarchy, buffer));
            let used = count.map(|count| Amount::from_units(signed(count)));
            return OtherUsage { resource, used, request: None };
        }
        // A restarted pod keeps its name and cgroup, but not its disk usage. A measurement that hangs is out of date.
        let is_of_now = |usage: &DiskUsage| {
            let id = tracked.map(|it| it.workload().id);
            self.disk.missing().is_none() && !id.is_some_and(|id| self.disk.was_evicted_since(id, usage.at))
        };
        let usage = self.disk.ranked_usage(name).filter(is_of_now);
        let used = usage.map(|usage| usage.on(signal, self.signals.filesystems.layout()));
        // Without a known request every workload on the disk counts as above its request. Inodes cannot be requested.
        let pod = tracked.and_then(|it| it.workload().pod.as_ref());
        let request = pod.map_or(Amount::ZERO, |pod| pod.request(resource, quirks));
        OtherUsage { resource, used, request: Some(request) }
    }
}

/// Only a pod's end returns memory below the limit of all pods.
fn keep_pods(usages: &mut Vec<WorkloadUsage>) {
    usages.retain(|usage| usage.workload.kind.pod_uid().is_some());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;
    use crate::workloads::{Kind, PodUid, Workload, fixtures};

    fn usage(name: &str, kind: Kind) -> WorkloadUsage {
        fixtures::usage(Workload { kind, ..fixtures::workload(name) }, Bytes(1))
    }

    #[test]
    fn candidates_for_the_memory_of_all_pods_are_pods() {
        let uid = || PodUid("u".to_owned());
        let mut usages = vec![
            usage("system.slice/a.service", Kind::Service),
            usage("kubepods/podu", Kind::Pod(uid())),
            usage("docker/x", Kind::Container("x".to_owned())),
        ];
        keep_pods(&mut usages);
        assert_eq!(usages.iter().map(|usage| &*usage.workload.name).collect::<Vec<_>>(), ["kubepods/podu"]);
    }
}
