//! Whom to evict when something other than memory is short: who uses how much of it, and who is worth it.

use std::collections::HashMap;
use std::time::Duration;

use crate::config::{Amount, CgroupId, Mode, Resource, Semantics, Signal};
use crate::eviction::rank::Order;
use crate::eviction::worthwhile::is_worthwhile;
use crate::eviction::{DiskUsage, MetThreshold};
use crate::node::Monotonic;
use crate::node::file::Buffer;
use crate::workloads::tree::Tracked;
use crate::workloads::{OtherUsage, WorkloadUsage, pids};

use super::Agent;
use super::act::{LIST_AGE, OBSERVE_PAUSE, RankedWorkload, candidates};

/// What a pod had on a disk is given back when its directories are removed, which is seconds after its last process is gone: as often as
/// the kubelet looks.
pub(super) const DISK_PAUSE: Duration = Duration::from_secs(10);

/// Of a capacity.
const LITTLE: i64 = 100;

/// Who may be evicted for a threshold: not who would give back next to nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worth {
    resource: Resource,
    largest: Amount,
    missing: Amount,
    /// As the kubelet, which ends also who is in front by its class alone.
    by_rank_alone: bool,
}

impl Worth {
    /// Whether ending it helps.
    pub(super) fn admits(&self, ranked: &RankedWorkload) -> bool {
        let used = ranked.facts().usage;
        let largest = if self.by_rank_alone { Amount::ZERO } else { self.largest };
        is_worthwhile(self.resource, used, largest, self.missing)
    }
}

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
        let mut usages: Vec<WorkloadUsage> = candidates(self.tree.usages_at_most()).collect();
        if is_of_disk(signal.resource()) {
            // What others have on a disk stays there when they are gone.
            let is_removed = self.runtime.view().state.is_there();
            usages.retain(|usage| is_removed && usage.workload.kind.pod_uid().is_some());
        }
        let tracked: HashMap<CgroupId, &Tracked> =
            self.tree.tracked().iter().map(|tracked| (tracked.workload().id, tracked)).collect();
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
            let count = tracked.and_then(|it| pids::count(it.directory(), name, self.tree.hierarchy(), buffer));
            let used = count.map(|count| Amount::from_units(i64::try_from(count).unwrap_or(i64::MAX)));
            return OtherUsage { resource, used, request: None };
        }
        // Started again, a pod has the same name and cgroup, and not what it had before; and what nobody measures any more is a guess.
        let is_of_now = |usage: &DiskUsage| {
            let id = tracked.map(|it| it.workload().id);
            !self.is_measuring_stuck() && !id.is_some_and(|id| self.local.was_gone_since(id, usage.at))
        };
        let usage = self.signals.usages().usage(name).filter(is_of_now);
        let used = usage.map(|usage| usage.on(signal, self.signals.layout()));
        // Nothing tells what was requested of a disk: whoever has anything on it is above its request.
        OtherUsage { resource, used, request: Some(Amount::ZERO) }
    }

    /// Who of these is worth ending for `met`.
    pub(super) fn worth(&self, met: &MetThreshold, ranking: &[RankedWorkload], now: Monotonic) -> Worth {
        let is_hard = met.is_hard();
        let can_go = |ranked: &&RankedWorkload| self.evictor.is_candidate(ranked.candidate.workload.id, is_hard, now);
        let largest = ranking.iter().filter(can_go).filter_map(|ranked| ranked.facts().usage).max();
        // A threshold is met by a little only, when it has just been crossed: who gives back no more than that would not be the last to go.
        let little = Amount::from_units(met.value.capacity / LITTLE);
        Worth {
            resource: met.threshold.signal.resource(),
            largest: largest.unwrap_or(Amount::ZERO),
            missing: (self.wanted(met) - Amount::from_units(met.value.available)).max(little),
            by_rank_alone: self.config.policy.semantics == Semantics::Kubelet,
        }
    }

    /// So much has to be available for a threshold not to be met any more.
    pub(super) fn wanted(&self, met: &MetThreshold) -> Amount {
        let reclaim = met.threshold.min_reclaim.as_ref();
        met.quantity + reclaim.map_or(Amount::ZERO, |it| it.resolve(met.value.capacity, self.config.policy.quirks))
    }

    /// Something was done about a disk, or it was said what would be: what comes of it takes its time.
    pub(super) fn rest_disks(&mut self, resource: Resource, now: Monotonic) {
        if !is_of_disk(resource) {
            return;
        }
        // One disk is short of bytes and inodes at once, and the same workload may be the cause of both.
        for signal in Signal::ALL.into_iter().filter(|signal| is_of_disk(signal.resource())) {
            for hard in [true, false] {
                self.last.answered.set((signal, hard), now, DISK_PAUSE);
            }
        }
        self.signals.look_at_disks();
        self.forget_renewal();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Bytes;
    use crate::eviction::rank::Ranked;
    use crate::workloads::{Kind, Preference, QosClass, Workload};

    fn using(used: Option<i64>) -> RankedWorkload {
        let workload = Workload {
            name: "w".to_owned(),
            id: CgroupId(1),
            kind: Kind::Service,
            qos: QosClass::BestEffort,
            request: Bytes::ZERO,
            preference: Preference::None,
            protection: None,
        };
        let other = OtherUsage { resource: Resource::Inodes, used: used.map(Amount::from_units), request: None };
        let candidate = WorkloadUsage { workload, working_set: Bytes(1), exact: false, other: Some(other) };
        Ranked { candidate }
    }

    #[test]
    fn who_has_next_to_nothing_is_passed_over_but_by_the_kubelets_rules() {
        let worth = |by_rank_alone| Worth {
            resource: Resource::Inodes,
            largest: Amount::from_units(100_000),
            missing: Amount::from_units(20_000),
            by_rank_alone,
        };
        for (used, corrected, kubelet) in
            [(Some(100_000), true, true), (Some(500), false, true), (Some(0), false, false), (None, false, false)]
        {
            assert_eq!(worth(false).admits(&using(used)), corrected, "{used:?}");
            assert_eq!(worth(true).admits(&using(used)), kubelet, "{used:?}");
        }
    }
}
