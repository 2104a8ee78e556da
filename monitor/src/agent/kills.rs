//! OOM kills on their way from the sensors to the reporter.

use crate::kernel::OomKill;
use crate::report::record::{NO_WORKLOAD, Record};
use crate::sensors::oom_kill_stream::OomBalance;
use crate::units::Monotonic;

use super::Agent;

impl Agent {
    /// Counts a reported kill. Where no eBPF program counts kills by workload, the metric is raised here.
    pub(super) fn count_kill(&mut self, workload: Option<&str>) {
        self.sensors.oom_kills.count(workload.is_some());
        if self.sensors.oom_kills.is_by_log() {
            let workload = workload.unwrap_or(NO_WORKLOAD).to_owned();
            self.with_metrics(|metrics| metrics.oom_kills_of(&workload, 1));
        }
    }

    /// Reports a kill, or holds it until the workloads' counters show its workload.
    pub(super) fn report_or_hold(&mut self, kill: OomKill, now: Monotonic) {
        let place = self.sensors.oom_kills.is_by_log().then(|| self.victim_place(&kill));
        let workload = place.as_ref().and_then(|place| place.workload.as_deref());
        if let Some(kill) = self.sensors.oom_kills.report_or_hold(kill, workload, now) {
            self.report_oom_kill(&kill, None, now);
        }
    }

    /// Reports the kills that were held, with their workload if the counters show it.
    pub(super) fn report_held(&mut self, now: Monotonic) {
        let Some((held, workload)) = self.sensors.take_held_oom_kills(now) else { return };
        for kill in held {
            self.report_oom_kill(&kill, workload.clone(), now);
        }
    }

    /// Renews the counters with which the next kill without a cgroup is compared.
    pub(super) fn note_oom_counters(&mut self) {
        let Some((held, workload)) = self.sensors.note_oom_counters() else { return };
        let now = Monotonic::now();
        for kill in held {
            self.report_oom_kill(&kill, workload.clone(), now);
        }
    }

    /// Compares the reported kills with the kernel's counters. Reads files, so that only the report calls it.
    pub(super) fn balance_kills(&mut self, now: Monotonic) {
        for (workload, kills) in self.sensors.count_oom_kills_in_files(now) {
            self.reporter.report(&Record::OomKillsCounted { workload: &workload, kills }, now);
        }
        if let Some(OomBalance { unattributed, log_lost }) = self.sensors.balance_oom_kills(now) {
            self.with_metrics(|metrics| metrics.unaccounted(unattributed, log_lost));
        }
    }
}
