//! What a decision asks about a workload, found out shortly before. Of a workload outside pods: whether the node has come to need it, for
//! which every listening socket is read, and the processes that are new. Of a pod: whether CRI-O's monitors are in its cgroup.

use std::collections::HashMap;
use std::time::Duration;

use crate::units::{CgroupId, Monotonic};
use crate::workloads::essential::Signs;
use crate::workloads::{Tracked, WorkloadTree, cgroup_processes};

/// A decision uses a look of this age. The list of workloads may be as old.
const USED_FOR: Duration = Duration::from_millis(500);
/// Near a threshold a look is repeated after this time.
const REPEATED_AFTER: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub struct PreparedStanding {
    /// The sockets and locks that mark a daemon.
    signs: Option<(Signs, Monotonic)>,
    /// Whether the node needs the workload, and when that look began.
    looks: HashMap<CgroupId, (bool, Monotonic)>,
    /// Whether the pod's cgroup holds monitors, and when that look began.
    monitors: HashMap<CgroupId, (bool, Monotonic)>,
}

impl PreparedStanding {
    /// Looks at those of the workloads that were looked at some time ago, until the next sample is due.
    pub fn prepare(&mut self, ids: impl Iterator<Item = CgroupId>, tree: &WorkloadTree, due: Monotonic) {
        for id in ids {
            let now = Monotonic::now();
            if now >= due {
                return;
            }
            let is_recent = |began: Monotonic| now.since(began) < REPEATED_AFTER;
            self.looks.retain(|_, (_, began)| now.since(*began) < USED_FOR);
            if self.looks.get(&id).is_some_and(|(_, began)| is_recent(*began)) {
                continue;
            }
            let signs = self.signs.take().filter(|(_, began)| is_recent(*began));
            let (signs, began) = self.signs.insert(signs.unwrap_or_else(|| (tree.signs(), now)));
            self.looks.insert(id, (tree.essential_by(id, signs).is_some(), *began));
        }
    }

    /// Looks for monitors in the pod's cgroup, unless that was done a moment ago.
    pub fn prepare_pod(&mut self, pod: &Tracked, now: Monotonic) {
        let id = pod.workload().id;
        if self.monitors.get(&id).is_none_or(|(_, began)| now.since(*began) >= REPEATED_AFTER) {
            self.monitors.retain(|_, (_, began)| now.since(*began) < USED_FOR);
            self.monitors.insert(id, (!cgroup_processes::monitors(pod.directory()).is_empty(), now));
        }
    }

    /// Returns whether the node needs the workload, by a recent look; `None` without one.
    pub fn is_essential(&self, id: CgroupId, now: Monotonic) -> Option<bool> {
        recent(&self.looks, id, now)
    }

    /// Returns whether CRI-O's monitors are in the pod's cgroup, by a recent look; `None` without one.
    pub fn has_monitors(&self, id: CgroupId, now: Monotonic) -> Option<bool> {
        recent(&self.monitors, id, now)
    }
}

fn recent(looks: &HashMap<CgroupId, (bool, Monotonic)>, id: CgroupId, now: Monotonic) -> Option<bool> {
    let (found, began) = looks.get(&id)?;
    (now.since(*began) < USED_FOR).then_some(*found)
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
        assert_eq!(prepared.is_essential(id, now), None, "a sample is due");
        prepared.prepare(std::iter::once(id), &tree, now.after(Duration::from_secs(60)));
        assert_eq!(prepared.is_essential(id, Monotonic::now()), Some(false));
        assert_eq!(
            prepared.is_essential(id, Monotonic::now().after(USED_FOR)),
            None,
            "a daemon may have begun to listen"
        );
    }
}
