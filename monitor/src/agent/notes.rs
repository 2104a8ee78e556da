//! Reports the decider's notes of a turn.

use crate::eviction::decider::Note;
use crate::eviction::{MetThreshold, Observation};
use crate::report::reclaim_report::ReclaimRecord;
use crate::report::record::Record;
use crate::units::Monotonic;

use super::Agent;

impl Agent {
    pub(super) fn report_note(&mut self, note: Note, observation: &Observation, now: Monotonic) {
        let threshold = match note {
            Note::BudgetSpent { left } => {
                self.reporter.report(&Record::BudgetSpent { left }, now);
                return;
            }
            Note::Deferred { threshold }
            | Note::Expected { threshold, .. }
            | Note::PutOff { threshold, .. }
            | Note::Exhausted { threshold, .. }
            | Note::ReclaimFutile { threshold, .. }
            | Note::ReclaimDryRun { threshold, .. } => threshold,
        };
        let Some(met) = &self.met(threshold, observation) else { return };
        match note {
            Note::BudgetSpent { .. } => {}
            Note::Deferred { .. } => {
                let reason = self.why_deferred(now);
                self.reporter.report_deferred(met, &reason, now);
            }
            Note::Expected { amount, .. } => {
                let pods = self.pods_expected();
                self.reporter.report(&Record::EvictionWaits { met, pods, expected: amount }, now);
            }
            Note::PutOff { id, .. } => {
                let (workload, reason) = (self.sensors.workloads.owner(id), self.why_put_off());
                let signal = met.threshold.signal;
                self.reporter.report(&Record::EvictionPutOff { signal, workload: &workload, reason: &reason }, now);
            }
            Note::Exhausted { candidates, .. } => {
                self.reporter.report(&Record::CandidatesExhausted { met, candidates }, now);
            }
            Note::ReclaimFutile { why, .. } => {
                self.reporter.report(&Record::Reclaim(ReclaimRecord::Futile { met, futile: why }), now);
            }
            Note::ReclaimDryRun { id, bytes, .. } => {
                if self.actions.reclaim.is_dry_run_due(id, now) {
                    let workload = self.sensors.workloads.owner(id);
                    let record = ReclaimRecord::DryRun { met, workload: &workload, requested: bytes };
                    self.reporter.report(&Record::Reclaim(record), now);
                }
            }
        }
    }

    /// Returns the threshold at `place` as it was met in this turn.
    fn met(&self, place: usize, observation: &Observation) -> Option<MetThreshold> {
        let threshold = self.decision.armed().get(place)?.threshold.clone();
        let value = observation.get(threshold.signal)?;
        let quantity = threshold.value.resolve(value.capacity, self.config.policy.quirks);
        Some(MetThreshold { place, threshold, quantity, value, is_fresh: true })
    }
}
