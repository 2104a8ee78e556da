//! Usage of the workloads for the records of incidents, measured at a limited rate.

use std::time::Duration;

use crate::eviction::rank::Order;
use crate::incidents::model::Pressure;
use crate::incidents::record_evidence::{self as evidence, Counted};
use crate::report::incident_sink::Evidence;
use crate::sensors::ebpf_events::Counters;
use crate::sensors::figure_report::PressureReport;
use crate::units::{Monotonic, Resource};

use super::Agent;

/// Evidence younger than this is reused: a storm of OOM kills must not cause a measurement for each.
const EVIDENCE_AGE: Duration = Duration::from_millis(250);
/// Measuring evidence takes at most one part in this many of the time.
const EVIDENCE_SHARE: u32 = 20;

impl Agent {
    /// Notes the kernel's counters, from which later records compute differences.
    pub(super) fn note_counters(&mut self) {
        let counted = self.counted();
        self.reporter.recorder.baselines.note(counted);
    }

    fn counted(&mut self) -> Counted {
        let Counters { cgroups, inodes } = self.sensors.events.counters();
        Counted::of(Monotonic::now(), &cgroups, &inodes)
    }

    /// Measures the workloads, unless the evidence is young enough.
    pub(super) fn refresh_evidence(&mut self, now: Monotonic) {
        let is_young = |evidence: &Evidence| now.since(evidence.at) < EVIDENCE_AGE.max(evidence.took * EVIDENCE_SHARE);
        if self.reporter.recorder.evidence.as_ref().is_some_and(is_young) {
            return;
        }
        let counted = self.counted();
        let growth = self.reporter.recorder.baselines.growth(&counted, |id| self.sensors.workloads.owner(id));
        let usages = self.sensors.workloads.tree_mut().usages();
        let (consumers, protected) = (evidence::consumers(&usages), evidence::protected(&usages));
        let order = Order::of(&self.config.policy, Resource::Memory);
        let candidates = usages.into_iter().filter(|usage| usage.workload.protection.is_none());
        let (ranking, omitted) = evidence::ranking(&order.rank(candidates), order, Resource::Memory);
        let meminfo = std::fs::read_to_string(self.config.proc_root.join("meminfo"));
        let memory = meminfo.ok().map(|text| evidence::memory(&text));
        let pressure = self.sensors.pressure.reports().iter().map(pressure).collect();
        let at = Monotonic::now();
        self.reporter.recorder.evidence = Some(Evidence {
            at,
            took: at.since(now),
            memory,
            consumers,
            protected,
            ranking,
            omitted,
            growth,
            pressure,
        });
    }
}

fn pressure(report: &PressureReport) -> Pressure {
    let [avg10, avg60, avg300] = report.averages.map(|share| (share * 1e4).round() / 1e2);
    Pressure {
        scope: report.scope.as_str().to_owned(),
        resource: report.resource.as_str().to_owned(),
        kind: report.kind.as_str().to_owned(),
        avg10,
        avg60,
        avg300,
    }
}
