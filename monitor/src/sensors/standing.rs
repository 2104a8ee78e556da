//! The facts about one candidate, and about the runtime, that are expensive to read. The decider asks for them when it needs
//! them.

use std::path::Path;
use std::sync::Arc;

use crate::cluster::State;
use crate::eviction::decider::{ControlPlane, RuntimeFacts, Standing};
use crate::eviction::proactive_reclaim::Holding;
use crate::node::process_facts::{self, ticks_since_boot};
use crate::runtime::{State as RuntimeState, Stores};
use crate::units::{Bytes, CgroupId, Monotonic, Pid};
use crate::workloads::cgroup_processes::Monitors;
use crate::workloads::{Kind, Mark, Pod, PodUid, QosClass, Tracked, WorkloadUsage, cgroup_processes};

use super::static_manifests::StaticManifests;
use super::{Sensors, control_plane, reclaimable};

/// The `oom_score_adj` that the kubelet sets for node-critical pods of any class.
pub const NODE_CRITICAL_SCORE: i16 = -997;
/// Near a threshold so many workloads that grow are looked at ahead.
const MOST_PREPARED: usize = 8;
/// A process of fewer ticks may not have its value yet.
const YOUNG_TICKS: u64 = 100;
/// The value that the runtime gives a pod's sandbox.
const SANDBOX_SCORE: i16 = -998;

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

    pub fn standing(&self, id: CgroupId, proc_root: &Path) -> Standing {
        let known = self.known_standing(id, proc_root);
        // A daemon may have started, or lowered its score, since the last scan.
        let look = || self.workloads.tree().essential_now(id).is_some();
        let is_essential =
            || self.prepared.is_essential(id, self.workloads.tree(), Monotonic::now()).unwrap_or_else(look);
        let is_critical = known.is_critical || !known.is_pod && is_essential();
        Standing { is_critical, ..known }
    }

    /// Finds out which of the workloads that a decision may choose are critical to the node, so that it need not look. Stops where the next
    /// sample is due.
    pub(super) fn prepare_standing(&mut self, proc_root: &Path, due: Monotonic) {
        let tree = self.workloads.tree();
        let ids = self.growth.growing().take(MOST_PREPARED).chain(self.growth.largest());
        let tracked = ids.filter_map(|id| tree.find(id));
        let (pods, others): (Vec<&Tracked>, Vec<&Tracked>) =
            tracked.partition(|tracked| tracked.workload().kind.pod_uid().is_some());
        for pod in pods.into_iter().take_while(|_| Monotonic::now() < due) {
            // The answer is remembered.
            let _prepared = is_node_critical(pod, proc_root);
            self.prepared.prepare_pod(pod, Monotonic::now());
        }
        self.prepared.prepare(others.into_iter().map(|tracked| tracked.workload().id), tree, due);
    }

    /// Returns whether CRI-O's monitors are in a pod's cgroup, if that was found out ahead.
    pub fn has_monitors(&self, pod: &Tracked) -> Option<bool> {
        self.prepared.has_monitors(pod, Monotonic::now())
    }

    /// Returns the standing without another look for daemons, which reads every listening socket: for what only shows the ranking.
    pub(super) fn known_standing(&self, id: CgroupId, proc_root: &Path) -> Standing {
        let Some(tracked) = self.workloads.tree().find(id) else { return Standing::default() };
        let is_critical = is_critical(tracked, proc_root);
        let Some(uid) = tracked.workload().kind.pod_uid() else {
            return Standing { is_critical, ..Standing::default() };
        };
        let is_critical = is_critical || tracked.workload().pod.is_none() && self.is_static_elsewhere(uid);
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

    /// Returns whether a pod whose object is not known is static by the kubelet's annotations at the runtime, or by a manifest with its UID.
    fn is_static_elsewhere(&self, uid: &PodUid) -> bool {
        let view = self.platform.runtime.view();
        let sandbox = view.snapshot.as_ref().and_then(|snapshot| snapshot.sandbox_of(uid));
        sandbox.is_some_and(|sandbox| sandbox.is_static) || self.manifests.as_ref().is_some_and(|it| it.has(uid))
    }

    /// Reads the manifests of static pods if the object of a pod is not known. The disk may be slow, so no decision does that. `may_wait`:
    /// there is time for a slow disk. The first reading is made in any case.
    pub fn read_manifests(&mut self, proc_root: &Path, may_wait: bool) {
        let mut workloads = self.workloads.tree().workloads();
        if (may_wait || self.manifests.is_none())
            && workloads.any(|workload| workload.kind.pod_uid().is_some() && workload.pod.is_none())
        {
            self.manifests = Some(StaticManifests::read(proc_root));
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
    // A privileged container can give itself the value. Where the pod's object is known, the object decides.
    if workload.pod.is_some() {
        return false;
    }
    is_candidate && tracked.is_node_critical(|| mark(tracked, proc_root))
}

/// Returns whether the first processes of a pod have the value, those of its sandbox left out.
fn mark(tracked: &Tracked, proc_root: &Path) -> Mark {
    // The kubelet sets the value for every container of such a pod, so a few processes suffice.
    let monitors = Monitors::of(&tracked.workload().kind);
    let now = ticks_since_boot();
    let found = cgroup_processes::oom_scores(tracked.directory(), monitors, proc_root, 4);
    let containers = || found.iter().filter(|(_, value)| *value > SANDBOX_SCORE);
    let is_old = |pid: Pid| process_facts::started(proc_root, pid).is_some_and(|start| start + YOUNG_TICKS <= now);
    if containers().any(|(_, value)| *value == NODE_CRITICAL_SCORE) {
        Mark::Yes
    } else if containers().any(|(pid, _)| is_old(*pid)) {
        Mark::No
    } else {
        Mark::NotYet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Quirks;
    use crate::config::kubernetes_options::PodProtection;
    use crate::node::{CgroupVersion, Hierarchy};
    use crate::workloads::fixtures::populate;
    use crate::workloads::{PodSpecs, WorkloadTree};

    /// Returns whether a pod counts as node-critical when its only process has this value.
    fn is_critical_at(value: i16, class: &str, is_known: bool) -> bool {
        let root = tempfile::tempdir().unwrap();
        let (memory, processes) = (root.path().join("cgroup"), root.path().join("proc"));
        let pod = memory.join(format!("kubepods.slice/kubepods{class}-podu.slice"));
        std::fs::create_dir_all(processes.join("77")).unwrap();
        std::fs::write(processes.join("77/oom_score_adj"), format!("{value}\n")).unwrap();
        populate(&pod, "77\n");
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
        let mut tree = WorkloadTree::new(hierarchy, processes.clone(), Vec::new());
        let changes = tree.scan().unwrap();
        if is_known {
            let list = r#"{"kind": "List", "items": [{"metadata": {"name": "a", "uid": "u"}}]}"#;
            let specs = Arc::new(PodSpecs::parse(list).unwrap());
            tree.set_pods(specs, PodProtection::default(), Quirks::NONE);
        }
        let [tracked] = tree.tracked() else { panic!("{:?} {changes:?}", tree.tracked()) };
        is_critical(tracked, &processes)
    }

    #[test]
    fn a_process_cannot_make_its_pod_critical() {
        for (value, class, is_known, expected) in [
            (-997, "-burstable", false, true),
            (-997, "-besteffort", false, true),
            // A privileged container has given itself the value. The pod's object says that the pod is not critical.
            (-997, "-burstable", true, false),
            // The value of every Guaranteed pod.
            (-997, "", false, false),
            // A sandbox has -998 from the runtime.
            (-998, "-burstable", false, false),
            (-1000, "-besteffort", false, false),
            (0, "-besteffort", false, false),
        ] {
            assert_eq!(is_critical_at(value, class, is_known), expected, "{value} {class} {is_known}");
        }
    }
}
