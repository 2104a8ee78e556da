//! The events that the kernel's programs streamed: decoded, attributed to workloads, and reported.

use std::sync::Arc;
use std::time::Duration;

use crate::kernel::{Event, OomKill};
use crate::report::record::{NO_WORKLOAD, Record};
use crate::units::{CgroupId, Monotonic};

use super::last::Scan;
use super::{Agent, EVENTS_PER_WAKEUP};

impl Agent {
    /// Decodes what the kernel streamed, at most a bounded number.
    pub(super) fn drain_events(&mut self) {
        self.sensors.ring_has_more = self
            .sensors
            .kernel
            .drain(EVENTS_PER_WAKEUP, &mut self.sensors.events, &mut self.sensors.oom_kills)
            .exhausted;
    }

    /// Reports each event that was drained. The tree is scanned at most once for all of them.
    pub(super) fn report_kernel_events(&mut self) {
        let mut events = std::mem::take(&mut self.sensors.events);
        let mut oom_kills = std::mem::take(&mut self.sensors.oom_kills);
        self.settle_kills(&mut oom_kills);
        self.look_for_owners(&oom_kills);
        // One clock read for all: it costs as much as an event.
        let now = Monotonic::now();
        for event in events.drain(..) {
            self.report_kernel_event(&event, now);
        }
        for kill in oom_kills.drain(..) {
            self.tell_or_hold(kill, now);
        }
        self.tell_held(now);
        self.sensors.events = events;
        self.sensors.oom_kills = oom_kills;
    }

    /// Scans the tree again after a kill in a cgroup that the tree does not have. If the kernel streamed the cgroup's path, the path names
    /// the workload too: a storm of kills in short-lived cgroups does not scan for each.
    fn look_for_owners(&mut self, kills: &[OomKill]) {
        let is_unknown = |id: &CgroupId| id.0 != 0 && self.sensors.tree.owner(*id).is_none();
        let has_path = |kill: &OomKill, id: CgroupId| {
            kill.victim_path.as_ref().is_some_and(|path| path.levels().any(|(level, _)| level == id))
        };
        let unknown = |kill: &OomKill| {
            let concerned = [kill.victim_cgroup, Some(kill.trigger_cgroup)].into_iter().flatten().filter(is_unknown);
            concerned.map(|id| has_path(kill, id)).min()
        };
        // A cgroup that existed during the last scan, and that the scan did not find, is gone for good.
        let Scan { at, took } = self.sensors.scan;
        let is_later = |kill: &&OomKill| at.is_none_or(|at| at.since(Monotonic(kill.marked_at_ns)) < took);
        match kills.iter().filter(is_later).filter_map(unknown).min() {
            Some(false) => self.scan_if_older(Duration::ZERO),
            Some(true) => self.scan_if_old(),
            None => {}
        }
    }

    fn report_kernel_event(&mut self, event: &Event, now: Monotonic) {
        match event {
            Event::OomMark { trigger_cgroup, .. } => {
                let trigger = self.place(Some(*trigger_cgroup), None);
                self.reporter.recorder.note_mark(event, &trigger);
            }
            Event::OomScoreAdj { pid, .. } => self.actions.audits.note_write(*pid),
            Event::Stall(_) | Event::KswapdWake { .. } | Event::DirectReclaim { .. } => {}
        }
        let owner = match event {
            Event::Stall(stall) => self.sensors.tree.owner(stall.cgroup),
            _ => None,
        };
        let workload = owner.as_deref().unwrap_or(NO_WORKLOAD);
        self.reporter.report(&Record::KernelEvent { event, workload }, now);
    }

    /// The workload of a cgroup.
    pub(super) fn owner_known(&self, id: CgroupId) -> Arc<str> {
        self.sensors.tree.owner(id).unwrap_or_else(|| NO_WORKLOAD.into())
    }
}
