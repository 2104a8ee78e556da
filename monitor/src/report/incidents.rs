//! Incidents as metrics.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use super::series::options;
use crate::incidents::Kind;
use crate::incidents::writer::JournalReport;

/// What there is to say about incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IncidentReport {
    /// Invocations of the OOM killer.
    pub oom_kills: u64,
    /// Evictions, those that observe mode only tells of included.
    pub evictions: u64,
    /// Where they are kept.
    pub journal: JournalReport,
}

/// The metrics.
#[derive(Debug)]
pub(super) struct IncidentMetrics {
    incidents: IntCounterVec,
    journal_bytes: IntGauge,
    write_failures: IntCounter,
    dropped: IntCounter,
    truncations: IntCounter,
}

impl IncidentMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let total = |name, help| -> prometheus::Result<IntCounter> {
            let counter = IntCounter::with_opts(options(name, help))?;
            registry.register(Box::new(counter.clone()))?;
            Ok(counter)
        };
        let help =
            "Incidents recorded, by kind: OomKill (one for each invocation of the kernel's OOM killer), Eviction.";
        let incidents = IntCounterVec::new(options("incidents_total", help), &["kind"])?;
        registry.register(Box::new(incidents.clone()))?;
        for kind in Kind::ALL {
            // A counter that appears with its first increment hides that increment from `increase()`.
            incidents.with_label_values(&[kind.as_str()]);
        }
        let journal_bytes =
            IntGauge::with_opts(options("incident_journal_bytes", "Size of the journal of incidents, in bytes."))?;
        registry.register(Box::new(journal_bytes.clone()))?;
        Ok(Self {
            incidents,
            journal_bytes,
            write_failures: total(
                "incident_write_failures_total",
                "Times that incidents could not be written to the journal; they are kept in memory and tried again.",
            )?,
            dropped: total(
                "incidents_dropped_total",
                "Incidents given up because they could not be written for too long, or came too fast.",
            )?,
            truncations: total(
                "incident_journal_truncations_total",
                "Times that the journal was found ending in the middle of a record, or damaged.",
            )?,
        })
    }

    pub(super) fn observe(&self, report: &IncidentReport) {
        let IncidentReport { oom_kills, evictions, journal } = *report;
        let JournalReport { bytes, write_failures, dropped, truncations } = journal;
        let rest = |counter: &IntCounter, total: u64| counter.inc_by(total.saturating_sub(counter.get()));
        rest(&self.incidents.with_label_values(&[Kind::OomKill.as_str()]), oom_kills);
        rest(&self.incidents.with_label_values(&[Kind::Eviction.as_str()]), evictions);
        self.journal_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        rest(&self.write_failures, write_failures);
        rest(&self.dropped, dropped);
        rest(&self.truncations, truncations);
    }
}
