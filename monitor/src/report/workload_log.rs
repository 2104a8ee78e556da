//! The log lines about single workloads, with their names.

use super::oom_kill_report::OomKillRecord;
use super::record::ReclaimRecord;
use crate::actions::oom_score::Drift;
use crate::config::Mode;
use crate::eviction::proactive_reclaim::ReclaimOutcome;
use crate::kernel::{Event, OomConstraint, ReclaimKind};
use crate::runtime::{Names, Stopped};

/// Writes a log line about a workload, with the names that are known.
macro_rules! log_named {
    ($level:ident, $event:literal, $name:expr, $($rest:tt)*) => {{
        let name: node_pressure_state::Name = $name;
        tracing::$level!(
            event = $event,
            workload = (!name.workload.is_empty()).then_some(name.workload.as_str()),
            pod = name.full_pod(),
            namespace = name.namespace,
            container_name = name.container,
            owner = name.owner,
            $($rest)*
        )
    }};
}
pub(super) use log_named;

pub(super) fn reclaimed(reclaim: ReclaimRecord<'_>, names: &Names) {
    let outcome = reclaim.outcome().as_str();
    match reclaim {
        ReclaimRecord::Ended(attempt) => {
            let message = match attempt.outcome {
                ReclaimOutcome::Sufficed => "the workload gave back enough memory: no workload is evicted",
                ReclaimOutcome::TimedOut => "the workload did not give back enough memory in time: evicting",
                ReclaimOutcome::Refused => "the kernel refused to reclaim memory: evicting",
                ReclaimOutcome::Insufficient | ReclaimOutcome::Skipped => "the workload gave back too little memory",
            };
            log_named!(
                warn,
                "reclaim",
                names.of(&attempt.workload),
                workload_id = attempt.id.0,
                outcome,
                requested_bytes = attempt.requested.0,
                freed_bytes = attempt.freed.0,
                available_before_bytes = attempt.available_before.0,
                available_after_bytes = attempt.available_after.0,
                took_ms = attempt.took.as_secs_f64() * 1e3,
                "{message}"
            );
        }
        ReclaimRecord::Futile { met, futile } => tracing::info!(
            event = "reclaim",
            signal = met.threshold.signal.as_str(),
            outcome,
            reason = futile.as_str(),
            available_before_bytes = met.value.available,
            "no workload is asked to give back memory: it cannot help"
        ),
        ReclaimRecord::Refused { workload, reason } => {
            log_named!(
                warn,
                "reclaim",
                names.of(workload),
                outcome,
                reason,
                "memory.reclaim cannot be written: evicting"
            );
        }
        ReclaimRecord::DryRun { met, workload, requested } => log_named!(
            warn,
            "reclaim",
            names.of(workload),
            mode = Mode::Observe.as_str(),
            outcome,
            requested_bytes = requested.0,
            available_before_bytes = met.value.available,
            "observe mode: the workload would be asked to give back memory before one is evicted"
        ),
    }
}

pub(super) fn kernel_event(event: &Event, workload: &str, names: &Names, suppressed: u64) {
    match event {
        Event::Stall(stall) => log_named!(
            info,
            "stall",
            names.of(workload),
            kind = reclaim_kind(stall.kind),
            pid = stall.pid.0,
            comm = %stall.comm,
            duration_ms = std::time::Duration::from_nanos(stall.duration_ns).as_secs_f64() * 1e3,
            reclaimed_pages = stall.reclaimed_pages,
            at_mono_ns = stall.at_ns,
            suppressed,
            "a task stalled in reclaim"
        ),
        Event::OomMark { at_ns, victim_pid, trigger_pid, .. } => tracing::debug!(
            event = "oom_mark",
            victim_pid = victim_pid.0,
            trigger_pid = trigger_pid.0,
            at_mono_ns = at_ns,
            "the OOM killer marked a process"
        ),
        Event::KswapdWake { at_ns, node, order } => {
            tracing::debug!(event = "kswapd_wake", node, order, at_mono_ns = at_ns, "the kernel woke kswapd");
        }
        Event::DirectReclaim { at_ns, pid, .. } => {
            tracing::debug!(event = "direct_reclaim", pid = pid.0, at_mono_ns = at_ns, "a task entered direct reclaim");
        }
        Event::OomScoreAdj { at_ns, pid, comm, adj, writer_pid } => tracing::debug!(
            event = "oom_score_adj_update",
            pid = pid.0,
            %comm,
            oom_score_adj = adj,
            writer_pid = writer_pid.0,
            at_mono_ns = at_ns,
            "a process wrote oom_score_adj"
        ),
    }
}

/// The value of the label and field `kind`.
const fn reclaim_kind(kind: ReclaimKind) -> &'static str {
    match kind {
        ReclaimKind::Direct => "direct",
        ReclaimKind::Memcg => "memcg",
    }
}

pub(super) fn oom_score_drift(drift: &Drift, mode: Mode, names: &Names, suppressed: u64) {
    let (pid, found) = drift.example;
    log_named!(
        info,
        "oom_score_adj_drift",
        names.of(&drift.workload),
        expected = drift.expected,
        found,
        pid = pid.0,
        processes = drift.processes,
        enforcing = mode == Mode::Enforce,
        suppressed,
        "oom_score_adj differs from the value of the workload's QoS class"
    );
}

pub(super) fn oom_score_drift_without_pods(workloads: usize, processes: usize, mode: Mode) {
    tracing::info!(
        event = "oom_score_adj_drift",
        workloads,
        processes,
        enforcing = mode == Mode::Enforce,
        "oom_score_adj differs from the values of the workloads' QoS classes; this host has no pods, so that later differences are only counted"
    );
}

pub(super) fn pod_stopped(stopped: &Stopped, names: &Names) {
    let uid = stopped.uid.0.as_str();
    let took_ms = stopped.took.as_secs_f64() * 1e3;
    match &stopped.result {
        Ok(containers) => {
            log_named!(
                info,
                "pod_stopped",
                names.of_uid(uid),
                uid,
                containers,
                took_ms,
                "the container runtime stopped the pod"
            );
        }
        Err(reason) => {
            log_named!(warn, "pod_not_stopped", names.of_uid(uid), uid, %reason, took_ms, "the container runtime did not stop the pod");
        }
    }
}

pub(super) fn oom_kill(record: &OomKillRecord<'_>, incident: Option<&str>, suppressed: u64) {
    let kill = record.kill;
    let (victim, trigger) = (&record.victim_name, &record.trigger_name);
    let limit = record.limit.as_ref();
    let is_trigger_known = record.is_trigger_known();
    tracing::warn!(
        event = "oom_kill",
        incident,
        victim_pid = kill.victim_pid.0,
        victim_comm = kill.victim_comm.as_ref().map(ToString::to_string),
        victim_workload = victim.workload,
        victim_cgroup_id = kill.victim_cgroup.map(|id| id.0),
        pod = victim.full_pod(),
        namespace = victim.namespace,
        owner = victim.owner,
        container = record.victim.container(),
        container_name = victim.container,
        uid = kill.uid,
        total_vm_bytes = kill.total_vm.map(|bytes| bytes.0),
        anon_rss_bytes = kill.anon_rss.map(|bytes| bytes.0),
        file_rss_bytes = kill.file_rss.map(|bytes| bytes.0),
        shmem_rss_bytes = kill.shmem_rss.map(|bytes| bytes.0),
        pgtables_bytes = kill.pgtables.map(|bytes| bytes.0),
        oom_score_adj = kill.oom_score_adj,
        constraint = kill.constraint.map(OomConstraint::as_str),
        limit_workload = limit.and_then(|limit| limit.workload.as_deref()),
        limit_pod = limit.and_then(|limit| limit.name.as_ref()?.full_pod()),
        limit_cgroup_id = limit.and_then(|limit| limit.cgroup_id),
        source = record.source,
        trigger_pid = is_trigger_known.then_some(kill.trigger_pid.0),
        trigger_comm = is_trigger_known.then(|| tracing::field::display(&kill.trigger_comm)),
        trigger_workload = trigger.workload,
        trigger_pod = trigger.full_pod(),
        trigger_cgroup_id = record.trigger.id.map(|id| id.0),
        marked_mono_ns = kill.marked_at_ns,
        at_mono_ns = kill.at_ns,
        suppressed,
        "the kernel's OOM killer ended a process of {}; the allocation was of {}",
        victim.display,
        trigger.display
    );
}
