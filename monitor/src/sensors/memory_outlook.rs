//! What the rule of benefit and the rule of pending memory need to know about workloads.

use std::path::Path;

use crate::eviction::decider::DyingMemory;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::{Protection, WorkloadUsage, killed_processes};

use super::Sensors;

/// With each reading of the growth, at most so many of the largest workloads are looked at for whether another program has killed them.
const LOOKED_AT: usize = 8;

/// A workload with less than this fraction of what the largest one uses is not looked at.
const WORTH: u64 = 4;

impl Sensors {
    /// Reads the growth of the largest workloads if a threshold on memory may be met soon. Otherwise forgets it. While a decision is urgent,
    /// a reading of the last second is enough.
    pub fn watch_growth(&mut self, (is_near, is_urgent): (bool, bool), proc_root: &Path, now: Monotonic) {
        if !is_near {
            self.growth.forget();
        } else if self.growth.is_due(is_urgent, now) {
            self.growth.read(self.workloads.tree_mut(), now);
            let usages = self.workloads.tree_mut().usage_upper_bounds();
            self.note_others_victims(&usages, proc_root);
        }
    }

    /// Returns the usage of one workload, with all that is known about its memory.
    pub fn measure_candidate(&mut self, id: CgroupId) -> Option<WorkloadUsage> {
        let mut usage = self.workloads.tree_mut().measure(id)?;
        self.growth.complete(&mut usage, self.workloads.tree().find(id));
        Some(usage)
    }

    /// Returns the workload that grows fastest among those that are never evicted, with its growth in bytes per second.
    pub fn protected_growth(&self) -> Option<(CgroupId, i64)> {
        let tracked = self.workloads.tree().tracked().iter();
        let is_protected = |protection: Protection| protection != Protection::DaemonSet;
        self.growth.fastest(tracked.filter(|it| it.workload().protection.is_some_and(is_protected)))
    }

    /// Notes that the agent has killed a workload. `usage` is what was known about it before.
    pub fn note_own_kill(&mut self, id: CgroupId, usage: Option<&WorkloadUsage>, now: Monotonic) {
        let tree = self.workloads.tree();
        let Some(tracked) = tree.find(id) else { return };
        let known = usage.map_or((None, 0), |usage| (usage.outlook.gain, usage.outlook.growth));
        self.dying.note((tracked, tree.hierarchy().version), known, (true, true), now);
    }

    /// Notes the victims of the kernel's OOM killer that were marked since the last turn.
    pub fn note_oom_victims(&mut self, now: Monotonic) {
        let tree = self.workloads.tree();
        for kill in self.events.oom_kills() {
            let owner = kill.victim_cgroup.and_then(|id| tree.owner(id));
            let Some(tracked) = owner.and_then(|name| tree.tracked().iter().find(|it| it.workload().name == *name))
            else {
                continue;
            };
            let parts = [kill.anon_rss, kill.shmem_rss, kill.pgtables];
            let expected: Bytes = parts.into_iter().flatten().sum();
            let expected = Some(expected).filter(|expected| !expected.is_zero());
            self.dying.note((tracked, tree.hierarchy().version), (expected, 0), (false, false), now);
        }
    }

    /// Notes the largest of `usages` whose processes another program has killed: the kubelet, systemd-oomd, anybody.
    fn note_others_victims(&mut self, usages: &[WorkloadUsage], proc_root: &Path) {
        let is_whole = |usage: &&WorkloadUsage| usage.workload.protection != Some(Protection::HoldsOthers);
        let most = usages.iter().filter(is_whole).map(|usage| usage.working_set).max().unwrap_or(Bytes::ZERO);
        // What grows is not dying, and what is small is not worth a wait.
        let may_be_dying = |usage: &&WorkloadUsage| {
            usage.working_set.saturating_mul(WORTH) >= most
                && self.growth.of(usage.workload.id).is_none_or(|growth| growth <= 0)
        };
        let mut largest: Vec<&WorkloadUsage> = usages.iter().filter(is_whole).filter(may_be_dying).collect();
        let size = |usage: &&WorkloadUsage| std::cmp::Reverse(usage.working_set);
        if largest.len() > LOOKED_AT {
            largest.select_nth_unstable_by_key(LOOKED_AT, size);
            largest.truncate(LOOKED_AT);
        }
        let tree = self.workloads.tree();
        for tracked in largest.iter().filter_map(|usage| tree.find(usage.workload.id)) {
            if killed_processes::is_dying(tracked.directory(), proc_root) {
                self.dying.note((tracked, tree.hierarchy().version), (None, 0), (false, true), Monotonic::now());
            }
        }
    }

    /// Returns the memory of killed workloads that has not come back. `is_dying` tells which own victims have processes.
    pub fn dying_memory(&mut self, is_dying: impl Fn(CgroupId) -> bool, now: Monotonic) -> Vec<DyingMemory> {
        self.dying.read(is_dying, now)
    }
}
