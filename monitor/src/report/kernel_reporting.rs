//! Reports what the eBPF programs and the kernel's log stream: events and OOM kills, with their workloads.

use std::sync::Arc;

use crate::kernel::{Event, OomKill};
use crate::sensors::Sensors;
use crate::sensors::oom_kill_stream::OomBalance;
use crate::units::{Monotonic, Pid};

use super::Reporter;
use super::oom_kill_report::{OomKillRecord, limit, note_path, place, victim_place};
use super::record::{NO_WORKLOAD, Record};

impl Reporter {
    /// Reports each drained event. The tree is scanned at most once for all of them. `on_write` gets each process whose
    /// `oom_score_adj` was written.
    pub fn report_kernel_events(&mut self, sensors: &mut Sensors, mut on_write: impl FnMut(Pid), now: Monotonic) {
        let (mut events, mut oom_kills) = sensors.events.take();
        self.names = sensors.names();
        sensors.settle_oom_kills(&mut oom_kills, now);
        for event in events.drain(..) {
            if let Event::OomScoreAdj { pid, .. } = event {
                on_write(pid);
            }
            self.report_kernel_event(sensors, &event, now);
        }
        for kill in oom_kills.drain(..) {
            self.report_or_hold(sensors, kill, now);
        }
        if let Some((held, workload)) = sensors.take_held_oom_kills(now) {
            self.report_oom_kills(sensors, held, workload.as_ref(), now);
        }
        sensors.events.give_back(events, oom_kills);
    }

    fn report_kernel_event(&mut self, sensors: &Sensors, event: &Event, now: Monotonic) {
        let owner = match event {
            Event::OomMark { trigger_cgroup, .. } => {
                self.recorder.note_mark(event, &place(sensors, Some(*trigger_cgroup), None));
                None
            }
            Event::Stall(stall) => sensors.workloads.tree().owner(stall.cgroup),
            Event::OomScoreAdj { .. } | Event::KswapdWake { .. } | Event::DirectReclaim { .. } => None,
        };
        let workload = owner.as_deref().unwrap_or(NO_WORKLOAD);
        self.report(&Record::KernelEvent { event, workload }, now);
    }

    /// Reports a kill, or holds it until the workloads' counters show its workload.
    fn report_or_hold(&mut self, sensors: &mut Sensors, kill: OomKill, now: Monotonic) {
        let place = sensors.oom_kills.is_by_log().then(|| victim_place(sensors, &kill));
        let workload = place.as_ref().and_then(|place| place.workload.as_deref());
        if let Some(kill) = sensors.oom_kills.report_or_hold(kill, workload, now) {
            self.report_oom_kill(sensors, &kill, None, now);
        }
    }

    /// Renews the counters with which the next kill without a cgroup is compared.
    pub fn note_oom_counters(&mut self, sensors: &mut Sensors, now: Monotonic) {
        if let Some((held, workload)) = sensors.note_oom_counters() {
            self.report_oom_kills(sensors, held, workload.as_ref(), now);
        }
    }

    fn report_oom_kills(
        &mut self,
        sensors: &mut Sensors,
        kills: Vec<OomKill>,
        by_counter: Option<&Arc<str>>,
        now: Monotonic,
    ) {
        for kill in kills {
            self.report_oom_kill(sensors, &kill, by_counter, now);
        }
    }

    /// Reports a victim that has exited: counts the kill and adds it to its incident. `by_counter` is the workload that
    /// the counters show, used if the kernel does not report the victim's cgroup.
    fn report_oom_kill(
        &mut self,
        sensors: &mut Sensors,
        kill: &OomKill,
        by_counter: Option<&Arc<str>>,
        now: Monotonic,
    ) {
        let as_seen = kill.victim_path.as_ref();
        let mut victim = victim_place(sensors, kill);
        victim.workload = victim.workload.or_else(|| by_counter.cloned());
        note_path(sensors, &victim);
        self.count_kill(sensors, victim.workload.as_deref());
        let names = sensors.names();
        let trigger = place(sensors, Some(kill.trigger_cgroup), as_seen);
        let record = OomKillRecord {
            kill,
            source: sensors.oom_kills.source(),
            limit: kill.limit_cgroup.map(|id| limit(sensors, place(sensors, Some(id), as_seen))),
            victim_name: victim.name(&names),
            trigger_name: trigger.name(&names),
            trigger,
            victim,
        };
        self.report(&Record::OomKill(&record), now);
    }

    /// Counts a reported kill. Where no eBPF program counts kills by workload, the metric is raised here.
    fn count_kill(&self, sensors: &mut Sensors, workload: Option<&str>) {
        sensors.oom_kills.count(workload.is_some());
        if sensors.oom_kills.is_by_log() {
            self.outlets.metrics.oom_kills_of(workload.unwrap_or(NO_WORKLOAD), 1);
        }
    }

    /// Compares the reported kills with the kernel's counters. Reads files, so that only the report calls it.
    pub fn balance_oom_kills(&mut self, sensors: &mut Sensors, now: Monotonic) {
        for (workload, kills) in sensors.count_oom_kills_in_files(now) {
            self.report(&Record::OomKillsCounted { workload: &workload, kills }, now);
        }
        if let Some(OomBalance { unattributed, log_lost }) = sensors.balance_oom_kills(now) {
            self.outlets.metrics.unaccounted(unattributed, log_lost);
        }
    }
}
