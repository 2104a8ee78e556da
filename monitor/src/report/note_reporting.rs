//! Reports the decider's notes of a turn, and what the actions noted.

use crate::actions::ActionNote;
use crate::config::Threshold;
use crate::eviction::decider::{Note, Unarmed};
use crate::eviction::{Armed, MetThreshold, Observation};
use crate::units::Monotonic;

use super::record::{CandidatesLeft, ReclaimRecord, Record};
use super::{LoopState, Reporter};

/// Name of the capability that every threshold evicts.
const ARMING: &str = "arming";

impl Reporter {
    /// Reports one note of the decider. `pods_expected` is the number of evicted and ended pods whose disk usage is about to be
    /// freed.
    pub fn report_note(
        &mut self,
        note: Note,
        state: &LoopState<'_>,
        observation: &Observation,
        pods_expected: usize,
        now: Monotonic,
    ) {
        let threshold = match note {
            Note::Unarmed { threshold, why } => {
                if let Some(Armed { threshold, .. }) = state.decision.armed().get(threshold) {
                    let value = observation.get(threshold.signal);
                    self.report(&Record::ThresholdUnarmed { threshold, value, why }, now);
                }
                return;
            }
            Note::Armed { threshold, by } => {
                if let Some(Armed { threshold, .. }) = state.decision.armed().get(threshold) {
                    self.report(&Record::ThresholdArmed { threshold, by }, now);
                }
                return;
            }
            Note::BudgetSpent { left } => {
                self.report(&Record::BudgetSpent { left }, now);
                return;
            }
            Note::Deferred { threshold }
            | Note::AwaitsPods { threshold }
            | Note::Expected { threshold, .. }
            | Note::LeftToKubelet { threshold }
            | Note::PutOff { threshold, .. }
            | Note::MemoryExpected { threshold, .. }
            | Note::SwapKeepsUp { threshold, .. }
            | Note::SwapFallsShort { threshold, .. }
            | Note::ProtectedLeak { threshold, .. }
            | Note::RefaultsOnly { threshold, .. }
            | Note::Exhausted { threshold, .. }
            | Note::ReclaimFutile { threshold, .. }
            | Note::ReclaimDryRun { threshold, .. } => threshold,
        };
        let Some(met) = &met_at(threshold, state, observation) else { return };
        match note {
            Note::Unarmed { .. } | Note::Armed { .. } | Note::BudgetSpent { .. } => {}
            Note::Deferred { .. } => {
                let reason = state.sensors.platform.cluster.why_deferred(now);
                self.report_deferred(met, &reason, now);
            }
            Note::AwaitsPods { .. } => {
                self.report(&Record::PodsAwaited { met }, now);
            }
            Note::Expected { amount, .. } => {
                self.report(&Record::EvictionWaits { met, pods: pods_expected, expected: amount }, now);
            }
            Note::LeftToKubelet { .. } => {
                self.report(&Record::LeftToKubelet { met }, now);
            }
            Note::MemoryExpected { left, of, .. } => {
                let of = of.map(|id| state.sensors.workloads.owner(id));
                self.report(&Record::MemoryExpected { met, left, of: of.as_deref() }, now);
            }
            Note::SwapKeepsUp { per_second, usable, .. } => {
                self.report(&Record::SwapKeepsUp { met, per_second, usable }, now);
            }
            Note::SwapFallsShort { waited, why, .. } => {
                self.report(&Record::SwapFallsShort { met, waited, why }, now);
            }
            Note::ProtectedLeak { id, fall, .. } => {
                let workload = id.map(|id| state.sensors.workloads.owner(id));
                self.report(&Record::ProtectedLeak { met, workload: workload.as_deref(), fall }, now);
            }
            Note::PutOff { id, .. } => {
                let (workload, reason) =
                    (state.sensors.workloads.owner(id), state.sensors.platform.cluster.why_put_off());
                let signal = met.threshold.signal;
                self.report(&Record::EvictionPutOff { signal, workload: &workload, reason: &reason }, now);
            }
            Note::RefaultsOnly { correction, by, .. } => {
                let by = by.map(|id| state.sensors.workloads.owner(id));
                self.report(&Record::RefaultsOnly { met, correction, by: by.as_deref() }, now);
            }
            Note::Exhausted { candidates, largest, .. } => {
                let workload = largest.map(|stays| state.sensors.workloads.owner(stays.id));
                let largest = workload.as_deref().zip(largest);
                let is_pods_only = state.sensors.workloads.tree().candidacy().is_pods_only();
                let left = CandidatesLeft { number: candidates, largest, is_pods_only };
                self.report(&Record::CandidatesExhausted { met, left }, now);
            }
            Note::ReclaimFutile { why, .. } => {
                self.report(&Record::Reclaim(ReclaimRecord::Futile { met, futile: why }), now);
            }
            Note::ReclaimDryRun { id, bytes, .. } => {
                if self.reclaim_dry_runs.is_due(id, now) {
                    let workload = state.sensors.workloads.owner(id);
                    let record = ReclaimRecord::DryRun { met, workload: &workload, requested: bytes };
                    self.report(&Record::Reclaim(record), now);
                }
            }
        }
    }

    /// Reports which thresholds evict nothing yet, as a missing capability.
    pub fn report_unarmed(&mut self, unarmed: &[(usize, Threshold, Unarmed)], now: Monotonic) {
        if unarmed.is_empty() && !self.has_unarmed {
            return;
        }
        self.has_unarmed = !unarmed.is_empty();
        let reasons: Vec<String> = unarmed.iter().map(|(_, it, why)| format!("{it} {}", why.reason())).collect();
        let reason = self.has_unarmed.then(|| reasons.join("; "));
        self.set_capability(ARMING, reason.as_deref(), "no workload is evicted for this threshold", now);
    }

    pub fn report_action_notes(&mut self, notes: &[ActionNote], now: Monotonic) {
        for note in notes {
            let record = match note {
                ActionNote::PodUnknown { pod_uid } => Record::PodUnknown { pod_uid },
                ActionNote::Unreported { pod, pod_uid, reason } => Record::EvictionUnreported { pod, pod_uid, reason },
                ActionNote::RestLeft { pod_uid, reason } => Record::EvictionRestLeft { pod_uid, reason },
                ActionNote::NotStarted { cause, workload, reason } => {
                    Record::EvictionNotStarted { cause: *cause, workload, reason }
                }
                ActionNote::ReclaimRefused { workload, reason } => {
                    Record::Reclaim(ReclaimRecord::Refused { workload, reason })
                }
                ActionNote::ReclaimEnded(attempt) => Record::Reclaim(ReclaimRecord::Ended(attempt)),
            };
            self.report(&record, now);
        }
    }
}

/// Returns the threshold at `place` as it was met in this turn.
fn met_at(place: usize, state: &LoopState<'_>, observation: &Observation) -> Option<MetThreshold> {
    let threshold = state.decision.armed().get(place)?.threshold.clone();
    let value = observation.get(threshold.signal)?;
    let quantity = threshold.value.resolve(value.capacity, state.config.policy.quirks);
    Some(MetThreshold { place, threshold, quantity, value, is_fresh: true })
}
