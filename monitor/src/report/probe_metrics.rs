//! Runtime cost of the probes, as counted by the kernel.

use std::collections::HashMap;
use std::time::Duration;

use prometheus::{CounterVec, IntCounterVec};

use super::register::{Registry, increase};
use crate::kernel::ProbeStatistics;

/// The counters that have a `probe` label.
#[derive(Debug)]
pub struct ProbeSeries {
    hits: IntCounterVec,
    seconds: CounterVec,
    missed: IntCounterVec,
    last: HashMap<String, ProbeStatistics>,
}

impl ProbeSeries {
    /// Registers the counters.
    ///
    /// # Errors
    /// Returns an error if a name is already registered.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        Ok(Self {
            hits: registry.counters(
                "probe_hits_total",
                "Runs of a probe; counted only while kernel.bpf_stats_enabled is 1.",
                &["probe"],
            )?,
            seconds: registry.counters(
                "probe_seconds_total",
                "Seconds spent in a probe; counted only while kernel.bpf_stats_enabled is 1.",
                &["probe"],
            )?,
            missed: registry.counters(
                "probe_missed_total",
                "Runs of a probe that the kernel left out because a probe was running on that CPU already; what they would have counted is missing.",
                &["probe"],
            )?,
            last: HashMap::new(),
        })
    }

    /// Adds the increments since the last call.
    pub fn observe(&mut self, statistics: &[ProbeStatistics]) {
        for current in statistics {
            let name = current.name.as_str();
            if !self.last.contains_key(name) {
                self.last.insert(name.to_owned(), ProbeStatistics::default());
            }
            let Some(last) = self.last.get_mut(name) else { continue };
            self.hits.with_label_values(&[name]).inc_by(increase(&mut last.hits, current.hits));
            self.missed.with_label_values(&[name]).inc_by(increase(&mut last.missed, current.missed));
            let seconds = Duration::from_nanos(increase(&mut last.nanos, current.nanos)).as_secs_f64();
            self.seconds.with_label_values(&[name]).inc_by(seconds);
        }
    }
}
