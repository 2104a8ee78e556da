//! Facts for the decider, and the measurements that it requests.

use std::collections::HashMap;
use std::sync::Arc;

use crate::actions::{oom_score, reclaim};
use crate::cluster::State;
use crate::eviction::DiskUsage;
use crate::eviction::decider::{Answer, ControlPlane, LimitExceeded, Measure, Place, RuntimeFacts, Snapshot, Standing};
use crate::node::pinned_file::Buffer;
use crate::runtime::{State as RuntimeState, Stores};
use crate::units::{Amount, Bytes, CgroupId, Monotonic, Resource, Signal};
use crate::workloads::Tracked;
use crate::workloads::{OtherUsage, Pod, PodUid, WorkloadUsage, task_count};

use super::turn::{LIST_AGE_AT_DECISION, Turn};
use super::{Agent, TurnStart};

impl Agent {
    pub(super) fn snapshot(&mut self, start: &TurnStart) -> Snapshot {
        let now = start.sampled;
        let expected = self.expected(now);
        Snapshot {
            now: now.into(),
            layout: self.sensors.signals.filesystems.layout(),
            observation: start.observation.clone(),
            question: None,
            under_way: self.actions.evictor.under_way().collect(),
            ended: std::mem::take(&mut self.actions.ended),
            collected: self.actions.collected.take(),
            expected,
            in_maintenance: self.in_maintenance(now),
            reclaim: self.actions.reclaim.facts(),
            has_limits: self.sensors.pods.has_any(),
        }
    }

    pub(super) fn measure(&mut self, what: Measure, turn: &mut Turn) -> Answer<WorkloadUsage> {
        match what {
            // The signals are sampled by the driver, which owns the snapshot.
            Measure::Signals => Answer::Sampled,
            Measure::Runtime => Answer::Runtime(self.runtime_facts()),
            Measure::Candidates { signal, exact } => Answer::Candidates(self.candidates(signal, exact)),
            Measure::Exact { place } => {
                let id = self.decision.ranking().get(place).map(|ranked| ranked.candidate.workload.id);
                Answer::Exact(id.and_then(|id| self.sensors.workloads.tree_mut().measure(id)))
            }
            Measure::Standing { place } => Answer::Standing(self.standing(place, turn)),
            Measure::Holding { place } => Answer::Holding(self.holding(place)),
            Measure::Disks { since, tolerated, renew } => {
                Answer::DisksMeasured(self.sensors.is_disk_measured(since, tolerated, renew))
            }
            Measure::Limits => {
                let now = Monotonic::now();
                self.read_pods(now);
                turn.above = self.above_limits();
                let exceeded = |above: &super::local_storage::Above| {
                    let is_stale = above.is_stale(now) || self.actions.local.was_gone_since(above.id, above.at);
                    if is_stale {
                        self.sensors.disk.hurry(&above.workload);
                    }
                    LimitExceeded { id: above.id, cause: above.cause, is_stale }
                };
                Answer::Limits(turn.above.iter().map(exceeded).collect())
            }
        }
    }

    fn runtime_facts(&self) -> RuntimeFacts {
        let view = self.runtime.view();
        match view.state {
            _ if view.snapshot.is_some() => RuntimeFacts::Up,
            RuntimeState::Looking => RuntimeFacts::Looking,
            // The stores are known only after the runtime has answered once.
            RuntimeState::Down { since, .. } if view.stores != Stores::default() => RuntimeFacts::Down { since },
            RuntimeState::Down { .. } | RuntimeState::Up { .. } | RuntimeState::Off | RuntimeState::Absent => {
                RuntimeFacts::None
            }
        }
    }

    /// Returns the candidates with their usage of the resource behind `signal`.
    fn candidates(&mut self, signal: Signal, exact: bool) -> Vec<WorkloadUsage> {
        self.sensors.workloads.scan_if_older(LIST_AGE_AT_DECISION, Monotonic::now());
        let tree = self.sensors.workloads.tree_mut();
        let is_memory = signal.resource() == Resource::Memory;
        let mut usages = if is_memory && exact { tree.usages() } else { tree.usage_upper_bounds() };
        usages.retain(|usage| usage.workload.protection.is_none());
        if !is_memory {
            self.add_usage_of(signal, &mut usages);
        }
        usages
    }

    fn add_usage_of(&self, signal: Signal, usages: &mut Vec<WorkloadUsage>) {
        if signal.resource().is_on_disk() {
            // Only the disk usage of a pod is given back, because the runtime removes the pod.
            let is_removed = self.runtime.view().state.is_there();
            usages.retain(|usage| is_removed && usage.workload.kind.pod_uid().is_some());
        }
        let tracked: HashMap<CgroupId, &Tracked> =
            self.sensors.workloads.tree().tracked().iter().map(|tracked| (tracked.workload().id, tracked)).collect();
        let mut buffer = Buffer::new();
        for usage in usages {
            let tracked = tracked.get(&usage.workload.id).copied();
            usage.other = Some(self.other_usage(signal, tracked, &usage.workload.name, &mut buffer));
        }
    }

    fn other_usage(&self, signal: Signal, tracked: Option<&Tracked>, name: &str, buffer: &mut Buffer) -> OtherUsage {
        let resource = signal.resource();
        if resource == Resource::Pids {
            let hierarchy = self.sensors.workloads.tree().hierarchy();
            let count = tracked.and_then(|it| task_count::count(it.directory(), name, hierarchy, buffer));
            let used = count.map(|count| Amount::from_units(i64::try_from(count).unwrap_or(i64::MAX)));
            return OtherUsage { resource, used, request: None };
        }
        // A restarted pod keeps its name and cgroup but not its disk usage. A measurement that hangs is out of date.
        let is_of_now = |usage: &DiskUsage| {
            let id = tracked.map(|it| it.workload().id);
            self.sensors.disk.missing().is_none()
                && !id.is_some_and(|id| self.actions.local.was_gone_since(id, usage.at))
        };
        let usage = self.sensors.disk.usage(name).filter(is_of_now);
        let used = usage.map(|usage| usage.on(signal, self.sensors.signals.filesystems.layout()));
        // Without a known request every workload on the disk counts as above its request. Inodes cannot be requested.
        let pod = tracked.and_then(|it| it.workload().pod.as_ref());
        let request = pod.map_or(Amount::ZERO, |pod| pod.request(resource, self.config.policy.quirks));
        OtherUsage { resource, used, request: Some(request) }
    }

    fn standing(&self, place: Place, turn: &Turn) -> Standing {
        let id = match place {
            Place::Ranked(place) => self.decision.ranking().get(place).map(|ranked| ranked.candidate.workload.id),
            Place::Limit(place) => turn.above.get(place).map(|above| above.id),
        };
        let Some(tracked) = id.and_then(|id| self.sensors.workloads.tree().find(id)) else {
            return Standing::default();
        };
        let is_critical = self.is_critical(tracked);
        let Some(uid) = tracked.workload().kind.pod_uid() else {
            return Standing { is_critical, ..Standing::default() };
        };
        let grace_period_seconds = self.own_grace(uid);
        if !self.cluster.is_there() {
            return Standing { is_critical, is_pod: true, grace_period_seconds, ..Standing::default() };
        }
        let view = self.cluster.view();
        let pod = view.pods.find(uid);
        let is_read = view.pods_as_of.is_some() && !view.node.uid.is_empty();
        Standing {
            is_critical: is_critical || pod.is_some_and(Pod::is_critical),
            is_pod: true,
            is_known: pod.is_some(),
            grace_period_seconds,
            control_plane: if view.state == State::Up { ControlPlane::Up { is_read } } else { ControlPlane::Down },
        }
    }

    /// Returns the pod's own grace period in seconds. The runtime knows it if the kubelet has noted it.
    fn own_grace(&self, uid: &PodUid) -> Option<i64> {
        let specs = Arc::clone(self.sensors.pods.specs());
        let asked_for = specs.find(uid).and_then(|pod| pod.spec.termination_grace_period_seconds);
        let noted = || i64::try_from(self.runtime.view().snapshot?.grace_of(uid)?.as_secs()).ok();
        asked_for.or_else(noted)
    }

    /// Returns whether the kubelet's mark or the pod itself makes it critical to the node.
    pub(super) fn is_critical(&self, tracked: &Tracked) -> bool {
        tracked.workload().pod.as_ref().is_some_and(|pod| pod.is_critical())
            || oom_score::is_node_critical(tracked, &self.config.proc_root)
    }

    fn holding(&mut self, place: usize) -> Option<crate::eviction::proactive_reclaim::Holding> {
        let usage = &self.decision.ranking().get(place)?.candidate;
        let (id, above) = (usage.workload.id, usage.working_set.saturating_sub(usage.workload.request));
        let details = self.sensors.memory.read_details();
        let swap_free = details.and_then(|details| details.swap_free).unwrap_or(Bytes::ZERO);
        let tracked = self.sensors.workloads.tree().find(id)?;
        reclaim::holding(tracked.directory(), above, swap_free).ok()
    }
}
