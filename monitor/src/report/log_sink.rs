//! The log line of each record. The values of `event` and the field names are interfaces.

use super::eviction_log;
use super::record::{MetFigures, Record, Start};
use super::workload_log;
use crate::actions::Restored as ScoresRestored;
use crate::config::Mode;
use crate::eviction::no_execute::News;
use crate::runtime::{CollectEnd, Collected, Names};
use crate::units::Monotonic;

/// Names and refusals shown of a garbage collection.
const SHOWN: usize = 10;

/// Writes the record's log line, if it has one. `incident` is the id of the incident that the record belongs to.
pub(super) fn write(record: &Record<'_>, names: &Names, incident: Option<&str>, suppressed: u64) {
    match *record {
        Record::Ready => tracing::info!(event = "ready", "the agent listens and samples"),
        Record::Stopped => tracing::info!(event = "shutdown", "the agent has stopped"),
        Record::Started(start) => started(start),
        Record::Eviction(_)
        | Record::EvictionEnded { .. }
        | Record::EvictionNotStarted { .. }
        | Record::EvictionPutOff { .. }
        | Record::EvictionDeferred { .. }
        | Record::PodsAwaited { .. }
        | Record::EvictionWaits { .. }
        | Record::LeftToKubelet { .. }
        | Record::MemoryExpected { .. }
        | Record::SwapKeepsUp { .. }
        | Record::SwapFallsShort { .. }
        | Record::ProtectedLeak { .. }
        | Record::EvictionCalledOff { .. }
        | Record::EvictionLeft { .. }
        | Record::EvictionAbandoned { .. }
        | Record::EvictionSettled { .. }
        | Record::EvictionUnreported { .. }
        | Record::EvictionRestLeft { .. }
        | Record::PodUnknown { .. }
        | Record::CandidatesExhausted { .. }
        | Record::RefaultsOnly { .. }
        | Record::ThresholdUnarmed { .. }
        | Record::ThresholdArmed { .. }
        | Record::BudgetSpent { .. } => eviction_log::write(record, names, incident, suppressed),
        Record::ThresholdMet { met, wakeup, sampled } => {
            let MetFigures { available_bytes, threshold_bytes, available, threshold_value } = MetFigures::of(met);
            tracing::warn!(
                event = "threshold_met",
                signal = met.threshold.signal.as_str(),
                kind = met.threshold.kind(),
                threshold = %met.threshold,
                available_bytes,
                threshold_bytes,
                available,
                threshold_value,
                wakeup,
                sampled_mono_ns = sampled.0,
                suppressed,
                "{}: {} left", met.threshold, met.value.words()
            );
        }
        Record::ThresholdRecovered { threshold, value, sampled } => {
            let is_bytes = threshold.signal.resource().is_bytes();
            tracing::info!(
                event = "recovered",
                signal = threshold.signal.as_str(),
                threshold = %threshold,
                available_bytes = is_bytes.then_some(value.available),
                available = (!is_bytes).then_some(value.available),
                sampled_mono_ns = sampled.0,
                suppressed,
                "{threshold} no longer: {} left", value.words()
            );
        }
        Record::ConditionChanged { name, status: true, suppressed, .. } => {
            tracing::warn!(event = "condition", condition = name, status = true, suppressed, "{name} is now true");
        }
        Record::ConditionChanged { name, status: false, suppressed, .. } => {
            tracing::info!(event = "condition", condition = name, status = false, suppressed, "{name} is now false");
        }
        Record::DaemonsAboveReservation(daemons) => tracing::warn!(
            event = "system_above_reservation",
            above_bytes = daemons.above.0,
            reserved_bytes = daemons.reserved.0,
            largest = daemons.words(),
            "system daemons exceed the memory that is reserved for them by {}",
            daemons.above
        ),
        Record::Reclaim(reclaim) => workload_log::reclaimed(reclaim, names),
        Record::NoExecuteTaint { condition, news } => {
            let (reason, words) = no_execute(news);
            tracing::warn!(event = "no_execute", condition = condition.as_str(), reason, "{words}");
        }
        Record::Maintenance { reason: Some(reason), defers } => {
            let effect = if defers { "soft evictions wait" } else { "soft evictions continue, as configured" };
            tracing::info!(event = "maintenance", reason, defers, "the node is in maintenance: {effect}");
        }
        Record::Maintenance { reason: None, .. } => {
            tracing::info!(event = "maintenance", "the node is no longer in maintenance");
        }
        Record::MaintenanceOutdated { age } => tracing::warn!(
            event = "maintenance",
            age_seconds = age.as_secs(),
            "the node was in maintenance when the API server last answered: soft evictions wait no longer"
        ),
        Record::KernelEvent { event, workload } => workload_log::kernel_event(event, workload, names, suppressed),
        Record::OomKill(kill) => workload_log::oom_kill(kill, incident, suppressed),
        Record::OomKillsCounted { workload, kills } => workload_log::log_named!(
            warn,
            "oom_kills_counted",
            names.of(workload),
            kills,
            "the kernel's OOM killer ended processes of this workload"
        ),
        Record::Degraded { capability, reason, effect, known } => {
            let pods_age_seconds = known.age.map(|age| age.as_secs());
            tracing::warn!(
                event = "degraded",
                capability,
                reason,
                pods = known.pods,
                pods_age_seconds,
                known = known.of_file,
                "{effect}"
            );
        }
        Record::Restored { capability } => {
            tracing::info!(event = "restored", capability, "a missing capability is restored");
        }
        Record::SourceChanged { signal, from, to, reason } => {
            tracing::warn!(event = "source_changed", signal, from, to, reason, "the source of {signal} is now {to}");
        }
        Record::OomScoreDrift { drift, mode } => workload_log::oom_score_drift(drift, mode, names, suppressed),
        Record::OomScoreDriftWithoutPods { workloads, processes, mode } => {
            workload_log::oom_score_drift_without_pods(workloads, processes, mode);
        }
        Record::OwnOomScore { found } => tracing::warn!(
            event = "own_oom_score_adj",
            found,
            suppressed,
            "another process changed the agent's own oom_score_adj; the agent has set it again"
        ),
        Record::OomScoresRestored(restored) => log_restored_scores(restored),
        Record::GarbageCollected(collected) => garbage_collected(collected),
        Record::PodStopped(stopped) => workload_log::pod_stopped(stopped, names),
        Record::RuntimeFound { runtime, socket } => {
            let socket = socket.display();
            tracing::info!(event = "container_runtime", runtime, %socket, "the container runtime answers");
        }
        Record::RuntimeAbsent => tracing::info!(
            event = "container_runtime",
            "the node has no container runtime: workloads are known by their cgroups"
        ),
        Record::OtherKiller { other, meaning } => {
            let (killer, pid, advice) = (other.killer.as_str(), other.pid, meaning.mend.as_str());
            if meaning.collides {
                tracing::warn!(event = "other_killer", killer, pid, advice, "{}", meaning.sentence);
            } else {
                tracing::info!(event = "other_killer", killer, pid, advice, "{}", meaning.sentence);
            }
        }
        Record::ApiServerUp { pods } => tracing::info!(event = "api_server", pods, "the API server answers"),
        Record::PodsRead { pods, age } => {
            let pods_age_seconds = age.map(|age| age.as_secs());
            tracing::info!(event = "pods", pods, pods_age_seconds, "the pods of this node are known");
        }
        Record::EventDropped { reason } => tracing::warn!(
            event = "event_dropped",
            reason,
            suppressed,
            "event not sent: too many events wait for the API server"
        ),
        Record::ConfigurationWarning { file, fields, warning } => {
            tracing::warn!(event = "configuration", file, fields, "{warning}");
        }
        Record::ConfigurationApplied { file, changed, mode, pool } => tracing::info!(
            event = "configuration_applied",
            file,
            changed,
            mode = mode.as_str(),
            pool,
            "the configuration file is in force"
        ),
        Record::ConfigurationRefused { file, reason } => tracing::error!(
            event = "configuration_refused",
            file,
            reason,
            "the configuration file cannot be used: the previous configuration stays in force"
        ),
        Record::Reclaiming(_) | Record::OomIncident(_) | Record::OomScoresAudited(_) => {}
    }
}

/// Logs what became of the processes whose `oom_score_adj` was restored. `run` calls it too, before there is a reporter.
pub fn log_restored_scores(restored: &ScoresRestored) {
    let ScoresRestored { restored, changed, ended, failed, error, .. } = restored;
    tracing::info!(
        event = "oom_scores_restored",
        restored,
        changed,
        ended,
        failed,
        reason = error,
        "processes have the oom_score_adj from before the agent again"
    );
}

fn started(start: &Start<'_>) {
    let Start { config, probes, evicts, available, fastest_rate } = *start;
    tracing::info!(
        event = "started",
        version = env!("CARGO_PKG_VERSION"),
        mode = config.mode.as_str(),
        semantics = config.policy.semantics.as_str(),
        listen = %config.listen,
        probes_attached = probes.attached(),
        probes_missing = probes.missing(),
        cgroup_ids = probes.cgroup_source.as_str(),
        memory_available_bytes = available.map(|available| available.0),
        fastest_rate_bytes_per_second = fastest_rate,
        "started"
    );
    tracing::info!(event = "thresholds", evicts, "the workloads that each threshold may evict");
    for probe in probes.probes.iter().filter(|probe| !probe.is_attached()) {
        tracing::debug!(event = "probe_missing", probe = probe.name, state = ?probe.state, "the probe is not attached");
    }
}

/// The reason of the event and of the log line, and the message.
pub(super) fn no_execute(news: &News) -> (&'static str, &str) {
    match news {
        News::Announced(words) => ("NoExecuteTaintAnnounced", words),
        News::Set(words) => ("NoExecuteTaintSet", words),
        News::Refused(words) => ("NoExecuteTaintRefused", words),
    }
}

fn garbage_collected(collected: &Collected) {
    let names: Vec<&str> = collected.steps.iter().take(SHOWN).map(|step| step.name.as_str()).collect();
    let done = "garbage was collected";
    let (mode, message, why) = match &collected.end {
        CollectEnd::Listed => (Mode::Observe, "observe mode: this garbage would be collected", None),
        CollectEnd::Interrupted(why) => (Mode::Enforce, done, Some(why.as_str())),
        CollectEnd::Enough | CollectEnd::Exhausted => (Mode::Enforce, done, None),
    };
    tracing::info!(
        event = "garbage_collected",
        mode = mode.as_str(),
        outcome = collected.end.as_str(),
        why,
        containers = collected.counts.containers,
        sandboxes = collected.counts.sandboxes,
        images = collected.counts.images,
        frees_bytes = collected.frees.0,
        first = names.join(", "),
        took_ms = collected.took.as_secs_f64() * 1e3,
        "{message}"
    );
    for (step, reason) in collected.refused.iter().take(SHOWN) {
        tracing::warn!(
            event = "garbage_refused",
            kind = step.target.kind(),
            name = step.name,
            reason,
            "the container runtime refused to remove garbage"
        );
    }
}

/// The log line of an incident; `suppressed` incidents before it had none.
pub(super) fn incident(incident: &crate::incidents::Incident, suppressed: u64) {
    tracing::info!(
        event = "incident",
        id = incident.id,
        kind = incident.kind.as_str(),
        at_mono_ns = Monotonic(incident.monotonic_ns).0,
        summary = incident.summary,
        suppressed,
        "recorded: node-pressure-monitor incidents {}",
        incident.id
    );
}
