//! Converts the facts reported about an eviction to the form in which an incident keeps them.

use crate::actions::ReclaimAttempt;
use crate::config::Mode;
use crate::incidents::model::{Eviction, Outcome, Reclaim};
use crate::units::Amount;

use super::eviction_report::{EvictionRecord, StartedEviction, Trigger};
use super::record::MetFigures;

pub(super) fn eviction_model(record: &EvictionRecord<'_>) -> Eviction {
    let mode = record.action.mode();
    let enforcing = mode == Mode::Enforce;
    let eviction = Eviction {
        pod: record.name.full_pod(),
        name: record.name.clone().identity(),
        pod_uid: record.pod_uid.map(|uid| uid.0.clone()),
        labels: record.labels.clone(),
        signal: record.trigger.cause().as_str().to_owned(),
        mode: mode.as_str().to_owned(),
        workload: record.workload.to_owned(),
        cgroup_id: Some(record.cgroup.0),
        action: record.action.as_str().to_owned(),
        outcome: if enforcing { Outcome::Underway } else { Outcome::Observed },
        processes: enforcing.then_some(record.processes),
        policy: record.policy.clone(),
        trace: record.trace.clone(),
        ..Eviction::default()
    };
    match record.trigger {
        Trigger::Limit { message, .. } => Eviction {
            threshold: message.trim_end().trim_end_matches('.').to_owned(),
            kind: "limit".to_owned(),
            ..eviction
        },
        Trigger::Threshold(StartedEviction { met, victim, reclaim, benefit, .. }, _) => {
            let MetFigures { available_bytes, threshold_bytes, available, threshold_value } = MetFigures::of(met);
            let candidate = &victim.candidate;
            Eviction {
                threshold: met.threshold.to_string(),
                kind: met.threshold.kind().to_owned(),
                qos_class: candidate.workload.qos.as_str().to_owned(),
                working_set_bytes: Some(candidate.working_set.0),
                used: candidate.other.and_then(|other| other.used).map(Amount::units),
                available_bytes,
                threshold_bytes,
                available,
                threshold_value,
                reclaim: reclaim.as_ref().map(reclaim_model),
                benefit: benefit.victim.clone(),
                passed_over: benefit.passed_over.clone(),
                ..eviction
            }
        }
    }
}

fn reclaim_model(attempt: &ReclaimAttempt) -> Reclaim {
    Reclaim {
        workload: attempt.workload.clone(),
        name: None,
        requested_bytes: attempt.requested.0,
        freed_bytes: Some(attempt.freed.0),
        available_before_bytes: Some(attempt.available_before.0),
        available_after_bytes: Some(attempt.available_after.0),
        took_ms: attempt.took.as_secs_f64() * 1e3,
        outcome: attempt.outcome.as_str().to_owned(),
    }
}
