//! Builds the published report from the loop's state.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use crate::cluster::State;
use crate::eviction::Observation;
use crate::node::other_killers::OtherKiller;
use crate::sensors::control_plane::pods_age;
use crate::sensors::ebpf_events::Counters;
use crate::units::{Bytes, CgroupId, Monotonic, Signal, signed};
use crate::workloads::{QosClass, Workload};

use super::live::Aside;
use super::publications::Publication;
use super::record::{Record, Start};
use super::stats::{Known, PodCgroup};
use super::summary::render_page;
use super::{
    CgroupReport, ClassReport, ClusterReport, LoopState, NodeReport, PodInfo, Reporter, RequestsReport, ThresholdReport,
};

/// Upper bound of the pods named in the metrics; more than any node runs.
const MOST_PODS: usize = 1000;

impl Reporter {
    /// Publishes the report for the HTTP server. Returns false if the receiver lags behind and the report was dropped.
    pub fn publish(&mut self, state: &mut LoopState<'_>, aside: &Aside<'_>, is_complete: bool, now: Monotonic) -> bool {
        self.balance_oom_kills(state.sensors, now);
        // The last sample of a calm node may be ten seconds old. The fresh sample is only shown, not decided by.
        let decided_by = state.sensors.memory.show_fresh(state.config.policy.semantics);
        let mut report = self.node_report(state, aside.oom_score_adj_drift, now);
        if is_complete {
            report.probe_statistics = Some(state.sensors.events.statistics());
            report.workload_memory = workload_memory(state);
            report.requests = RequestsReport::of(state.sensors.pods.specs());
        }
        let publications = &self.outlets.publications;
        let live = publications.takes_live().then(|| self.live(state, &report, aside, now));
        state.sensors.memory.restore(decided_by);
        let known = self.outlets.publications.takes_known().then(|| known(state, &report));
        self.outlets.publications.publish(Publication { live, ..publication(state, report, known) })
    }

    /// Describes the node at the start, with `text` as a page on stdout, and reports the other programs that kill workloads.
    pub fn report_start(
        &mut self,
        state: &mut LoopState<'_>,
        oom_score_adj_drift: u64,
        text: bool,
        others: &[OtherKiller],
    ) {
        let node = self.node_report(state, oom_score_adj_drift, Monotonic::now());
        // The start page shows degraded sources. From now on only their changes are reported.
        state.sensors.update_sources();
        let available = node.memory.as_ref().map(|memory| memory.available(state.config.policy.semantics));
        let evicts = evictable_by_threshold(&node.thresholds);
        if text {
            // A closed stdout does not stop the agent.
            let _unread = std::io::stdout().write_all(render_page(&publication(state, node, None)).as_bytes());
        }
        let start = Start {
            config: state.config,
            probes: state.sensors.events.report(),
            evicts: &evicts,
            available,
            fastest_rate: state.sensors.memory.rate().bytes_per_second(),
        };
        self.report(&Record::Started(&start), Monotonic::now());
        let memory = state.sensors.memory.sample().map(|sample| signed(sample.meminfo.total.0));
        let capacities = |signal| memory.filter(|_| signal == Signal::MemoryAvailable);
        for other in others {
            let meaning = &other.meaning(state.config, &capacities);
            self.report(&Record::OtherKiller { other, meaning }, Monotonic::now());
        }
    }

    fn node_report(&self, state: &mut LoopState<'_>, oom_score_adj_drift: u64, now: Monotonic) -> NodeReport {
        let is_protected = |workload: &&Workload| workload.protection.is_some();
        // The rate of inode usage follows from the counters.
        let counters = cgroup_reports(state, now);
        let accounts = state.sensors.events.accounts();
        let kswapd = state.sensors.events.kswapd();
        let figures = state.sensors.figures(&state.config.policy, state.decision.armed(), now);
        let memory = state.sensors.memory.report();
        let tree = state.sensors.workloads.tree();
        NodeReport {
            figures,
            memory,
            thresholds: threshold_reports(state),
            conditions: conditions(state),
            classes: QosClass::ALL.iter().map(|qos| class_report(*qos, state)).collect(),
            protected: tree.workloads().filter(is_protected).map(|it| it.name.clone()).collect(),
            patterns: tree.configured_patterns(),
            probes: state.sensors.events.report().probes.clone(),
            sources: state.sensors.source_reports(),
            missing_capabilities: self.outlets.health.degradations().iter().map(|(name, _)| name.to_owned()).collect(),
            oom_score_adj_drift,
            counters,
            accounts,
            kswapd,
            log_lines_dropped: self.outlets.log.dropped(),
            incidents: self.recorder.counts(),
            notifications: self.recorder.notifier.report(),
            cluster: cluster_report(state),
            pods: pod_infos(state),
            names: state.sensors.names(),
            ..NodeReport::default()
        }
    }
}

/// Returns the publication of a report; `known` are the facts for the Summary API document.
fn publication(state: &LoopState<'_>, report: NodeReport, known: Option<Known>) -> Publication {
    Publication {
        at: Instant::now(),
        report,
        runtime: state.sensors.platform.runtime.view(),
        mode: state.config.mode,
        semantics: state.config.policy.semantics,
        hierarchy: state.sensors.workloads.tree().hierarchy().clone(),
        listen: state.config.listen,
        known,
        live: None,
        generation: 0,
    }
}

fn class_report(qos: QosClass, state: &LoopState<'_>) -> ClassReport {
    let members = state.sensors.workloads.tree().workloads().filter(|workload| workload.qos == qos);
    let members: Vec<String> = members.map(|workload| workload.name.clone()).collect();
    ClassReport {
        qos_class: qos.as_str(),
        count: members.len(),
        members,
        working_set: Bytes::ZERO,
        largest: Vec::new(),
    }
}

/// Returns what each threshold may evict, in words.
fn evictable_by_threshold(thresholds: &[ThresholdReport]) -> String {
    let words = thresholds.iter().map(|ThresholdReport { threshold, reported_only, evicts, .. }| match reported_only {
        Some(why) => format!("{threshold}: reported only, {why}"),
        None => format!("{threshold}: {}", evicts.as_deref().unwrap_or("none")),
    });
    words.collect::<Vec<_>>().join("; ")
}

fn threshold_reports(state: &LoopState<'_>) -> Vec<ThresholdReport> {
    let observation = state.sensors.observation(state.config.policy.semantics);
    let value = |signal| observation.as_ref().and_then(|observation: &Observation| observation.get(signal));
    let crossed = &state.decision.assessment().crossed;
    let unarmed = state.decision.unarmed();
    let (reach, runtime) = (state.sensors.workloads.tree().reach(), state.sensors.platform.runtime.view());
    let policy = &state.config.policy;
    let thresholds = state.decision.armed().iter().map(|armed| &armed.threshold).enumerate();
    thresholds
        .filter(|(_, threshold)| value(threshold.signal).is_some() || !policy.needs_no_limit(threshold))
        .map(|(index, threshold)| ThresholdReport {
            threshold: threshold.clone(),
            bytes: value(threshold.signal)
                .map(|value| threshold.value.resolve(value.capacity, state.config.policy.quirks).bytes()),
            met: crossed.get(index).copied().unwrap_or(false),
            unarmed: unarmed.iter().find(|(place, ..)| *place == index).map(|(.., why)| *why),
            reported_only: reach.reported_only(threshold, policy.semantics, runtime.state.is_there()),
            evicts: reach.evicts(threshold, policy.semantics),
        })
        .collect()
}

fn conditions(state: &LoopState<'_>) -> Vec<(Cow<'static, str>, bool)> {
    let of_node = state.node_conditions().map(|(condition, status)| (condition.as_str().into(), status));
    let of_pressure = state.sensors.pressure.statuses();
    of_node.chain(of_pressure.map(|(name, status)| (name.to_owned().into(), status))).collect()
}

/// Returns the kernel's aggregates, with the workload of each cgroup.
fn cgroup_reports(state: &mut LoopState<'_>, now: Monotonic) -> Vec<CgroupReport> {
    let Counters { cgroups, inodes } = state.sensors.counters_for_report(now);
    let mut reports: BTreeMap<u64, CgroupReport> = BTreeMap::new();
    let mut report = |cgroup: CgroupId, act: &mut dyn FnMut(&mut CgroupReport)| {
        act(reports.entry(cgroup.0).or_insert_with(|| {
            let workload = state.sensors.workloads.owner(cgroup).to_string();
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

/// Returns the control plane's part of the report; `None` without a control plane.
fn cluster_report(state: &LoopState<'_>) -> Option<ClusterReport> {
    let view = state.sensors.platform.cluster.view();
    let down = match &view.state {
        State::Off => return None,
        State::Up => None,
        State::Looking => Some("not asked yet".to_owned()),
        State::Down { reason, .. } => Some(reason.clone()),
    };
    Some(ClusterReport {
        node: view.node_name.to_string(),
        down,
        pods: view.pods.pods().len(),
        pods_age: pods_age(&view),
        counts: view.counts,
        node_age: view.node_as_of.map(|as_of| Monotonic::now().since(as_of)),
        maintenance: view.node.maintenance.clone(),
        defers: state.config.kubernetes.defer_soft_in_maintenance,
    })
}

/// Returns the pod of each workload, as far as the API server or the runtime knows it.
fn pod_infos(state: &LoopState<'_>) -> Vec<PodInfo> {
    let node = state.sensors.platform.cluster.view().node_name;
    let snapshot = state.sensors.platform.runtime.view().snapshot;
    let info = |workload: &Workload| {
        let uid = workload.kind.pod_uid()?;
        let of_runtime = || Some(&snapshot.as_ref()?.sandbox_of(uid)?.pod);
        let (namespace, name) = match &workload.pod {
            Some(pod) => (&pod.metadata.namespace, &pod.metadata.name),
            None => of_runtime().map(|pod| (&pod.namespace, &pod.name))?,
        };
        // All clients but the kubelet know a static pod by the UID of its mirror pod.
        let uid = workload.pod.as_ref().map_or(&uid.0, |pod| &pod.metadata.uid);
        let owner = workload.pod.as_ref().and_then(|pod| pod.controller());
        Some(PodInfo {
            workload: workload.name.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            node: node.to_string(),
            qos_class: workload.qos.as_str(),
            owner: owner.map(|owner| (owner.kind.clone(), owner.name.clone())),
        })
    };
    state.sensors.workloads.tree().workloads().filter_map(info).take(MOST_PODS).collect()
}

/// Measures the working sets if the configuration asks for them. The cost is two reads for each workload.
fn workload_memory(state: &mut LoopState<'_>) -> Vec<(String, Bytes)> {
    if !state.config.workload_memory {
        return Vec::new();
    }
    let usages = state.sensors.workloads.tree_mut().usages();
    usages.into_iter().map(|usage| (usage.workload.name.clone(), usage.working_set)).collect()
}

/// Returns the facts for the Summary API document, which another thread builds. The cost is that of copying the pods'
/// names.
fn known(state: &LoopState<'_>, report: &NodeReport) -> Known {
    let runtime = state.sensors.platform.runtime.view();
    let pids = report.figures.signals.iter().find(|it| it.signal == Signal::PidAvailable);
    let pod = |workload: &Workload| {
        let uid = workload.kind.pod_uid()?.clone();
        Some(PodCgroup { uid, path: workload.name.clone(), id: workload.id })
    };
    Known {
        node_name: state.node_name(),
        memory: report.memory.clone(),
        swap: report.figures.swap,
        pids: pids.map(|it| (it.available, it.capacity)),
        filesystems: state.sensors.signals.filesystems.samples().to_vec(),
        stores: runtime.stores,
        hierarchy: state.sensors.workloads.tree().hierarchy().clone(),
        pods: state.sensors.workloads.tree().workloads().filter_map(pod).collect(),
        snapshot: runtime.snapshot,
        specs: Arc::clone(state.sensors.pods.specs()),
        usages: state.sensors.disk.usages(),
    }
}
