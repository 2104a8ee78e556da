//! Counters of the agent's actions and of OOM kills, incremented at each occurrence.

use std::time::Duration;

use prometheus::{Counter, IntCounter, IntCounterVec};

use super::register::{Registry, follow};
use crate::eviction::proactive_reclaim::ReclaimOutcome;
use crate::units::Bytes;

/// How an eviction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EvictionOutcome {
    /// The workload is gone.
    Killed,
    /// The workload is still there.
    Failed,
    /// Observe mode: the eviction was a dry run.
    Observed,
    /// No candidate was left.
    NoCandidate,
    /// The API server, or a disruption budget, did not allow it.
    Refused,
    /// The API server does not answer, and the eviction needs its consent.
    PutOff,
}

impl EvictionOutcome {
    /// All outcomes.
    pub const ALL: [Self; 6] =
        [Self::Killed, Self::Failed, Self::Observed, Self::NoCandidate, Self::Refused, Self::PutOff];

    /// Returns the value of the label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Failed => "failed",
            Self::Observed => "observed",
            Self::NoCandidate => "no_candidate",
            Self::Refused => "refused",
            Self::PutOff => "put_off",
        }
    }
}

/// Counters of proactive reclaim, `oom_score_adj` repairs, unattributed OOM kills and lost log records.
#[derive(Debug)]
pub struct ActionCounters {
    reclaims: IntCounterVec,
    reclaim_freed: IntCounter,
    reclaim_seconds: Counter,
    drifted: IntCounter,
    repaired: IntCounter,
    unattributed: IntCounter,
    log_records_lost: IntCounter,
}

impl ActionCounters {
    /// Registers the counters.
    ///
    /// # Errors
    /// Returns an error if a name is already registered.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            reclaims: registry.counters_of(
                "proactive_reclaims_total",
                "Workloads asked to give memory back before one is evicted, by outcome (sufficed, insufficient, timed_out, refused; skipped: it could not help, or observe mode).",
                "outcome",
                ReclaimOutcome::ALL.map(ReclaimOutcome::as_str),
            )?,
            reclaim_freed: registry.counter(
                "proactive_reclaim_freed_bytes_total",
                "Bytes by which the usage of workloads fell while they were asked to give memory back.",
            )?,
            reclaim_seconds: registry.counter(
                "proactive_reclaim_seconds_total",
                "Seconds that evictions waited for memory to be given back.",
            )?,
            drifted: registry.counter(
                "oom_score_adj_drifted_total",
                "Processes found with another oom_score_adj than their workload's QoS class asks for, each once for each wrong value.",
            )?,
            repaired: registry
                .counter("oom_score_adj_repaired_total", "Times that a process's oom_score_adj was set right.")?,
            unattributed: registry.counter(
                "oom_kills_unattributed_total",
                "OOM kills that the kernel counted and of which the agent knows no workload.",
            )?,
            log_records_lost: registry.counter(
                "kernel_log_records_lost_total",
                "Records of the kernel's log that were overwritten before the agent read them; it reads them only where eBPF does not tell all of an OOM kill.",
            )?,
        })
    }

    pub(super) fn reclaimed(&self, outcome: ReclaimOutcome, freed: Bytes, took: Duration) {
        self.reclaims.with_label_values(&[outcome.as_str()]).inc();
        self.reclaim_freed.inc_by(freed.0);
        self.reclaim_seconds.inc_by(took.as_secs_f64());
    }

    pub(super) fn scores(&self, drifted: u64, repaired: u64) {
        self.drifted.inc_by(drifted);
        self.repaired.inc_by(repaired);
    }

    /// Sets two totals.
    pub(super) fn unaccounted(&self, unattributed: u64, log_records_lost: u64) {
        follow(&self.unattributed, unattributed);
        follow(&self.log_records_lost, log_records_lost);
    }
}
