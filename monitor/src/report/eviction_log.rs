//! The log lines about evictions.

use node_pressure_state::Name;

use super::eviction_report::{EvictionRecord, StartedEviction, Trigger};
use super::record::{CandidatesLeft, MetFigures, Record};
use super::workload_log::log_named;
use crate::actions::Action;
use crate::actions::{Ended, Outcome};
use crate::cluster::Verdict;
use crate::eviction::SignalValue;
use crate::eviction::rank::Order;
use crate::runtime::Names;
use crate::units::{Amount, Monotonic, Resource};

pub(super) fn write(record: &Record<'_>, names: &Names, incident: Option<&str>, suppressed: u64) {
    match *record {
        Record::Eviction(eviction) => match eviction.trigger {
            Trigger::Threshold(started, order) => for_threshold(eviction, started, order, names, incident),
            Trigger::Limit { .. } => for_limit(eviction, incident),
        },
        Record::EvictionEnded { ended, at, available } => ended_at(ended, at, available, names),
        Record::EvictionNotStarted { workload, reason, .. } => log_named!(
            error,
            "eviction_failed",
            names.of(workload),
            reason,
            "the workload cannot be evicted; the agent tries the next candidate"
        ),
        Record::EvictionPutOff { signal, workload, reason } => log_named!(
            warn,
            "eviction_put_off",
            names.of(workload),
            signal = signal.as_str(),
            reason,
            suppressed,
            "a soft eviction waits: disruption budgets cannot be respected without the API server"
        ),
        Record::EvictionDeferred { met, reason } => tracing::warn!(
            event = "eviction_deferred",
            signal = met.threshold.signal.as_str(),
            threshold = %met.threshold,
            reason,
            "a soft threshold is met, and no workload is evicted: the node is, or may be, in maintenance"
        ),
        Record::PodsAwaited { met } => tracing::info!(
            event = "pods_awaited",
            signal = met.threshold.signal.as_str(),
            suppressed,
            "a hard threshold waits up to 2 s for the API server's list of pods: a pod that is not known may be critical"
        ),
        Record::EvictionWaits { met, pods, expected } => {
            let is_bytes = met.threshold.signal.resource().is_bytes();
            tracing::info!(
                event = "eviction_waits",
                signal = met.threshold.signal.as_str(),
                pods,
                expected_bytes = is_bytes.then_some(expected.units()),
                expected = (!is_bytes).then_some(expected.units()),
                suppressed,
                "no further workload is evicted: the space of pods that were evicted or have ended suffices once it is freed"
            );
        }
        Record::LeftToKubelet { met } => tracing::info!(
            event = "left_to_kubelet",
            signal = met.threshold.signal.as_str(),
            threshold = %met.threshold,
            suppressed,
            "no workload is evicted: the disk is below the kubelet's own threshold, so the kubelet evicts; the agent does if the kubelet is late"
        ),
        Record::ThresholdUnarmed { threshold, value, why } => tracing::warn!(
            event = "threshold_unarmed",
            signal = threshold.signal.as_str(),
            threshold = %threshold,
            kind = threshold.kind(),
            available = value.map(|value| value.available),
            capacity = value.map(|value| value.capacity),
            reason = why.reason(),
            suppressed,
            "the threshold evicts nothing yet; evictions.actOnPresentPressure waives this"
        ),
        Record::ThresholdArmed { threshold, by } => tracing::info!(
            event = "threshold_armed",
            signal = threshold.signal.as_str(),
            threshold = %threshold,
            kind = threshold.kind(),
            by = by.as_str(),
            suppressed,
            "the threshold evicts from now on"
        ),
        Record::MemoryExpected { met, left, of } => log_named!(
            info,
            "eviction_waits",
            known(of, names),
            signal = met.threshold.signal.as_str(),
            expected_bytes = left.0,
            suppressed,
            "no further workload is evicted: the memory of workloads that were killed is coming back"
        ),
        Record::SwapKeepsUp { met, per_second, usable } => tracing::info!(
            event = "swap_keeps_up",
            signal = met.threshold.signal.as_str(),
            available_bytes = met.value.available,
            swapped_out_bytes_per_second = per_second.0,
            swap_usable_bytes = usable.0,
            suppressed,
            "swap keeps up: the kernel swaps out {per_second}/s, and {usable} of swap are left for the workloads that grow; no workload is evicted meanwhile"
        ),
        Record::SwapFallsShort { met, waited, why } => tracing::info!(
            event = "swap_falls_short",
            signal = met.threshold.signal.as_str(),
            available_bytes = met.value.available,
            waited_seconds = waited.as_secs_f64(),
            reason = why.as_str(),
            suppressed,
            "swap falls short: {}; the eviction does not wait for it",
            why.as_str()
        ),
        Record::ProtectedLeak { met, workload, fall } => log_named!(
            error,
            "leak_not_evictable",
            known(workload, names),
            signal = met.threshold.signal.as_str(),
            available_bytes = met.value.available,
            fall_bytes_per_second = fall.round(),
            suppressed,
            "evictions did not help, and what uses up the memory {}: no other workload is evicted for it",
            if workload.is_some() { "is protected" } else { "is no workload that can be evicted" }
        ),
        Record::BudgetSpent { left } => tracing::warn!(
            event = "evictions_spent",
            seconds_left = left.as_secs_f64(),
            suppressed,
            "evictions.maxPerMinute is reached: the next eviction waits"
        ),
        Record::RefaultsOnly { met, correction, by } => {
            let MetFigures { available_bytes, threshold_bytes, .. } = MetFigures::of(met);
            log_named!(
                warn,
                "refaults_only",
                known(by, names),
                signal = met.threshold.signal.as_str(),
                available_bytes,
                threshold_bytes,
                correction_bytes = correction.0,
                suppressed,
                "the threshold is met only because file pages come back as fast as they are dropped, and no candidate causes half of that: \
                 nothing is evicted"
            );
        }
        Record::CandidatesExhausted { met, left: CandidatesLeft { number, largest, is_pods_only } } => {
            let MetFigures { available_bytes, threshold_bytes, available, threshold_value } = MetFigures::of(met);
            let resource = met.threshold.signal.resource();
            let stays = largest.map(|(_, stays)| stays);
            let reason = match stays {
                Some(stays) => format!("the largest candidate is not evicted: {}", stays.why),
                None if is_pods_only => "no pod is a candidate, and evictions.candidates admits only pods".to_owned(),
                None => "no workload is a candidate".to_owned(),
            };
            let memory = stays.filter(|stays| stays.fall.is_some());
            log_named!(
                error,
                "candidates_exhausted",
                known(largest.map(|(workload, _)| workload), names),
                signal = met.threshold.signal.as_str(),
                available_bytes,
                threshold_bytes,
                available,
                threshold_value,
                candidates = number,
                reason,
                growth_bytes_per_second = memory.map(|stays| stays.growth),
                fall_bytes_per_second = memory.and_then(|stays| stays.fall).map(f64::round),
                suppressed,
                "{}",
                match resource {
                    Resource::Memory => "no workload is left to evict: the kernel's OOM killer will choose",
                    Resource::Pids => "no workload that is known to have many processes is left to evict",
                    Resource::EphemeralStorage | Resource::Inodes =>
                        "no workload that is known to have much on that filesystem is left to evict",
                }
            );
        }
        Record::EvictionCalledOff { workload } => log_named!(
            warn,
            "eviction_called_off",
            names.of(workload),
            "the workload got SIGTERM and no SIGKILL follows: observe mode is in force"
        ),
        Record::EvictionLeft { workload } => log_named!(
            warn,
            "shutdown",
            names.of(workload),
            "the workload got SIGTERM and no SIGKILL follows: the agent stops within the grace period"
        ),
        Record::EvictionAbandoned { pod, pod_uid, reason } => tracing::warn!(
            event = "eviction_abandoned",
            pod,
            pod_uid,
            reason,
            "the eviction of this pod is not finished: unless the pod has been deleted already, the kubelet starts it again"
        ),
        Record::EvictionUnreported { pod, pod_uid, reason } => tracing::error!(
            event = "eviction_untold",
            pod,
            pod_uid,
            reason,
            suppressed,
            "this eviction cannot be reported to the API server now: the kubelet may start the pod again"
        ),
        Record::EvictionRestLeft { pod_uid, reason } => log_named!(
            warn,
            "removal_not_finished",
            names.of_uid(pod_uid),
            pod_uid,
            reason,
            suppressed,
            "the containers of this evicted pod stay on the disk until the pod is deleted"
        ),
        Record::PodUnknown { pod_uid } => log_named!(
            warn,
            "pod_unknown",
            names.of_uid(pod_uid),
            pod_uid,
            suppressed,
            "the API server does not know this pod: it is evicted without a report there"
        ),
        Record::EvictionSettled { pod_uid, verdict } => settled(pod_uid, verdict, names),
        _ => {}
    }
}

fn settled(pod_uid: &str, verdict: &Verdict, names: &Names) {
    let name = || names.of_uid(pod_uid);
    match verdict {
        Verdict::Refused(reason) => log_named!(
            warn,
            "eviction_refused",
            name(),
            pod_uid,
            reason,
            "the pod's processes were ended; the pod stays at the API server, and the kubelet starts it again"
        ),
        Verdict::Begun(begun) => log_named!(
            info,
            "eviction_begun",
            name(),
            pod_uid,
            reason = begun.reason,
            "another controller moves the pod away: no further pod is evicted for a soft threshold until it has left"
        ),
        Verdict::Delayed(reason) => log_named!(
            warn,
            "eviction_delayed",
            name(),
            pod_uid,
            reason,
            "the eviction of this pod is not reported to the API server yet: the agent retries"
        ),
        Verdict::Done(Some(note)) => {
            log_named!(warn, "eviction_note", name(), pod_uid, note, "the pod was evicted, with a deviation");
        }
        Verdict::GivenUp(reason) => log_named!(
            error,
            "eviction_untold",
            name(),
            pod_uid,
            reason,
            "the pod could not be removed at the API server, and the agent does not retry: the kubelet starts it again"
        ),
        Verdict::Restarted => log_named!(
            warn,
            "eviction_restarted",
            name(),
            pod_uid,
            "the kubelet has restarted this pod before it learned of the eviction: the pod runs, and stays"
        ),
        Verdict::Accepted | Verdict::Gone | Verdict::NoAnswer(_) | Verdict::Done(None) => {}
    }
}

fn known(workload: Option<&str>, names: &Names) -> Name {
    workload.map(|workload| names.of(workload)).unwrap_or_default()
}

const fn message(action: Action) -> &'static str {
    match action {
        Action::DryRun => "observe mode: this workload would be evicted",
        Action::Ask => "evicting: the API server was asked, the kubelet stops the pod when that is granted",
        Action::Term => "evicting: SIGTERM sent, SIGKILL follows after the grace period",
        Action::Kill => "evicting: SIGKILL sent",
    }
}

fn for_threshold(
    eviction: &EvictionRecord<'_>,
    trigger: &StartedEviction,
    order: Order<'_>,
    names: &Names,
    incident: Option<&str>,
) {
    let StartedEviction { met, victim, .. } = trigger;
    let reclaim = trigger.reclaim.as_ref();
    let workload = &victim.candidate.workload;
    let MetFigures { available_bytes, threshold_bytes, available, threshold_value } = MetFigures::of(met);
    log_named!(
        warn,
        "eviction",
        eviction.name.clone(),
        incident,
        workload_id = eviction.cgroup.0,
        qos_class = workload.qos.as_str(),
        priority = workload.pod.as_ref().map(|pod| pod.priority()),
        signal = met.threshold.signal.as_str(),
        kind = met.threshold.kind(),
        mode = eviction.action.mode().as_str(),
        action = eviction.action.as_str(),
        wakeup = trigger.wakeup,
        processes = eviction.processes,
        working_set_bytes = victim.candidate.working_set.0,
        used = victim.candidate.other.and_then(|other| other.used).map(Amount::units),
        available_bytes,
        threshold_bytes,
        available,
        threshold_value,
        woken_mono_ns = eviction.woken.0,
        sampled_mono_ns = trigger.sampled.0,
        ordered_mono_ns = trigger.ordered.0,
        decided_mono_ns = trigger.decided.0,
        acted_mono_ns = eviction.acted.0,
        reclaim = reclaim.map(|attempt| attempt.outcome.as_str()),
        reclaim_freed_bytes = reclaim.map(|attempt| attempt.freed.0),
        reclaim_ms = reclaim.map(|attempt| attempt.took.as_secs_f64() * 1e3),
        explanation = victim.explanation(order),
        benefit = trigger.benefit.victim,
        passed_over = trigger.benefit.passed_over,
        ranking = trigger.ranking_head(names),
        "{}",
        message(eviction.action)
    );
}

fn for_limit(eviction: &EvictionRecord<'_>, incident: Option<&str>) {
    let Trigger::Limit { cause, message: reason, measured } = eviction.trigger else { return };
    log_named!(
        warn,
        "eviction",
        eviction.name.clone(),
        incident,
        workload_id = eviction.cgroup.0,
        signal = cause.as_str(),
        kind = "limit",
        mode = eviction.action.mode().as_str(),
        action = eviction.action.as_str(),
        processes = eviction.processes,
        reason,
        measured_ms_ago = eviction.woken.since(measured).as_secs_f64() * 1e3,
        acted_mono_ns = eviction.acted.0,
        "{}",
        match eviction.action {
            Action::DryRun => message(Action::DryRun),
            Action::Kill | Action::Term | Action::Ask => "evicting: the pod exceeds a local-storage limit of its own",
        }
    );
}

fn ended_at(ended: &Ended, at: Monotonic, available: Option<SignalValue>, names: &Names) {
    let name = names.of(&ended.name);
    let took_ms = ended.took.as_secs_f64() * 1e3;
    match &ended.outcome {
        Outcome::Gone => {
            let of_bytes = available.filter(|value| value.signal.resource().is_bytes());
            log_named!(
                info,
                "eviction_done",
                name,
                killed_mono_ns = ended.killed.map(|killed| killed.0),
                gone_mono_ns = at.0,
                took_ms,
                available_bytes = of_bytes.map(|value| value.available_bytes().0),
                cause = ended.cause.as_str(),
                note = ended.note,
                "the workload has no process left"
            );
        }
        Outcome::Refused(reason) => log_named!(
            warn,
            "eviction_refused",
            name,
            reason,
            took_ms,
            "no process was signalled; the agent tries the next candidate"
        ),
        Outcome::Failed(reason) => log_named!(
            error,
            "eviction_failed",
            name,
            reason,
            took_ms,
            note = ended.note,
            "the eviction failed; the agent tries the next candidate"
        ),
    }
}
