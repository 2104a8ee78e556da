//! Prometheus metrics, in base units, with the unit in each name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::proto::MetricFamily;
use prometheus::{Counter, GaugeVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, TextEncoder};

use super::action_counters::{ActionCounters, EvictionOutcome};
use super::cluster_metrics::ClusterMetrics;
use super::configuration_state::{ConfigMetrics, ConfigState, ReloadOutcome};
use super::disk_usage_metrics::DiskUsageMetrics;
use super::figures_metrics::FiguresMetrics;
use super::incident_metrics::IncidentMetrics;
use super::probe_metrics::ProbeSeries;
use super::register::{Family, Registry, follow, increase};
use super::runtime_metrics::RuntimeMetrics;
use super::series::{SeriesLimits, WorkloadSeries};
use super::{EventReport, NodeReport};
use crate::config::Semantics;
use crate::eviction::evicted::Cause;
use crate::eviction::proactive_reclaim::ReclaimOutcome;
use crate::kernel::OomConstraint;
use crate::runtime::{Collected, View};
use crate::units::{Bytes, Signal};

/// OOM kill with unknown constraint.
const UNKNOWN_CONSTRAINT: &str = "unknown";

/// All metrics of the agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    // Gauges without labels are vectors too: an unreadable value must be absent, not zero.
    available: GaugeVec,
    capacity: GaugeVec,
    working_set: GaugeVec,
    threshold_bytes: GaugeVec,
    threshold_met: IntGaugeVec,
    condition: IntGaugeVec,
    workloads: IntGaugeVec,
    evictions: IntCounterVec,
    oom_score_adj_drift: IntGauge,
    generated: IntCounterVec,
    delivered: IntCounterVec,
    lost: IntCounterVec,
    malformed: IntCounterVec,
    suppressed: IntCounterVec,
    probe_attached: IntGaugeVec,
    signal_source: IntGaugeVec,
    wakeups: IntCounterVec,
    untracked: IntCounterVec,
    kswapd_wakes: IntCounter,
    kswapd_seconds: Counter,
    kswapd_reclaimed: IntCounter,
    kswapd_scanned: IntCounter,
    oom_kills_by_constraint: IntCounterVec,
    log_lines_dropped: IntCounter,
    incidents: IncidentMetrics,
    configuration: ConfigMetrics,
    actions: ActionCounters,
    figures: FiguresMetrics,
    disk_usage: DiskUsageMetrics,
    runtime: RuntimeMetrics,
    cluster: ClusterMetrics,
    series: Mutex<Series>,
    /// OOM kills by workload that no eBPF program counted, since the last publication. The loop does not wait for an observation.
    uncounted_kills: Mutex<HashMap<String, u64>>,
}

/// Values of the previous observation.
#[derive(Debug)]
struct Series {
    probes: ProbeSeries,
    workloads: WorkloadSeries,
    last_events: HashMap<&'static str, EventReport>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds a lock, so the counters are consistent even if poisoned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metrics {
    /// Returns every metric, with a value or without, sorted by name.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        self.registry.families()
    }

    /// Creates and registers all metrics.
    ///
    /// # Errors
    /// Returns an error if a name is invalid or used twice. A test rules that out.
    pub fn new(version: &str, limits: SeriesLimits) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let build_info: IntGaugeVec =
            registry.gauges("build_info", "Always 1; the label says which version runs.", &["version"])?;
        build_info.with_label_values(&[version]).set(1);
        let constraints = OomConstraint::ALL.map(OomConstraint::as_str).into_iter().chain([UNKNOWN_CONSTRAINT]);
        Ok(Self {
            available: registry.gauges(
                "memory_available_bytes",
                "Memory available on the node, in bytes. corrected: what the kernel could hand out, from MemAvailable; kubelet: capacity minus working set.",
                &["semantics"],
            )?,
            capacity: registry.gauges(
                "memory_capacity_bytes",
                "Memory that percentages of thresholds are relative to, in bytes.",
                &[],
            )?,
            working_set: registry.gauges(
                "memory_working_set_bytes",
                "Memory usage of the node minus inactive file memory, in bytes.",
                &[],
            )?,
            threshold_bytes: registry.gauges(
                "threshold_bytes",
                "Value of an eviction threshold at the signal's present capacity, in bytes (inodes or process ids for signals that count those).",
                &["signal", "kind"],
            )?,
            threshold_met: registry.gauges(
                "threshold_met",
                "Whether the signal is below the eviction threshold (1) or not (0).",
                &["signal", "kind"],
            )?,
            condition: registry.gauges(
                "condition",
                "Whether the node condition is true (1) or not (0), transition period included.",
                &["condition"],
            )?,
            workloads: registry.gauges("workloads", "Workloads on the node, by QoS class.", &["qos_class"])?,
            evictions: registry.counters(
                "evictions_total",
                "Evictions by signal and outcome (killed, failed, observed: what would have been evicted in enforce mode, no_candidate: nothing was left to evict, refused: the API server or a disruption budget did not allow it, put_off: the API server did not answer).",
                &["signal", "outcome"],
            )?,
            oom_score_adj_drift: registry.gauge(
                "oom_score_adj_drift",
                "Processes whose oom_score_adj is not the one that their workload's QoS class asks for.",
            )?,
            generated: registry.counters(
                "events_generated_total",
                "Events that the kernel side tried to stream; delivered plus lost plus malformed.",
                &["event"],
            )?,
            delivered: registry.counters(
                "events_delivered_total",
                "Events that reached the agent and were understood.",
                &["event"],
            )?,
            lost: registry.counters("events_lost_total", "Events that found the ring buffer full.", &["event"])?,
            malformed: registry.counters(
                "events_malformed_total",
                "Events that reached the agent and were not understood.",
                &["event"],
            )?,
            suppressed: registry.counters(
                "events_suppressed_total",
                "Wake-ups that the kernel side held back because the last one was too recent.",
                &["event"],
            )?,
            probe_attached: registry.gauges(
                "probe_attached",
                "Whether the kernel probe is attached (1) or not (0).",
                &["probe"],
            )?,
            signal_source: registry.gauges(
                "signal_source",
                "Always 1; the label says what tells the agent about the signal: ebpf, psi, kmsg, polling or none.",
                &["signal", "source"],
            )?,
            wakeups: registry.counters("wakeups_total", "Times that the agent woke up, by cause.", &["cause"])?,
            untracked: registry.counters(
                "untracked_total",
                "What the kernel side could not count because a map was full, by what it was.",
                &["what"],
            )?,
            kswapd_wakes: registry
                .counter("kswapd_wakes_total", "Times that kswapd was woken, all NUMA nodes together.")?,
            kswapd_seconds: registry.counter(
                "kswapd_active_seconds_total",
                "Time that kswapd was active, in seconds; a spell counts when it is over.",
            )?,
            kswapd_reclaimed: registry.counter(
                "kswapd_pages_reclaimed_total",
                "Pages of the inactive lists that kswapd freed, all NUMA nodes together.",
            )?,
            kswapd_scanned: registry.counter(
                "kswapd_pages_scanned_total",
                "Pages of the inactive lists that kswapd looked at, all NUMA nodes together; stays 0 where the kernel does not tell.",
            )?,
            oom_kills_by_constraint: registry.counters_of(
                "oom_kills_by_constraint_total",
                "Processes that the kernel's OOM killer chose, by what kept the allocation from being served (none: the node had run out, memcg: a cgroup's limit).",
                "constraint",
                constraints,
            )?,
            log_lines_dropped: registry.counter(
                "log_lines_dropped_total",
                "Log lines dropped because whoever reads them is too slow.",
            )?,
            incidents: IncidentMetrics::new(&registry)?,
            configuration: ConfigMetrics::new(&registry)?,
            actions: ActionCounters::new(&registry)?,
            figures: FiguresMetrics::new(&registry)?,
            disk_usage: DiskUsageMetrics::new(&registry)?,
            runtime: RuntimeMetrics::new(&registry)?,
            cluster: ClusterMetrics::new(&registry)?,
            series: Mutex::new(Series {
                probes: ProbeSeries::new(&registry)?,
                workloads: WorkloadSeries::new(&registry, limits)?,
                last_events: HashMap::new(),
            }),
            uncounted_kills: Mutex::default(),
            registry,
        })
    }

    /// Updates all metrics from an observation of the node.
    pub fn observe(&self, report: &NodeReport, now: Instant) {
        let mut series = locked(&self.series);
        self.observe_memory(report);
        self.observe_states(report);
        self.observe_events(&mut series.last_events, &report.events);
        self.observe_totals(report);
        self.incidents.observe(&report.incidents);
        series.probes.observe(&report.probe_statistics);
        self.figures.observe(&report.figures);
        self.disk_usage.observe(&report.figures.disk_usage);
        series.workloads.observe(&report.counters, now);
        for (workload, kills) in std::mem::take(&mut *locked(&self.uncounted_kills)) {
            series.workloads.oom_kills(&workload, kills, now);
        }
        self.cluster.observe(report.cluster.as_ref());
        self.cluster.pods(&report.pods);
    }

    /// Counts one wake-up of the loop.
    pub fn wakeup(&self, cause: &str) {
        self.wakeups.with_label_values(&[cause]).inc();
    }

    /// Counts one eviction.
    pub fn eviction(&self, cause: impl Into<Cause>, outcome: EvictionOutcome) {
        self.evictions.with_label_values(&[cause.into().as_str(), outcome.as_str()]).inc();
    }

    /// Counts OOM kills.
    pub fn oom_kills(&self, constraint: Option<OomConstraint>, kills: u64) {
        let constraint = constraint.map_or(UNKNOWN_CONSTRAINT, OomConstraint::as_str);
        self.oom_kills_by_constraint.with_label_values(&[constraint]).inc_by(kills);
    }

    /// Counts a proactive reclaim, in observe mode a simulated one.
    pub fn reclaimed(&self, outcome: ReclaimOutcome, freed: Bytes, took: Duration) {
        self.actions.reclaimed(outcome, freed, took);
    }

    /// Counts OOM kills that no eBPF program counted.
    pub fn oom_kills_of(&self, workload: &str, kills: u64) {
        *locked(&self.uncounted_kills).entry(workload.to_owned()).or_default() += kills;
    }

    /// Counts a soft eviction that waits for the end of maintenance.
    pub fn deferred(&self, signal: Signal) {
        self.cluster.deferred(signal);
    }

    /// Updates the metrics of the container runtime.
    pub fn runtime(&self, view: &View) {
        self.runtime.observe(view);
    }

    /// Counts a garbage collection.
    pub fn collected(&self, collected: &Collected) {
        self.runtime.collected(collected);
    }

    /// Updates the metrics of the configuration. `outcome` is that of the reload, if there was one.
    pub fn configuration(&self, state: &ConfigState, outcome: Option<ReloadOutcome>) {
        self.configuration.observe(state, outcome);
    }

    /// Counts processes with a newly found deviation of `oom_score_adj`, and repaired ones.
    pub fn scores(&self, drifted: u64, repaired: u64) {
        self.actions.scores(drifted, repaired);
    }

    /// Sets two totals: OOM kills without a workload, and lost records of the kernel's log.
    pub fn unaccounted(&self, unattributed: u64, log_records_lost: u64) {
        self.actions.unaccounted(unattributed, log_records_lost);
    }

    /// Returns the current values. Render them afterwards, without a lock on the metrics: the loop may wait for it.
    #[must_use]
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }

    fn observe_memory(&self, report: &NodeReport) {
        let Some(memory) = &report.memory else {
            for gauge in [&self.available, &self.capacity, &self.working_set] {
                gauge.reset();
            }
            return;
        };
        for semantics in [Semantics::Corrected, Semantics::Kubelet] {
            self.available.with_label_values(&[semantics.as_str()]).set(memory.available(semantics).as_f64());
        }
        let none: &[&str] = &[];
        self.capacity.with_label_values(none).set(memory.capacity.as_f64());
        self.working_set.with_label_values(none).set(memory.working_set.as_f64());
    }

    fn observe_states(&self, report: &NodeReport) {
        // Remove thresholds and conditions that a new configuration has dropped.
        self.threshold_bytes.reset();
        self.threshold_met.reset();
        self.condition.reset();
        for threshold in &report.thresholds {
            let labels = [threshold.threshold.signal.as_str(), threshold.threshold.kind()];
            if let Some(bytes) = threshold.bytes {
                self.threshold_bytes.with_label_values(&labels).set(bytes.as_f64());
            }
            self.threshold_met.with_label_values(&labels).set(threshold.met.into());
            // `increase()` misses the first increment of a counter that appears with it.
            for outcome in EvictionOutcome::ALL {
                let labels = [threshold.threshold.signal.as_str(), outcome.as_str()];
                self.evictions.with_label_values(&labels);
            }
        }
        for condition in &report.conditions {
            self.condition.with_label_values(&[&condition.condition]).set(condition.status.into());
        }
        for class in &report.classes {
            self.workloads.with_label_values(&[class.qos_class]).set(i64::try_from(class.count).unwrap_or(i64::MAX));
        }
        for probe in &report.probes {
            self.probe_attached.with_label_values(&[&probe.name]).set(probe.missing.is_none().into());
        }
        // A signal whose source changed must not keep the series of the old source.
        self.signal_source.reset();
        for source in &report.sources {
            self.signal_source.with_label_values(&[source.signal, source.source]).set(1);
        }
        self.oom_score_adj_drift.set(i64::try_from(report.oom_score_adj_drift).unwrap_or(i64::MAX));
    }

    fn observe_totals(&self, report: &NodeReport) {
        for &(what, total) in &report.untracked {
            follow(&self.untracked.with_label_values(&[what]), total);
        }
        follow(&self.kswapd_wakes, report.kswapd_wakes);
        follow(&self.kswapd_reclaimed, report.kswapd_reclaimed_pages);
        follow(&self.kswapd_scanned, report.kswapd_scanned_pages);
        follow(&self.log_lines_dropped, report.log_lines_dropped);
        follow(&self.kswapd_seconds, Duration::from_nanos(report.kswapd_nanos).as_secs_f64());
    }

    fn observe_events(&self, last_events: &mut HashMap<&'static str, EventReport>, events: &[EventReport]) {
        for event in events {
            let last = last_events.entry(event.event).or_default();
            let labels = [event.event];
            let add = |counter: &IntCounterVec, last: &mut u64, current| {
                counter.with_label_values(&labels).inc_by(increase(last, current));
            };
            add(&self.generated, &mut last.generated, event.generated);
            add(&self.delivered, &mut last.delivered, event.delivered);
            add(&self.lost, &mut last.lost, event.lost);
            add(&self.malformed, &mut last.malformed, event.malformed);
            add(&self.suppressed, &mut last.suppressed, event.suppressed);
        }
    }
}

/// Renders metrics in the text format 0.0.4.
///
/// # Errors
/// Returns an error if a metric family is inconsistent.
pub fn render(gathered: &[MetricFamily]) -> prometheus::Result<Vec<u8>> {
    let mut text = String::with_capacity(16 << 10);
    TextEncoder::new().encode_utf8(gathered, &mut text)?;
    // The format requires `+Inf`, but the encoder writes Rust's `inf`. Labels contain no line breaks.
    Ok(text.replace(" inf\n", " +Inf\n").into_bytes())
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
