//! The facts of the loop for the Summary API document, which another thread builds.

use std::sync::Arc;

use crate::report::NodeReport;
use crate::report::stats::{Known, PodCgroup};
use crate::units::Signal;
use crate::workloads::Workload;

use super::Agent;

impl Agent {
    /// Returns the present facts. The cost is that of copying the pods' names.
    pub(super) fn known(&self, report: &NodeReport) -> Known {
        let runtime = self.runtime.view();
        let cluster = self.cluster.view();
        let pids = report.figures.signals.iter().find(|it| it.signal == Signal::PidAvailable);
        let pod = |workload: &Workload| {
            let uid = workload.kind.pod_uid()?.clone();
            Some(PodCgroup { uid, path: workload.name.clone(), id: workload.id })
        };
        Known {
            node_name: if cluster.node_name.is_empty() {
                rustix::system::uname().nodename().to_string_lossy().into_owned()
            } else {
                cluster.node_name.to_string()
            },
            memory: report.memory.clone(),
            swap: report.figures.swap,
            pids: pids.map(|it| (it.available, it.capacity)),
            filesystems: self.sensors.signals.filesystems.samples().to_vec(),
            stores: runtime.stores,
            hierarchy: self.sensors.workloads.tree().hierarchy().clone(),
            pods: self.sensors.workloads.tree().workloads().filter_map(pod).collect(),
            snapshot: runtime.snapshot,
            specs: Arc::clone(self.sensors.pods.specs()),
            usages: self.sensors.disk.usages(),
        }
    }
}
