//! The counters that a record increments.

use std::time::Duration;

use super::EvictionOutcome;
use super::metrics::Metrics;
use super::record::{ReclaimRecord, Record};
use crate::actions::{Action, Outcome};
use crate::units::Bytes;

pub(super) fn count(record: &Record<'_>, metrics: &Metrics) {
    match *record {
        Record::Eviction(eviction) if eviction.action == Action::DryRun => {
            metrics.eviction(eviction.trigger.cause(), EvictionOutcome::Observed);
        }
        Record::EvictionEnded { ended, .. } => {
            let outcome = match ended.outcome {
                Outcome::Gone => EvictionOutcome::Killed,
                Outcome::Refused(_) => EvictionOutcome::Refused,
                Outcome::Failed(_) => EvictionOutcome::Failed,
            };
            metrics.eviction(ended.cause, outcome);
        }
        Record::EvictionNotStarted { cause, .. } => metrics.eviction(cause, EvictionOutcome::Failed),
        Record::EvictionPutOff { signal, .. } => metrics.eviction(signal, EvictionOutcome::PutOff),
        Record::EvictionDeferred { met, .. } => metrics.deferred(met.threshold.signal),
        Record::CandidatesExhausted { met, .. } => {
            metrics.eviction(met.threshold.signal, EvictionOutcome::NoCandidate);
        }
        Record::ProtectedLeak { met, .. } => metrics.eviction(met.threshold.signal, EvictionOutcome::ProtectedLeak),
        Record::Reclaim(reclaim) => {
            let (freed, took) = match reclaim {
                ReclaimRecord::Ended(attempt) => (attempt.freed, attempt.took),
                _ => (Bytes::ZERO, Duration::ZERO),
            };
            metrics.reclaimed(reclaim.outcome(), freed, took);
        }
        Record::OomKill(kill) => metrics.oom_kills(kill.kill.constraint, 1),
        Record::OomKillsCounted { workload, kills } => {
            metrics.oom_kills_of(workload, kills);
            metrics.oom_kills(None, kills);
        }
        Record::OomScoresAudited(audit) => metrics.scores(audit.newly_drifted as u64, audit.repaired as u64),
        Record::OwnOomScore { .. } => metrics.scores(1, 1),
        Record::OtherKiller { other, .. } => metrics.other_killer(other.killer.as_str()),
        Record::GarbageCollected(collected) => metrics.runtime.collected(collected),
        _ => {}
    }
}
