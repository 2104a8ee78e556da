//! Counters of what the agent did, or found done, one by one as it happens.

use std::time::Duration;

use prometheus::{Counter, IntCounter, IntCounterVec, Registry};

use super::series::options;
use crate::config::Bytes;
use crate::eviction::gentle::ReclaimOutcome;

/// Memory asked for before an eviction, `oom_score_adj`, and OOM kills that nobody could be found for.
#[derive(Debug)]
pub struct Deeds {
    reclaims: IntCounterVec,
    reclaim_freed: IntCounter,
    reclaim_seconds: Counter,
    drifted: IntCounter,
    repaired: IntCounter,
    unattributed: IntCounter,
    log_records_lost: IntCounter,
}

impl Deeds {
    /// Registers the counters.
    ///
    /// # Errors
    /// When one of the names is taken already.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let total = |name, help| -> prometheus::Result<IntCounter> {
            let counter = IntCounter::with_opts(options(name, help))?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let reclaims = IntCounterVec::new(
            options(
                "proactive_reclaims_total",
                "Workloads asked to give memory back before one is evicted, by outcome (sufficed, insufficient, timed_out, refused; skipped: it could not help, or observe mode).",
            ),
            &["outcome"],
        )?;
        registry.register(Box::new(reclaims.clone()))?;
        for outcome in ReclaimOutcome::ALL {
            // A counter that appears with its first increment hides that increment from `increase()`.
            reclaims.with_label_values(&[outcome.as_str()]);
        }
        let reclaim_seconds = Counter::with_opts(options(
            "proactive_reclaim_seconds_total",
            "Seconds that evictions waited for memory to be given back.",
        ))?;
        registry.register(Box::new(reclaim_seconds.clone()))?;
        Ok(Self {
            reclaims,
            reclaim_freed: total(
                "proactive_reclaim_freed_bytes_total",
                "Bytes by which the usage of workloads fell while they were asked to give memory back.",
            )?,
            reclaim_seconds,
            drifted: total(
                "oom_score_adj_drifted_total",
                "Processes found with another oom_score_adj than their workload's QoS class asks for, each once for each wrong value.",
            )?,
            repaired: total("oom_score_adj_repaired_total", "Times that a process's oom_score_adj was set right.")?,
            unattributed: total(
                "oom_kills_unattributed_total",
                "OOM kills that the kernel counted and of which the agent knows no workload.",
            )?,
            log_records_lost: total(
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

    /// Both are totals.
    pub(super) fn unaccounted(&self, unattributed: u64, log_records_lost: u64) {
        for (counter, total) in [(&self.unattributed, unattributed), (&self.log_records_lost, log_records_lost)] {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }
}
