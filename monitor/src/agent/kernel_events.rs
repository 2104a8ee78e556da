//! Decodes the events that the eBPF programs stream, attributes them to workloads, and reports them.

use crate::kernel::Event;
use crate::report::record::{NO_WORKLOAD, Record};
use crate::units::Monotonic;

use super::Agent;

impl Agent {
    /// Reports each drained event. The tree is scanned at most once for all of them.
    pub(super) fn report_kernel_events(&mut self, now: Monotonic) {
        let (mut events, mut oom_kills) = self.sensors.events.take();
        self.sensors.settle_oom_kills(&mut oom_kills, now);
        for event in events.drain(..) {
            self.report_kernel_event(&event, now);
        }
        for kill in oom_kills.drain(..) {
            self.report_or_hold(kill, now);
        }
        self.report_held(now);
        self.sensors.events.give_back(events, oom_kills);
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
            Event::Stall(stall) => self.sensors.workloads.tree().owner(stall.cgroup),
            _ => None,
        };
        let workload = owner.as_deref().unwrap_or(NO_WORKLOAD);
        self.reporter.report(&Record::KernelEvent { event, workload }, now);
    }
}
