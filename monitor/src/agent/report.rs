//! Builds the published report from the loop's state.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use crate::eviction::Observation;
use crate::report::publications::Publication;
use crate::report::stats::Known;
use crate::report::{CgroupReport, ClassReport, NodeReport, ThresholdReport};
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
        NodeReport {
            figures: self.sensors.figures(&self.config.policy, self.decision.armed(), now),
            memory: self.sensors.memory.report(),
            thresholds: self.threshold_reports(),
            conditions: self.conditions(),
            classes: QosClass::ALL.iter().map(|qos| self.class_report(*qos)).collect(),
            protected: self
                .sensors
                .workloads
                .tree()
                .workloads()
                .filter(is_protected)
                .map(|it| it.name.clone())
                .collect(),
            probes: self.sensors.events.report().probes.clone(),
            sources: self.sensors.source_reports(),
            oom_score_adj_drift: self.actions.audits.drifted as u64,
            counters,
            accounts: self.sensors.events.accounts(),
            kswapd: self.sensors.events.kswapd(),
            probe_statistics: self.sensors.events.statistics(),
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

    fn conditions(&self) -> Vec<(Cow<'static, str>, bool)> {
        let of_node = self.node_conditions().map(|(condition, status)| (condition.as_str().into(), status));
        let of_pressure = self.sensors.pressure.statuses();
        of_node.chain(of_pressure.map(|(name, status)| (name.to_owned().into(), status))).collect()
    }

    /// Returns the kernel's aggregates, with the workload of each cgroup.
    fn cgroup_reports(&mut self, now: Monotonic) -> Vec<CgroupReport> {
        let Counters { cgroups, inodes } = self.sensors.counters_for_report(now);
        let mut reports: BTreeMap<u64, CgroupReport> = BTreeMap::new();
        let mut report = |cgroup: CgroupId, act: &mut dyn FnMut(&mut CgroupReport)| {
            act(reports.entry(cgroup.0).or_insert_with(|| {
                let workload = self.sensors.workloads.owner(cgroup).to_string();
                CgroupReport { cgroup, workload, counters: None, inodes: Vec::new() }
            }));
        };
        for (id, counters) in &cgroups {
            report(*id, &mut |report| report.counters = Some(*counters));
        }
        for (id, device, counters) in &inodes {
            report(*id, &mut |report| report.inodes.push((*device, *counters)));
        }
        reports.into_values().collect()
    }
}
