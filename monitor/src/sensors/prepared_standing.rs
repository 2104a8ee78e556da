//! What a decision asks about a workload, found out shortly before. Of a workload outside pods: whether the node has come to need it, for
//! which every listening socket is read, and the processes that are new. Of a pod: whether CRI-O's monitors are in its cgroup.

use std::collections::HashMap;
use std::time::Duration;

use crate::units::{CgroupId, Monotonic, Pid};
use crate::workloads::{Signs, Tracked, WorkloadTree, cgroup_processes};

/// A decision uses a look of this age, if nothing has been added to the workload since. The list of workloads may be as old.
const USED_FOR: Duration = Duration::from_millis(500);
/// Near a threshold a look is repeated after this time.
const REPEATED_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub struct PreparedStanding {
    /// The sockets and locks that mark a daemon.
    signs: Option<(Signs, Monotonic)>,
    services: HashMap<CgroupId, Look<Vec<Pid>>>,
    pods: HashMap<CgroupId, Look<libc::nlink_t>>,
}

/// What was found, in which state of the workload, and when the look began.
#[derive(Debug)]
struct Look<S> {
    found: bool,
    state: S,
    began: Monotonic,
}

impl<S> Look<S> {
    fn is_within(&self, age: Duration, now: Monotonic) -> bool {
        now.since(self.began) < age
    }
}

impl PreparedStanding {
    /// Looks at those of the workloads outside pods that were not looked at a moment ago, until the next sample is due.
    pub fn prepare(&mut self, ids: impl Iterator<Item = CgroupId>, tree: &WorkloadTree, due: Monotonic) {
        for id in ids {
            let now = Monotonic::now();
            if now >= due {
                return;
            }
            self.services.retain(|_, look| look.is_within(USED_FOR, now));
            if self.services.get(&id).is_some_and(|look| look.is_within(REPEATED_AFTER, now)) {
                continue;
            }
            let signs = self.signs.take().filter(|(_, began)| now.since(*began) < REPEATED_AFTER);
            let (signs, began) = self.signs.insert(signs.unwrap_or_else(|| (tree.signs(), now)));
            // Listed before the look: a process that starts meanwhile is new.
            let Some(mut state) = tree.first_processes(id) else { continue };
            state.sort_unstable();
            let found = tree.essential_by(id, signs).is_some();
            self.services.insert(id, Look { found, state, began: *began });
        }
    }

    /// Looks for monitors in the pod's cgroup, unless that was done a moment ago.
    pub fn prepare_pod(&mut self, pod: &Tracked, now: Monotonic) {
        self.pods.retain(|_, look| look.is_within(USED_FOR, now));
        let id = pod.workload().id;
        if self.pods.get(&id).is_some_and(|look| look.is_within(REPEATED_AFTER, now)) {
            return;
        }
        // Counted before the look, too.
        let Some(state) = pod.children() else { return };
        let found = !cgroup_processes::monitors(pod.directory()).is_empty();
        self.pods.insert(id, Look { found, state, began: now });
    }

    /// Returns whether the node needs the workload, by a recent look; `None` without one, or if a process is new since.
    pub fn is_essential(&self, id: CgroupId, tree: &WorkloadTree, now: Monotonic) -> Option<bool> {
        let look = self.services.get(&id).filter(|look| look.is_within(USED_FOR, now))?;
        let is_seen = |pid: &Pid| look.state.binary_search(pid).is_ok();
        tree.first_processes(id)?.iter().all(is_seen).then_some(look.found)
    }

    /// Returns whether CRI-O's monitors are in the pod's cgroup, by a recent look; `None` without one, or if the pod has other cgroups since.
    pub fn has_monitors(&self, pod: &Tracked, now: Monotonic) -> Option<bool> {
        let look = self.pods.get(&pod.workload().id).filter(|look| look.is_within(USED_FOR, now))?;
        (pod.children()? == look.state).then_some(look.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{CgroupVersion, Hierarchy};
    use crate::workloads::fixtures::populate;

    #[test]
    fn a_look_is_used_for_half_a_second() {
        let root = tempfile::tempdir().unwrap();
        populate(&root.path().join("cgroup/app.service"), "7\n");
        let memory = root.path().join("cgroup");
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
        let mut tree = WorkloadTree::new(hierarchy, root.path().join("proc"), Vec::new());
        tree.scan().unwrap();
        let id = tree.tracked()[0].workload().id;
        let mut prepared = PreparedStanding::default();
        let now = Monotonic::now();
        prepared.prepare(std::iter::once(id), &tree, now);
        assert_eq!(prepared.is_essential(id, &tree, now), None, "a sample is due");
        prepared.prepare(std::iter::once(id), &tree, now.after(Duration::from_secs(60)));
        assert_eq!(prepared.is_essential(id, &tree, Monotonic::now()), Some(false));
        let later = Monotonic::now().after(USED_FOR);
        assert_eq!(prepared.is_essential(id, &tree, later), None, "a daemon may have begun to listen");
        populate(&root.path().join("cgroup/app.service"), "7\n8\n");
        assert_eq!(prepared.is_essential(id, &tree, Monotonic::now()), None, "a process is new");
    }

    #[test]
    fn a_cgroup_that_is_new_in_a_pod_ends_the_use_of_a_look() {
        let root = tempfile::tempdir().unwrap();
        let pod = root.path().join("cgroup/kubepods/besteffort/pod1b2c3d4e-0000-1111-2222-333344445555");
        populate(&pod, "7\n");
        let memory = root.path().join("cgroup");
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
        let mut tree = WorkloadTree::new(hierarchy, root.path().join("proc"), Vec::new());
        tree.scan().unwrap();
        let [tracked] = tree.tracked() else { panic!("{:?}", tree.tracked()) };
        let mut prepared = PreparedStanding::default();
        prepared.prepare_pod(tracked, Monotonic::now());
        assert_eq!(prepared.has_monitors(tracked, Monotonic::now()), Some(false));
        std::fs::create_dir(pod.join("crio-conmon-1")).unwrap();
        assert_eq!(prepared.has_monitors(tracked, Monotonic::now()), None);
    }
}
