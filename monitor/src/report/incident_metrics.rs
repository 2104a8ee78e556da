//! Metrics of incidents.

use prometheus::{IntCounter, IntCounterVec, IntGauge};

use super::register::{Registry, follow};
use crate::incidents::Kind;
use crate::incidents::writer::JournalReport;

/// Counts of incidents, and the state of their journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IncidentReport {
    /// Invocations of the OOM killer.
    pub oom_kills: u64,
    /// Evictions, including the dry runs of observe mode.
    pub evictions: u64,
    /// State of the journal.
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
        Ok(Self {
            incidents: registry.counters_of(
                "incidents_total",
                "Incidents recorded, by kind: OomKill (one for each invocation of the kernel's OOM killer), Eviction.",
                "kind",
                Kind::ALL.map(Kind::as_str),
            )?,
            journal_bytes: registry.gauge("incident_journal_bytes", "Size of the journal of incidents, in bytes.")?,
            write_failures: registry.counter(
                "incident_write_failures_total",
                "Times that incidents could not be written to the journal; they are kept in memory and tried again.",
            )?,
            dropped: registry.counter(
                "incidents_dropped_total",
                "Incidents given up because they could not be written for too long, or came too fast.",
            )?,
            truncations: registry.counter(
                "incident_journal_truncations_total",
                "Times that the journal was found ending in the middle of a record, or damaged.",
            )?,
        })
    }

    pub(super) fn observe(&self, report: &IncidentReport) {
        let IncidentReport { oom_kills, evictions, journal } = *report;
        let JournalReport { bytes, write_failures, dropped, truncations } = journal;
        follow(&self.incidents.with_label_values(&[Kind::OomKill.as_str()]), oom_kills);
        follow(&self.incidents.with_label_values(&[Kind::Eviction.as_str()]), evictions);
        self.journal_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        follow(&self.write_failures, write_failures);
        follow(&self.dropped, dropped);
        follow(&self.truncations, truncations);
    }
}
