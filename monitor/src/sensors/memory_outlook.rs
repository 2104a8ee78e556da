//! Facts about workloads for the rule of benefit and the rule of pending memory.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::eviction::decider::Refaults;
use crate::eviction::growth::LISTED_EVERY;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::cgroup_processes::Monitors;
use crate::workloads::{Protection, Tracked, WorkloadUsage, killed_processes};

use super::dying_workloads::KilledBy;
use super::{Sensors, growth};

/// Near a threshold the victims of other programs are noted this often, so that a decision need not look for them.
const NOTED_AHEAD: Duration = Duration::from_millis(150);

/// How near a threshold on memory is.
#[derive(Debug, Clone, Copy)]
pub struct Near {
    /// One may be met within half a minute.
    pub is_near: bool,
    /// A decision may be due in a moment.
    pub is_urgent: bool,
    /// When the next sample is due.
    pub due: Monotonic,
}

impl Sensors {
    /// Reads the growth of workloads if a threshold on memory may be met soon, until the next sample is due. Otherwise forgets it.
    pub fn watch_growth(&mut self, near: Near, proc_root: &Path, now: Monotonic) {
        if !self.growth.is_wanted(near.is_near, now) {
            return;
        }
        self.workloads.list_if_older(LISTED_EVERY, now);
        let appeared = self.workloads.appeared_ever();
        if self.growth.is_due(appeared, now) {
            if growth::read(&mut self.growth, self.workloads.tree_mut(), appeared, now, near.due) {
                self.note_others_victims_if_older(NOTED_AHEAD, proc_root);
                self.prepare_standing(proc_root, near.due);
            }
        } else if near.is_urgent {
            self.prepare_standing(proc_root, near.due);
            self.note_others_victims_if_older(NOTED_AHEAD, proc_root);
        }
    }

    /// As [`Self::note_others_victims`], unless they were noted within `age`.
    pub(super) fn note_others_victims_if_older(&mut self, age: Duration, proc_root: &Path) {
        if self.dying.are_others_noted_since(age, Monotonic::now()) {
            return;
        }
        self.note_others_victims(proc_root);
    }

    /// Returns the usage of one workload, with all that is known about its memory.
    pub fn measure_candidate(&mut self, id: CgroupId) -> Option<WorkloadUsage> {
        let mut usage = self.workloads.tree_mut().measure(id)?;
        growth::complete(&self.growth, &mut usage);
        Some(usage)
    }

    /// Returns the workload that grows fastest among those that are never evicted, with its growth in bytes per second.
    pub fn protected_growth(&self) -> Option<(CgroupId, i64)> {
        let tracked = self.workloads.tree().tracked().iter();
        let is_protected = |protection: Protection| protection != Protection::DaemonSet;
        let protected = tracked.map(Tracked::workload).filter(|it| it.protection.is_some_and(is_protected));
        self.growth.fastest(protected.map(|workload| workload.id))
    }

    pub fn refaults(&self) -> Refaults {
        Refaults { correction: self.memory.correction(), largest: self.refaulters.largest() }
    }

    /// Notes that the agent has killed a workload. `usage` is what was known about it before.
    pub fn note_own_kill(&mut self, id: CgroupId, usage: Option<&WorkloadUsage>, now: Monotonic) {
        let tree = self.workloads.tree();
        let Some(tracked) = tree.find(id) else { return };
        let known = usage.map_or((None, 0), |usage| (usage.outlook.gain, usage.outlook.growth));
        self.dying.note((tracked, tree), known, KilledBy::Agent, now);
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
            self.dying.note((tracked, tree), (expected, 0), KilledBy::OomKiller, now);
        }
    }

    /// Notes the pods that have ended, the workloads whose processes another program has killed, such as the kubelet or systemd-oomd, and
    /// those whose grace period ends soon. Forgets those that live on. A workload that grows inside its grace period does not end by itself;
    /// one that was killed may have grown until then.
    fn note_others_victims(&mut self, proc_root: &Path) {
        self.dying.note_others_at(Monotonic::now());
        self.forget_living_victims(proc_root);
        let ended = self.workloads.take_ended();
        let tree = self.workloads.tree();
        for (pod, at) in ended {
            // Its volumes in memory stay until the kubelet removes them. A pod that was seen without processes may just have been made.
            if let Some(tracked) = tree.find_ended(pod).filter(|pod| !lives_on(pod, proc_root)) {
                self.dying.note((tracked, tree), (None, 0), KilledBy::Other, at);
            }
        }
        let wall = Timestamp::now();
        for tracked in self.growth.largest().into_iter().filter_map(|id| tree.find(id)) {
            let now = Monotonic::now();
            let deletion = tracked.workload().pod.as_ref().and_then(|pod| pod.metadata.deletion);
            let grows = self.growth.of(tracked.workload().id).is_some_and(|growth| growth > 0);
            let grace_left = deletion.filter(|_| !grows).and_then(|deletion| deletion.grace_left(wall));
            let monitors = Monitors::of(&tracked.workload().kind);
            let by = if killed_processes::is_dying(tracked.directory(), monitors, proc_root) {
                Some(KilledBy::SeenDying)
            } else {
                grace_left.map(|left| KilledBy::EndOfGrace(now.after(left)))
            };
            if let Some(by) = by {
                self.dying.note((tracked, tree), (None, 0), by, now);
            }
        }
    }

    /// Forgets the victims that live on: they may be evicted again.
    pub fn forget_living_victims(&mut self, proc_root: &Path) {
        let tree = self.workloads.tree();
        let lives = |id| tree.find(id).is_some_and(|tracked| lives_on(tracked, proc_root));
        self.dying.forget_living(lives, Monotonic::now());
    }

    /// Returns the size of the lists of free pages that the CPUs keep, if a workload was killed within the last seconds.
    pub fn on_cpu_lists(&mut self, now: Monotonic) -> Option<Bytes> {
        let lists = self.cpu_lists.as_mut().filter(|_| self.dying.is_recent(now))?;
        Some(lists.read())
    }
}

fn lives_on(tracked: &Tracked, proc_root: &Path) -> bool {
    killed_processes::lives_on(tracked.directory(), Monitors::of(&tracked.workload().kind), proc_root)
}
