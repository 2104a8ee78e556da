//! Whom to evict when something other than memory is short: who uses how much of it, and who is worth it.

use std::collections::HashMap;
use std::time::Duration;

use crate::config::Mode;
use crate::eviction::benefit::Benefit;
use crate::eviction::rank::Order;
use crate::eviction::{DiskUsage, MetThreshold};
use crate::node::pinned_file::Buffer;
use crate::units::{Amount, CgroupId, Monotonic, Resource, Signal};
use crate::workloads::Tracked;
use crate::workloads::{OtherUsage, WorkloadUsage, task_count};

use super::Agent;
use super::act::{LIST_AGE, OBSERVE_PAUSE, RankedWorkload, candidates};

/// What a pod had on a disk is given back when its directories are removed, which is seconds after its last process is gone: as often as
/// the kubelet looks.
pub(super) const DISK_PAUSE: Duration = Duration::from_secs(10);

/// How long nothing more is done about a resource after something was done about it in vain, or it was said what would be.
pub(super) const fn pause(resource: Resource, mode: Mode) -> Duration {
    match (resource, mode) {
        (Resource::EphemeralStorage | Resource::Inodes, _) => DISK_PAUSE,
        (Resource::Memory | Resource::Pids, Mode::Observe) => OBSERVE_PAUSE,
        (Resource::Memory | Resource::Pids, Mode::Enforce) => LIST_AGE,
    }
}

/// Whether it lies on a disk.
pub(super) const fn is_of_disk(resource: Resource) -> bool {
    matches!(resource, Resource::EphemeralStorage | Resource::Inodes)
}

impl Agent {
    /// Orders the candidates by what they use of what `signal` counts.
    pub(super) fn rank_others(&mut self, signal: Signal) -> Vec<RankedWorkload> {
        let mut usages: Vec<WorkloadUsage> = candidates(self.sensors.tree.usage_upper_bounds()).collect();
        if is_of_disk(signal.resource()) {
            // What others have on a disk stays there when they are gone.
            let is_removed = self.runtime.view().state.is_there();
            usages.retain(|usage| is_removed && usage.workload.kind.pod_uid().is_some());
        }
        let tracked: HashMap<CgroupId, &Tracked> =
            self.sensors.tree.tracked().iter().map(|tracked| (tracked.workload().id, tracked)).collect();
        let mut buffer = Buffer::new();
        for usage in &mut usages {
            let tracked = tracked.get(&usage.workload.id).copied();
            usage.other = Some(self.other_usage(signal, tracked, &usage.workload.name, &mut buffer));
        }
        Order::of(&self.config.policy, signal.resource()).rank(usages)
    }

    fn other_usage(&self, signal: Signal, tracked: Option<&Tracked>, name: &str, buffer: &mut Buffer) -> OtherUsage {
        let resource = signal.resource();
        if resource == Resource::Pids {
            let count =
                tracked.and_then(|it| task_count::count(it.directory(), name, self.sensors.tree.hierarchy(), buffer));
            let used = count.map(|count| Amount::from_units(i64::try_from(count).unwrap_or(i64::MAX)));
            return OtherUsage { resource, used, request: None };
        }
        // Started again, a pod has the same name and cgroup, and not what it had before; and what nobody measures any more is a guess.
        let is_of_now = |usage: &DiskUsage| {
            let id = tracked.map(|it| it.workload().id);
            !self.is_measuring_stuck() && !id.is_some_and(|id| self.sensors.local.was_gone_since(id, usage.at))
        };
        let usage = self.sensors.signals.usages().usage(name).filter(is_of_now);
        let used = usage.map(|usage| usage.on(signal, self.sensors.signals.layout()));
        // Where nothing tells what was requested of a disk, whoever has anything on it is above its request. Inodes cannot be requested.
        let pod = tracked.and_then(|it| it.workload().pod.as_ref());
        let request = pod.map_or(Amount::ZERO, |pod| pod.request(resource, self.config.policy.quirks));
        OtherUsage { resource, used, request: Some(request) }
    }

    /// Who of these is worth ending for `met`.
    pub(super) fn worth(&self, met: &MetThreshold, ranking: &[RankedWorkload], now: Monotonic) -> Benefit {
        let is_hard = met.is_hard();
        let can_go =
            |ranked: &&RankedWorkload| self.actions.evictor.is_candidate(ranked.candidate.workload.id, is_hard, now);
        let largest = ranking.iter().filter(can_go).filter_map(|ranked| ranked.facts().usage).max();
        Benefit::of(&self.config.policy, met.threshold.signal, Some(met.value), Some(met), largest)
    }

    /// Something was done about a disk, or it was said what would be: what comes of it takes its time.
    pub(super) fn rest_disks(&mut self, resource: Resource, now: Monotonic) {
        if !is_of_disk(resource) {
            return;
        }
        // One disk is short of bytes and inodes at once, and the same workload may be the cause of both.
        for signal in Signal::ALL.into_iter().filter(|signal| is_of_disk(signal.resource())) {
            for hard in [true, false] {
                self.decision.answered.set((signal, hard), now, DISK_PAUSE);
            }
        }
        self.sensors.signals.look_at_disks();
        self.forget_renewal();
    }
}
