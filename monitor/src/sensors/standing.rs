//! The facts about one candidate, and about the runtime, that are expensive to read. The decider asks for them when it needs
//! them.

use std::path::Path;
use std::sync::Arc;

use crate::cluster::State;
use crate::eviction::decider::{ControlPlane, RuntimeFacts, Standing};
use crate::eviction::proactive_reclaim::Holding;
use crate::runtime::{State as RuntimeState, Stores};
use crate::units::{Bytes, CgroupId};
use crate::workloads::{Kind, Pod, PodUid, QosClass, Tracked, WorkloadUsage, cgroup_processes};

use super::{Sensors, control_plane, reclaimable};

/// The `oom_score_adj` that the kubelet sets for node-critical pods of any class.
pub const NODE_CRITICAL_SCORE: i16 = -997;

impl Sensors {
    pub fn runtime_facts(&self) -> RuntimeFacts {
        let view = self.platform.runtime.view();
        match view.state {
            _ if view.snapshot.is_some() => RuntimeFacts::Up,
            RuntimeState::Looking => RuntimeFacts::Looking,
            // The agent knows the stores only after the runtime has answered once.
            RuntimeState::Down { since, .. } if view.stores != Stores::default() => RuntimeFacts::Down { since },
            RuntimeState::Down { .. } | RuntimeState::Up { .. } | RuntimeState::Off | RuntimeState::Absent => {
                RuntimeFacts::None
            }
        }
    }

    /// Returns the facts about one candidate.
    pub fn standing(&self, id: CgroupId, proc_root: &Path) -> Standing {
        let Some(tracked) = self.workloads.tree().find(id) else { return Standing::default() };
        let is_critical = is_critical(tracked, proc_root);
        let Some(uid) = tracked.workload().kind.pod_uid() else {
            return Standing { is_critical, ..Standing::default() };
        };
        let grace_period_seconds = self.own_grace(uid);
        if !self.platform.cluster.is_there() {
            return Standing { is_critical, is_pod: true, grace_period_seconds, ..Standing::default() };
        }
        let view = self.platform.cluster.view();
        let pod = view.pods.find(uid);
        let is_read = control_plane::is_read(&view);
        Standing {
            is_critical: is_critical || pod.is_some_and(Pod::is_critical),
            is_pod: true,
            is_known: pod.is_some(),
            grace_period_seconds,
            control_plane: if view.state == State::Up { ControlPlane::Up { is_read } } else { ControlPlane::Down },
        }
    }

    /// Returns the pod's own grace period in seconds. The runtime knows it if the kubelet has annotated it.
    fn own_grace(&self, uid: &PodUid) -> Option<i64> {
        let specs = Arc::clone(self.pods.specs());
        let asked_for = specs.find(uid).and_then(|pod| pod.spec.termination_grace_period_seconds);
        let noted = || i64::try_from(self.platform.runtime.view().snapshot?.grace_of(uid)?.as_secs()).ok();
        asked_for.or_else(noted)
    }

    /// Returns the memory that the kernel may reclaim from a candidate.
    pub fn holding(&mut self, usage: &WorkloadUsage) -> Option<Holding> {
        let (id, above) = (usage.workload.id, usage.working_set.saturating_sub(usage.workload.request));
        let details = self.memory.read_details();
        let swap_free = details.and_then(|details| details.swap_free).unwrap_or(Bytes::ZERO);
        let tracked = self.workloads.tree().find(id)?;
        reclaimable::holding(tracked.directory(), above, swap_free).ok()
    }
}

/// Returns whether the pod is node-critical, by the `oom_score_adj` that the kubelet sets or by the pod itself.
pub fn is_critical(tracked: &Tracked, proc_root: &Path) -> bool {
    tracked.workload().pod.as_ref().is_some_and(|pod| pod.is_critical()) || is_node_critical(tracked, proc_root)
}

/// Returns whether a process of this pod has the `oom_score_adj` that the kubelet sets only for node-critical pods. Guaranteed
/// pods are excluded.
pub fn is_node_critical(tracked: &Tracked, proc_root: &Path) -> bool {
    let workload = tracked.workload();
    let is_candidate = matches!(workload.kind, Kind::Pod(_)) && workload.qos != QosClass::Guaranteed;
    // The kubelet sets the value for every container of such a pod, so a few processes suffice.
    let is_marked = || cgroup_processes::oom_scores(tracked.directory(), proc_root, 4);
    is_candidate && is_marked().into_iter().any(|(_, value)| value == NODE_CRITICAL_SCORE)
}
