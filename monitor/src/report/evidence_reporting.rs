//! Usage of the workloads for the records of incidents, measured at a limited rate.

use std::time::Duration;

use crate::eviction::rank::Order;
use crate::incidents::Incident;
use crate::incidents::model::Pressure;
use crate::incidents::record_evidence::{self as evidence, Counted, Growth};
use crate::sensors::Sensors;
use crate::sensors::ebpf_events::Counters;
use crate::sensors::figure_report::PressureReport;
use crate::units::{Monotonic, Resource, Signal};

use super::incident_sink::{Evidence, MemoryScale};
use super::{LoopState, Reporter};

/// Evidence younger than this is reused: a storm of OOM kills must not cause a measurement for each.
const EVIDENCE_AGE: Duration = Duration::from_millis(250);
/// Measuring evidence takes at most one part in this many of the time.
const EVIDENCE_SHARE: u32 = 20;

impl Reporter {
    /// Notes the kernel's counters, from which later records compute differences.
    pub fn note_counters(&mut self, sensors: &mut Sensors) {
        self.recorder.baselines.note(counted(sensors));
    }

    /// Records the incidents of OOM kills that are due; `all`: the others too, because the agent stops.
    pub fn record_oom_kills(&mut self, state: &mut LoopState<'_>, all: bool, now: Monotonic) {
        let is_due = |wait: Duration| all || wait.is_zero();
        if self.recorder.next_due(now).is_some_and(is_due) {
            self.renew_evidence(state, now);
            self.report_oom_incidents(all, state.config.mode, now);
        }
    }

    /// Renews the evidence for the next incident, unless it is young enough.
    pub(super) fn renew_evidence(&mut self, state: &mut LoopState<'_>, now: Monotonic) {
        self.refresh_evidence(state, now);
        let quirks = state.config.policy.quirks;
        let armed = state.decision.armed().iter().map(|armed| &armed.threshold);
        let of_memory = armed.filter(|threshold| threshold.signal == Signal::MemoryAvailable);
        let counts_stalls = state.sensors.counts_stalls();
        self.recorder.set_scale(state.sensors.memory.sample().map(|sample| {
            let capacity = sample.meminfo.total;
            let threshold = of_memory.map(|threshold| threshold.value.resolve(capacity.signed(), quirks).bytes()).max();
            MemoryScale { capacity, threshold, counts_stalls }
        }));
    }

    /// Measures the workloads, unless the evidence is young enough.
    fn refresh_evidence(&mut self, state: &mut LoopState<'_>, now: Monotonic) {
        let is_young = |evidence: &Evidence| now.since(evidence.at) < EVIDENCE_AGE.max(evidence.took * EVIDENCE_SHARE);
        if self.recorder.evidence.as_ref().is_some_and(is_young) {
            return;
        }
        let begun = Monotonic::now();
        let LoopState { config, sensors, .. } = state;
        let counted = counted(sensors);
        let growth = self.recorder.baselines.growth(&counted, |id| sensors.workloads.owner(id));
        let usages = sensors.workloads.tree_mut().usages();
        let (top_consumers, protected) = (evidence::consumers(&usages), evidence::protected(&usages));
        let order = Order::of(&config.policy, Resource::Memory);
        let candidates = usages.into_iter().filter(|usage| usage.workload.protection.is_none());
        let (mut ranking, ranking_omitted) = evidence::ranking(&order.rank(candidates), order, Resource::Memory);
        ranking.extend(protected);
        let meminfo = std::fs::read_to_string(config.proc_root.join("meminfo"));
        let stalls_seconds = growth.as_ref().map(|growth| growth.span.as_secs_f64());
        let Growth { stalls, inodes: inode_growth, .. } = growth.unwrap_or_default();
        let mut figures = Incident {
            memory: meminfo.ok().map(|text| evidence::memory(&text)),
            pressure: sensors.pressure.reports().iter().map(pressure).collect(),
            top_consumers,
            ranking,
            ranking_omitted,
            inode_growth,
            stalls,
            stalls_seconds,
            ..Incident::default()
        };
        let names = sensors.names();
        figures.name_rows(|workload, cgroup| names.identity(workload, cgroup));
        let at = Monotonic::now();
        self.recorder.evidence = Some(Evidence { at, took: at.since(begun), figures });
    }
}

fn counted(sensors: &mut Sensors) -> Counted {
    let Counters { cgroups, inodes } = sensors.events.counters();
    Counted::of(Monotonic::now(), &cgroups, &inodes)
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
