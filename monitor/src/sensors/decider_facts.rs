//! The facts for the decider: the sensors' part of the snapshot, and the measurements that the decider asks for.

use crate::config::{MonitorConfig, Policy, Semantics, Threshold};
use crate::eviction::decider::{Answer, Decider, EvictionStage, Measure, Place, PodList, Snapshot};
use crate::eviction::{Observation, is_below};
use crate::units::{Amount, Bytes, CgroupId, Monotonic, Signal};
use crate::workloads::WorkloadUsage;

use super::Sensors;
use super::control_plane::SoftEvictions;
use super::local_storage_limits::Above;

impl Sensors {
    /// Adds every fact that the sensors know to a snapshot of the actions. Reads the time in which tasks stalled only if `awaits_stalls`.
    pub fn complete(
        &mut self,
        mut snapshot: Snapshot,
        (sampled, observation): (Monotonic, Observation),
        awaits_stalls: bool,
        config: &MonitorConfig,
    ) -> Snapshot {
        for killed in snapshot.under_way.iter().filter(|it| it.stage == EvictionStage::Dying) {
            if !self.dying.is_killed(killed.id) {
                self.note_own_kill(killed.id, None, sampled);
            }
        }
        self.note_oom_victims(sampled);
        self.renew(&mut snapshot, (sampled, observation), config);
        Snapshot {
            protected_growth: self.protected_growth(),
            workloads: self.workloads.tree().tracked().len(),
            refaults: self.refaults(),
            pod_list: match &self.platform.cluster {
                _ if self.pods.is_listed() => PodList::Seen,
                cluster if cluster.is_there() => PodList::Due { since: cluster.begun() },
                _ => PodList::None,
            },
            memory_stalled: awaits_stalls.then(|| self.node_stalled()).flatten().map(|(total, _)| total),
            swap: self.swap_out(),
            oom_killed: self.oom_kills.last_of_node(),
            pods_oom_killed: self.oom_kills.last_of_pods(),
            has_limits: self.pods.has_any(),
            ..snapshot
        }
    }

    /// Puts a later observation into the snapshot, with what is known about the memory of killed workloads.
    pub fn renew(
        &mut self,
        snapshot: &mut Snapshot,
        (sampled, observation): (Monotonic, Observation),
        config: &MonitorConfig,
    ) {
        let is_dying = |id| snapshot.under_way.iter().any(|it| it.id == id && it.stage == EvictionStage::Dying);
        snapshot.dying = self.dying.read(is_dying, sampled);
        // `MemAvailable` lacks these pages after a kill. The kubelet's figure does not.
        let is_corrected = config.policy.semantics == Semantics::Corrected;
        let missing = missing_memory(&config.policy, &observation).filter(|_| is_corrected);
        snapshot.on_cpu_lists = missing.and_then(|missing| {
            let lists = self.cpu_lists.as_mut()?;
            lists.renew_below(missing, sampled);
            self.on_cpu_lists(sampled)
        });
        snapshot.layout = self.signals.filesystems.layout();
        snapshot.is_kubelets_turn = self.kubelet.observe(&observation, snapshot.layout);
        (snapshot.now, snapshot.observation) = (sampled.into(), observation);
    }

    /// Returns whether the control plane lets soft evictions start.
    pub fn soft_evictions(&self, config: &MonitorConfig, now: Monotonic) -> SoftEvictions {
        let has_soft = config.policy.thresholds.iter().any(|threshold| !threshold.is_hard());
        let may_wait = has_soft && config.kubernetes.defer_soft_in_maintenance && self.platform.cluster.is_there();
        if may_wait { self.platform.cluster.soft_evictions(now) } else { SoftEvictions::Allowed }
    }

    /// Measures what the decider asks for. `above` are the pods above a limit of their own, in the order of the decider's places.
    pub fn measure(
        &mut self,
        what: Measure,
        config: &MonitorConfig,
        decider: &Decider<WorkloadUsage>,
        above: &mut Vec<Above>,
    ) -> Answer<WorkloadUsage> {
        let ranked = |place: usize| decider.ranking().get(place).map(|ranked| &ranked.candidate);
        match what {
            // The loop samples the signals, because it owns the snapshot.
            Measure::Signals => Answer::Sampled,
            Measure::Runtime => Answer::Runtime(self.runtime_facts()),
            Measure::Candidates { signal, exact } => Answer::Candidates(self.candidates(signal, exact, config)),
            Measure::Exact { place } => {
                Answer::Exact(ranked(place).and_then(|usage| self.measure_candidate(usage.workload.id)))
            }
            Measure::Standing { place } => {
                let id = cgroup_at(place, decider, above);
                Answer::Standing(id.map(|id| self.standing(id, &config.proc_root)).unwrap_or_default())
            }
            Measure::Holding { place } => Answer::Holding(ranked(place).and_then(|usage| self.holding(usage))),
            Measure::Disks { since, tolerated, renew } => {
                Answer::DisksMeasured(self.disk.is_measured(since, tolerated, renew, self.workloads.tree()))
            }
            Measure::Limits => {
                *above = self.above_limits(&config.policy);
                Answer::Limits(self.exceeded(above, Monotonic::now()))
            }
        }
    }
}

/// Returns how much memory is missing at the highest threshold that is met, or that stays met until its minimum reclaim; `None` if there is
/// none.
fn missing_memory(policy: &Policy, observation: &Observation) -> Option<Bytes> {
    let value = observation.get(Signal::MemoryAvailable)?;
    let thresholds = policy.thresholds.iter().filter(|threshold| threshold.signal == Signal::MemoryAvailable);
    let met = thresholds.filter(|threshold| is_below(policy, threshold, observation, true));
    let missing = |threshold: &Threshold| {
        let quantity = threshold.value.resolve(value.capacity, policy.quirks);
        let available = Amount::from_units(value.available);
        if available < quantity { (quantity - available).bytes() } else { Bytes::ZERO }
    };
    met.map(missing).max()
}

/// Returns the cgroup of a candidate in the ranking, or of a pod above a limit of its own.
pub fn cgroup_at(place: Place, decider: &Decider<WorkloadUsage>, above: &[Above]) -> Option<CgroupId> {
    match place {
        Place::Ranked(place) => decider.ranking().get(place).map(|ranked| ranked.candidate.workload.id),
        Place::Limit(place) => above.get(place).map(|above| above.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eviction::SignalValue;

    #[test]
    fn memory_is_missing_below_a_threshold_only() {
        let policy = Policy { thresholds: vec![Policy::default_hard_threshold()], ..Policy::default() };
        let missing = |available| {
            let value = SignalValue::now(Signal::MemoryAvailable, Bytes::from_mib(available), Bytes::from_gib(8));
            missing_memory(&policy, &Observation { signals: vec![value] })
        };
        assert_eq!(missing(150), None);
        assert_eq!(missing(60), Some(Bytes::from_mib(40)));
        assert_eq!(missing_memory(&policy, &Observation { signals: Vec::new() }), None);
    }
}
