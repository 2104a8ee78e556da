//! One typed value per reported fact. Log line, metric, Kubernetes event and incident derive from it.

use std::path::Path;
use std::time::Duration;

use super::eviction_report::EvictionRecord;
use super::oom_kill_report::OomKillRecord;
use crate::actions::oom_score::{Audit, Drift};
use crate::actions::{Ended, ReclaimAttempt, Restored as ScoresRestored};
use crate::cluster::Verdict;
use crate::config::{Mode, Threshold};
use crate::eviction::decider::{ArmedBy, Stays, SwapLimit, Unarmed};
use crate::eviction::evicted::Cause;
use crate::eviction::no_execute::News;
use crate::eviction::proactive_reclaim::{Futile, ReclaimOutcome};
use crate::eviction::{MetThreshold, NodeCondition, SignalValue};
use crate::incidents::model::OomKill;
use crate::kernel::Event;
use crate::node::other_killers::{Meaning, OtherKiller};
use crate::runtime::{Collected, Stopped};
use crate::units::{Amount, Bytes, Monotonic, Resource, Signal};

use crate::sensors::figure_report::DaemonsReport;
pub use crate::sensors::workload_scan::NO_WORKLOAD;

/// The candidates of a threshold that evicts none.
#[derive(Debug, Clone, Copy)]
pub struct CandidatesLeft<'r> {
    pub number: usize,
    /// The candidate whose end would give back most, with the reason why it stays.
    pub largest: Option<(&'r str, Stays)>,
    pub is_pods_only: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Record<'r> {
    // The agent waits for its first event.
    Ready,
    Stopped,
    ThresholdMet { met: &'r MetThreshold, wakeup: &'static str, sampled: Monotonic },
    ThresholdRecovered { threshold: &'r Threshold, value: SignalValue, sampled: Monotonic },
    // A threshold evicts nothing yet.
    ThresholdUnarmed { threshold: &'r Threshold, value: Option<SignalValue>, why: Unarmed },
    ThresholdArmed { threshold: &'r Threshold, by: ArmedBy },
    // System daemons have begun to exceed their reservation.
    DaemonsAboveReservation(&'r DaemonsReport),
    // The agent is about to get back a resource that is short, in enforce mode.
    Reclaiming(Resource),
    // An eviction has started; in observe mode, it would have.
    Eviction(&'r EvictionRecord<'r>),
    // `available` is the value of the threshold's signal right after.
    EvictionEnded { ended: &'r Ended, at: Monotonic, available: Option<SignalValue> },
    // The candidate could not be evicted.
    EvictionNotStarted { cause: Cause, workload: &'r str, reason: &'r str },
    // A soft eviction waits for the API server.
    EvictionPutOff { signal: Signal, workload: &'r str, reason: &'r str },
    // A soft eviction waits for the end of the node's maintenance.
    EvictionDeferred { met: &'r MetThreshold, reason: &'r str },
    // The first eviction waits for the API server's list of pods.
    PodsAwaited { met: &'r MetThreshold },
    // The space on a disk that evicted and ended pods still occupy suffices.
    EvictionWaits { met: &'r MetThreshold, pods: usize, expected: Amount },
    // The disk is below the kubelet's own threshold, and the kubelet evicts.
    LeftToKubelet { met: &'r MetThreshold },
    // Observe mode was switched on within the grace period.
    EvictionCalledOff { workload: &'r str },
    // The agent stops within the grace period.
    EvictionLeft { workload: &'r str },
    // The agent drops the ledger's entry, and does not report the eviction to the API server.
    EvictionAbandoned { pod: &'r str, pod_uid: &'r str, reason: &'r str },
    // The API server's answer to an eviction; a refusal is reported only if no eviction waits for the answer.
    EvictionSettled { pod_uid: &'r str, verdict: &'r Verdict },
    // The agent cannot report an eviction to the API server.
    EvictionUnreported { pod: &'r str, pod_uid: &'r str, reason: &'r str },
    // The containers of an evicted pod stay on the disk.
    EvictionRestLeft { pod_uid: &'r str, reason: &'r str },
    // The API server does not list a pod that is evicted.
    PodUnknown { pod_uid: &'r str },
    // The next eviction waits for the memory of workloads that were killed; `of` has most of it.
    MemoryExpected { met: &'r MetThreshold, left: Bytes, of: Option<&'r str> },
    // The next eviction waits while the kernel swaps out as fast as memory falls.
    SwapKeepsUp { met: &'r MetThreshold, per_second: Bytes, usable: Bytes },
    // The eviction does not wait for swap, or not any longer.
    SwapFallsShort { met: &'r MetThreshold, waited: Duration, why: SwapLimit },
    // Evictions have bought too little, and what leaks, the workload if that is known, cannot be evicted.
    ProtectedLeak { met: &'r MetThreshold, workload: Option<&'r str>, fall: f64 },
    // The threshold is met only because of refaults, and no candidate causes them.
    RefaultsOnly { met: &'r MetThreshold, correction: Bytes, by: Option<&'r str> },
    CandidatesExhausted { met: &'r MetThreshold, left: CandidatesLeft<'r> },
    // `evictions.maxPerMinute` is reached.
    BudgetSpent { left: Duration },
    Reclaim(ReclaimRecord<'r>),
    // `condition` is `None` for a condition that follows from PSI.
    ConditionChanged { name: &'r str, status: bool, condition: Option<NodeCondition>, suppressed: u64 },
    NoExecuteTaint { condition: NodeCondition, news: &'r News },
    // `defers`: soft evictions wait for its end.
    Maintenance { reason: Option<&'r str>, defers: bool },
    // The node's object is too old to defer evictions any longer.
    MaintenanceOutdated { age: Duration },
    KernelEvent { event: &'r Event, workload: &'r str },
    OomKill(&'r OomKillRecord<'r>),
    // OOM kills known by a workload's counter alone.
    OomKillsCounted { workload: &'r str, kills: u64 },
    // All victims of one invocation of the OOM killer.
    OomIncident(&'r OomKill),
    Degraded { capability: &'r str, reason: &'r str, effect: &'r str, known: KnownPods },
    Restored { capability: &'r str },
    SourceChanged { signal: &'static str, from: &'static str, to: &'static str, reason: &'r str },
    OomScoreDrift { drift: &'r Drift, mode: Mode },
    // All drift of a host without pods, where no class was chosen for the workloads.
    OomScoreDriftWithoutPods { workloads: usize, processes: usize, mode: Mode },
    // Another process changed the agent's own `oom_score_adj`; the agent set it again.
    OwnOomScore { found: i16 },
    OomScoresAudited(&'r Audit),
    // The values from before the agent.
    OomScoresRestored(&'r ScoresRestored),
    GarbageCollected(&'r Collected),
    PodStopped(&'r Stopped),
    RuntimeFound { runtime: &'r str, socket: &'r Path },
    RuntimeAbsent,
    // Another program of the node kills workloads, too; reported at the start.
    OtherKiller { other: &'r OtherKiller, meaning: &'r Meaning },
    ApiServerUp { pods: usize },
    // The pods of this node are known for the first time, or were read from a file.
    PodsRead { pods: usize, age: Option<Duration> },
    EventDropped { reason: &'r str },
    // `fields` are those that need a restart, if the warning is about them.
    ConfigurationWarning { file: Option<&'r str>, fields: Option<&'r str>, warning: &'r str },
    ConfigurationApplied { file: &'r str, changed: &'r str, mode: Mode, pool: Option<&'r str> },
    ConfigurationRefused { file: &'r str, reason: &'r str },
    Started(&'r Start<'r>),
}

impl Record<'_> {
    /// Whether a request that follows the record's log line is to see gauges of after it.
    pub const fn changes_gauges(&self) -> bool {
        matches!(
            self,
            Self::ThresholdMet { .. }
                | Self::ThresholdRecovered { .. }
                | Self::ThresholdUnarmed { .. }
                | Self::ThresholdArmed { .. }
                | Self::ConditionChanged { .. }
                | Self::SourceChanged { .. }
                | Self::Maintenance { .. }
                | Self::ApiServerUp { .. }
                | Self::PodsRead { .. }
                | Self::Degraded { .. }
                | Self::Restored { .. }
                | Self::RuntimeFound { .. }
                | Self::ConfigurationApplied { .. }
                | Self::ConfigurationRefused { .. }
        )
    }
}

#[derive(Debug, Clone, Copy)]
pub enum ReclaimRecord<'r> {
    Ended(&'r ReclaimAttempt),
    // No workload can release the missing amount of memory.
    Futile { met: &'r MetThreshold, futile: Futile },
    // The write was refused.
    Refused { workload: &'r str, reason: &'r str },
    // Observe mode.
    DryRun { met: &'r MetThreshold, workload: &'r str, requested: Bytes },
}

impl ReclaimRecord<'_> {
    pub const fn outcome(&self) -> ReclaimOutcome {
        match self {
            Self::Ended(attempt) => attempt.outcome,
            Self::Refused { .. } => ReclaimOutcome::Refused,
            Self::Futile { .. } | Self::DryRun { .. } => ReclaimOutcome::Skipped,
        }
    }
}

/// Pods that stay known while their source is unavailable: `pods` from the API server, `of_file` from a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownPods {
    pub pods: Option<usize>,
    pub age: Option<Duration>,
    pub of_file: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct Start<'r> {
    pub config: &'r crate::config::MonitorConfig,
    pub probes: &'r crate::kernel::ProbeReport,
    /// What each threshold may evict, in words.
    pub evicts: &'r str,
    pub available: Option<Bytes>,
    /// Bytes per second at which memory may be taken.
    pub fastest_rate: f64,
}

/// The figures of a threshold that is met, split by whether its signal counts bytes.
#[derive(Debug, Clone, Copy)]
pub struct MetFigures {
    pub available_bytes: Option<i64>,
    pub threshold_bytes: Option<i64>,
    pub available: Option<i64>,
    pub threshold_value: Option<i64>,
}

impl MetFigures {
    pub fn of(met: &MetThreshold) -> Self {
        let (available, threshold) = (Some(met.value.available), Some(met.quantity.units()));
        if met.threshold.signal.resource().is_bytes() {
            Self { available_bytes: available, threshold_bytes: threshold, available: None, threshold_value: None }
        } else {
            Self { available_bytes: None, threshold_bytes: None, available, threshold_value: threshold }
        }
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
