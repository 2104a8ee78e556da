//! Builds the published report from the loop's state.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::eviction::Observation;
use crate::eviction::thresholds::NodeCondition;
use crate::kernel::{
    Accounts, CgroupCounters, EventAccount, EventKind, ProbeState, ProbeStatus, ReclaimKind, Untracked,
};
use crate::report::log_sink::reclaim_kind;
use crate::report::publications::Publication;
use crate::report::stats::Known;
use crate::report::{
    CgroupReport, ClassReport, ConditionReport, EventReport, InodeReport, NodeReport, ProbeReport, StallReport,
    ThresholdReport,
};
use crate::sensors::ebpf_events::Counters;
use crate::units::{Bytes, CgroupId, Monotonic};
use crate::workloads::{QosClass, Workload};

use super::Agent;

impl Agent {
    /// Publishes the report for the HTTP server. Returns false if the receiver lags behind and the report was dropped.
    pub(super) fn publish(&mut self) -> bool {
        let now = Monotonic::now();
        self.balance_kills(now);
        // The last sample of a calm node may be ten seconds old. The fresh sample is only shown, not decided by.
        let decided_by = self.sensors.memory.show_fresh(self.config.policy.semantics);
        let report = self.node_report(now);
        self.sensors.memory.restore(decided_by);
        let known = self.reporter.outlets.publications.takes_known().then(|| self.known(&report));
        let publication = self.publication(report, known);
        self.reporter.outlets.publications.publish(publication)
    }

    pub(super) fn publication(&self, report: NodeReport, known: Option<Known>) -> Publication {
        Publication {
            at: Instant::now(),
            report,
            runtime: self.runtime.view(),
            mode: self.config.mode,
            semantics: self.config.policy.semantics,
            hierarchy: self.sensors.workloads.tree().hierarchy().clone(),
            listen: self.config.listen,
            known,
            generation: 0,
        }
    }

    pub(super) fn node_report(&mut self, now: Monotonic) -> NodeReport {
        let is_protected = |workload: &&Workload| workload.protection.is_some();
        // The rate of inode usage follows from the counters.
        let counters = self.cgroup_reports(now);
        let accounts = self.sensors.events.accounts();
        let kswapd = self.sensors.events.kswapd();
        let probe_statistics = self.sensors.events.statistics();
        NodeReport {
            figures: self.sensors.figures(&self.config.policy, self.decision.armed(), now),
            memory: self.sensors.memory.report(),
            thresholds: self.threshold_reports(),
            conditions: self.condition_reports(),
            classes: QosClass::ALL.iter().map(|qos| self.class_report(*qos)).collect(),
            protected: self
                .sensors
                .workloads
                .tree()
                .workloads()
                .filter(is_protected)
                .map(|it| it.name.clone())
                .collect(),
            probes: self.probe_reports(),
            sources: self.sensors.source_reports(),
            oom_score_adj_drift: self.actions.audits.drifted as u64,
            counters,
            events: event_reports(&accounts),
            untracked: accounts.untracked.iter().map(|(what, count)| (untracked_name(*what), *count)).collect(),
            kswapd_wakes: kswapd.wakes,
            kswapd_nanos: kswapd.active_ns,
            kswapd_reclaimed_pages: kswapd.reclaimed_pages,
            kswapd_scanned_pages: kswapd.scanned_pages,
            probe_statistics,
            log_lines_dropped: self.reporter.outlets.log.dropped(),
            incidents: self.reporter.recorder.counts(),
            cluster: self.cluster_report(),
            pods: self.pod_infos(),
        }
    }

    fn class_report(&self, qos: QosClass) -> ClassReport {
        let members = self.sensors.workloads.tree().workloads().filter(|workload| workload.qos == qos);
        let members: Vec<String> = members.map(|workload| workload.name.clone()).collect();
        ClassReport {
            qos_class: qos.as_str(),
            count: members.len(),
            members,
            working_set: Bytes::ZERO,
            largest: Vec::new(),
        }
    }

    fn threshold_reports(&self) -> Vec<ThresholdReport> {
        let observation = self.sensors.observation(self.config.policy.semantics);
        let value = |signal| observation.as_ref().and_then(|observation: &Observation| observation.get(signal));
        let crossed = &self.decision.assessment().crossed;
        let thresholds = self.decision.armed().iter().map(|armed| &armed.threshold).enumerate();
        thresholds
            .map(|(index, threshold)| ThresholdReport {
                threshold: threshold.clone(),
                bytes: value(threshold.signal)
                    .map(|value| threshold.value.resolve(value.capacity, self.config.policy.quirks).bytes()),
                met: crossed.get(index).copied().unwrap_or(false),
            })
            .collect()
    }

    fn condition_reports(&self) -> Vec<ConditionReport> {
        let report = |(condition, status): (NodeCondition, bool)| ConditionReport {
            condition: condition.as_str().into(),
            status,
        };
        let of_pressure = self.sensors.pressure.statuses();
        let of_pressure =
            of_pressure.map(|(name, status)| ConditionReport { condition: name.to_owned().into(), status });
        self.node_conditions().map(report).chain(of_pressure).collect()
    }

    fn probe_reports(&self) -> Vec<ProbeReport> {
        let report = |probe: &ProbeStatus| ProbeReport {
            name: probe.name.clone(),
            missing: match &probe.state {
                ProbeState::Attached => None,
                ProbeState::Missing(reason) => Some(reason.clone()),
            },
        };
        self.sensors.events.report().probes.iter().map(report).collect()
    }

    /// Returns the kernel's aggregates, with the workload of each cgroup.
    fn cgroup_reports(&mut self, now: Monotonic) -> Vec<CgroupReport> {
        let Counters { cgroups, inodes } = self.sensors.counters_for_report(now);
        let mut reports: BTreeMap<u64, CgroupReport> = BTreeMap::new();
        let mut names: HashMap<CgroupId, String> = HashMap::new();
        let mut report = |id: CgroupId, act: &mut dyn FnMut(&mut CgroupReport)| {
            let workload = names.entry(id).or_insert_with(|| self.sensors.workloads.owner(id).to_string()).clone();
            act(reports.entry(id.0).or_insert_with(|| CgroupReport {
                cgroup: id,
                workload,
                ..CgroupReport::default()
            }));
        };
        for (id, counters) in &cgroups {
            report(*id, &mut |report| add_counters(report, counters));
        }
        for (id, device, counters) in &inodes {
            let (created, removed) = (counters.created, counters.removed);
            report(*id, &mut |report| report.inodes.push(InodeReport { device: device.to_string(), created, removed }));
        }
        reports.into_values().collect()
    }
}

fn event_reports(accounts: &Accounts) -> Vec<EventReport> {
    let account = |account: &EventAccount| EventReport {
        event: event_name(account.kind),
        generated: account.generated,
        delivered: account.delivered,
        lost: account.lost,
        malformed: account.malformed,
        suppressed: account.suppressed,
    };
    // Malformed events whose kind is unreadable count under the generated kind "unknown".
    let unknown = EventReport { event: "unknown", malformed: accounts.unknown, ..EventReport::default() };
    accounts.events.iter().map(account).chain([unknown]).collect()
}

/// Returns the value of the `what` label.
fn untracked_name(what: Untracked) -> &'static str {
    match what {
        Untracked::Stall => "stall",
        Untracked::Reclaim => "reclaim",
        Untracked::Inode => "inode",
        Untracked::OomKill => "oom_kill",
    }
}

fn add_counters(report: &mut CgroupReport, counters: &CgroupCounters) {
    for (kind, counters) in [(ReclaimKind::Direct, &counters.direct), (ReclaimKind::Memcg, &counters.memcg)] {
        if counters.stalls > 0 {
            let kind = reclaim_kind(kind);
            report.stalls.push(StallReport { kind, counters: *counters });
        }
    }
    report.oom_kills = counters.oom_kills;
}

/// Returns the value of the `event` label.
fn event_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::KswapdWake => "kswapd_wake",
        EventKind::DirectReclaim => "direct_reclaim",
        EventKind::Stall => "stall",
        EventKind::OomMark => "oom_mark",
        EventKind::OomKill => "oom_kill",
        EventKind::OomScoreAdj => "oom_score_adj",
    }
}
