//! Prometheus metrics, in base units, with the unit in each name.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use prometheus::proto::{Metric, MetricFamily};
use prometheus::{
    Counter, CounterVec, GaugeVec, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, TextEncoder,
};

use super::cluster_metrics::ClusterMetrics;
use super::configuration_state::ConfigMetrics;
use super::disk_usage_metrics::DiskUsageMetrics;
use super::event_names::{event_name, untracked_name};
use super::eviction_latency::EvictionMetrics;
use super::figures_metrics::FiguresMetrics;
use super::notifications::NotificationMetrics;
use super::process_metrics::ProcessMetrics;
use super::register::{Family, Registry, follow, increase, metrics, replace, set_known};
use super::runtime_metrics::RuntimeMetrics;
use super::series::{SeriesLimits, WorkloadSeries};
use super::signal_metrics::SignalMetrics;
use super::usage_metrics::UsageMetrics;
use super::{IncidentReport, NodeReport};
use crate::config::Semantics;
use crate::eviction::evicted::Cause;
use crate::eviction::proactive_reclaim::ReclaimOutcome;
use crate::incidents::Kind;
use crate::incidents::writer::JournalReport;
use crate::kernel::{Accounts, EventAccount, OomConstraint, ProbeStatistics};
use crate::units::{Bytes, Signal, lock, named_enum, signed};

/// OOM kill with unknown constraint.
const UNKNOWN_CONSTRAINT: &str = "unknown";

named_enum! {
    /// How an eviction ended, as the label says.
    pub enum EvictionOutcome {
        Killed = "killed",
        /// The workload is still there.
        Failed = "failed",
        /// A dry run of observe mode.
        Observed = "observed",
        NoCandidate = "no_candidate",
        /// The leaking workload cannot be evicted, and no other one is.
        ProtectedLeak = "protected_leak",
        /// The API server, or a disruption budget, did not allow it.
        Refused = "refused",
        /// The API server does not answer, and the eviction needs its consent.
        PutOff = "put_off",
    }
}

metrics! {
    /// The metrics of the node, the kernel side, and what the agent did.
    struct NodeMetrics {
        /// Always 1; the labels say which version runs, the last commit that changed its sources (unknown where it was not built by
        /// `cargo xtask`), and on which kernel.
        build_info: IntGaugeVec = "build_info"{version, commit, kernel},
        /// Memory available on the node, in bytes. corrected: what the kernel could hand out, from MemAvailable; kubelet: capacity minus
        /// working set.
        available: GaugeVec = "memory_available_bytes"{semantics},
        /// Memory that percentages of thresholds are relative to, in bytes.
        capacity: GaugeVec = "memory_capacity_bytes"{},
        /// Memory usage of the node minus inactive file memory, in bytes.
        working_set: GaugeVec = "memory_working_set_bytes"{},
        /// Whether the node condition is true (1) or not (0), transition period included.
        condition: IntGaugeVec = "condition"{condition},
        /// Workloads on the node, by QoS class.
        workloads: IntGaugeVec = "workloads"{qos_class},
        /// Evictions by signal and outcome (killed, failed, observed: what would have been evicted in enforce mode, no_candidate: nothing
        /// was left to evict, protected_leak: the workload that leaks is protected, refused: the API server or a disruption budget did not
        /// allow it, put_off: the API server did not answer).
        evictions: IntCounterVec = "evictions_total"{signal, outcome},
        /// Processes whose oom_score_adj is not the one that their workload's QoS class asks for.
        oom_score_adj_drift: IntGauge = "oom_score_adj_drift",
        /// 1 for each other program that kills workloads on the node, found at the start: kubelet, systemd-oomd, earlyoom, oomd, nohang or
        /// talos (the OOM controller of Talos).
        other_killer: IntGaugeVec = "other_killer"{killer},
        /// Events that the kernel side tried to stream; delivered plus lost plus malformed.
        generated: IntCounterVec = "events_generated_total"{event},
        /// Events that reached the agent and were understood.
        delivered: IntCounterVec = "events_delivered_total"{event},
        /// Events that found the ring buffer full.
        lost: IntCounterVec = "events_lost_total"{event},
        /// Events that reached the agent and were not understood.
        malformed: IntCounterVec = "events_malformed_total"{event},
        /// Events that the kernel side held back because too many came in a short time.
        suppressed: IntCounterVec = "events_suppressed_total"{event},
        /// Whether the kernel probe is attached (1) or not (0).
        probe_attached: IntGaugeVec = "probe_attached"{probe},
        /// 1 for each capability that is missing; absent once it is restored. `/readyz` and the log say why.
        capability_missing: IntGaugeVec = "capability_missing"{capability},
        /// Always 1; the label has the source of the signal: ebpf, psi, kmsg, polling or none.
        signal_source: IntGaugeVec = "signal_source"{signal, source},
        /// Times that the agent woke up, by cause.
        wakeups: IntCounterVec = "wakeups_total"{cause},
        /// By how many seconds a sample of memory was later than it was due: what else the agent had to do, and the wait for a CPU.
        lateness: HistogramVec = "sample_lateness_seconds"{},
        /// Objects that the kernel side could not count because a map was full, by their kind.
        untracked: IntCounterVec = "untracked_total"{what},
        /// Times that kswapd was woken, all NUMA nodes together.
        kswapd_wakes: IntCounter = "kswapd_wakes_total",
        /// Time that kswapd was active, in seconds; a spell counts when it is over.
        kswapd_seconds: Counter = "kswapd_active_seconds_total",
        /// Pages of the inactive lists that kswapd freed, all NUMA nodes together.
        kswapd_reclaimed: IntCounter = "kswapd_pages_reclaimed_total",
        /// Pages of the inactive lists that kswapd looked at, all NUMA nodes together; stays 0 where the kernel does not report it.
        kswapd_scanned: IntCounter = "kswapd_pages_scanned_total",
        /// Processes that the kernel's OOM killer chose, by what kept the allocation from being served (none: the node had run out, memcg:
        /// a cgroup's limit).
        oom_kills_by_constraint: IntCounterVec = "oom_kills_by_constraint_total"{
            constraint: OomConstraint::ALL.map(OomConstraint::as_str).into_iter().chain([UNKNOWN_CONSTRAINT])
        },
        /// Log lines dropped because their reader is too slow.
        log_lines_dropped: IntCounter = "log_lines_dropped_total",
        /// Combinations of label values that the request before left out, because their family has as many as it may have.
        left_out: IntGauge = "series_left_out",
        /// Soft evictions deferred because the node is in maintenance, counted at most once a minute.
        deferred: IntCounterVec = "soft_evictions_deferred_total"{signal},
        /// Workloads asked to give memory back before one is evicted, by outcome (sufficed, insufficient, timed_out, refused; skipped: it
        /// could not help, or observe mode).
        reclaims: IntCounterVec = "proactive_reclaims_total"{outcome: ReclaimOutcome::ALL.map(ReclaimOutcome::as_str)},
        /// Bytes by which the usage of workloads fell while they were asked to give memory back.
        reclaim_freed: IntCounter = "proactive_reclaim_freed_bytes_total",
        /// Seconds that evictions waited for memory to be given back.
        reclaim_seconds: Counter = "proactive_reclaim_seconds_total",
        /// Processes found with another oom_score_adj than their workload's QoS class asks for, each once for each wrong value.
        drifted: IntCounter = "oom_score_adj_drifted_total",
        /// Times that a process's oom_score_adj was set right.
        repaired: IntCounter = "oom_score_adj_repaired_total",
        /// OOM kills that the kernel counted and of which the agent knows no workload.
        unattributed: IntCounter = "oom_kills_unattributed_total",
        /// Records of the kernel's log that were overwritten before the agent read them; it reads them only where eBPF does not report
        /// all of an OOM kill.
        log_records_lost: IntCounter = "kernel_log_records_lost_total",
        /// Incidents recorded, by kind: OomKill (one for each invocation of the kernel's OOM killer), Eviction.
        incidents: IntCounterVec = "incidents_total"{kind: Kind::ALL.map(Kind::as_str)},
        /// Size of the journal of incidents, in bytes.
        journal_bytes: IntGauge = "incident_journal_bytes",
        /// Times that incidents could not be written to the journal; they are kept in memory and tried again.
        write_failures: IntCounter = "incident_write_failures_total",
        /// Incidents given up because they could not be written for too long, or came too fast.
        dropped: IntCounter = "incidents_dropped_total",
        /// Incidents that are only counted, without evidence, because their workload or its namespace has its share of the journal.
        counted: IntCounter = "incidents_only_counted_total",
        /// Times that the journal was found ending in the middle of a record, or damaged.
        truncations: IntCounter = "incident_journal_truncations_total",
        /// Runs of a probe; counted only while kernel.bpf_stats_enabled is 1.
        probe_hits: IntCounterVec = "probe_hits_total"{probe},
        /// Seconds spent in a probe; counted only while kernel.bpf_stats_enabled is 1.
        probe_seconds: CounterVec = "probe_seconds_total"{probe},
        /// Runs of a probe that the kernel left out because a probe was running on that CPU already; what they would have counted is
        /// missing.
        probe_missed: IntCounterVec = "probe_missed_total"{probe},
    }
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    process: ProcessMetrics,
    node: NodeMetrics,
    pub configuration: ConfigMetrics,
    signals: SignalMetrics,
    figures: FiguresMetrics,
    disk_usage: DiskUsageMetrics,
    notifications: NotificationMetrics,
    usage: UsageMetrics,
    pub(super) runtime: RuntimeMetrics,
    pub(super) evictions: EvictionMetrics,
    cluster: ClusterMetrics,
    series: Mutex<Series>,
    /// OOM kills by workload that no eBPF program counted, since the last publication. The loop does not wait for an observation.
    uncounted_kills: Mutex<HashMap<String, u64>>,
}

/// Values of the previous observation.
#[derive(Debug)]
struct Series {
    workloads: WorkloadSeries,
    last_events: HashMap<&'static str, [u64; 5]>,
    last_probes: HashMap<String, ProbeStatistics>,
}

impl Metrics {
    /// Creates and registers all metrics. Fails if a name is invalid or used twice; a test rules that out.
    pub fn new(version: &str, limits: SeriesLimits) -> prometheus::Result<Self> {
        let registry = Registry::new();
        let node = NodeMetrics::new(&registry)?;
        let commit = option_env!("MONITOR_COMMIT").unwrap_or("unknown");
        let kernel = rustix::system::uname();
        node.build_info.with_label_values(&[version, commit, &kernel.release().to_string_lossy()]).set(1);
        Ok(Self {
            node,
            process: ProcessMetrics::new(&registry)?,
            configuration: ConfigMetrics::new(&registry)?,
            signals: SignalMetrics::new(&registry)?,
            figures: FiguresMetrics::new(&registry)?,
            disk_usage: DiskUsageMetrics::new(&registry)?,
            notifications: NotificationMetrics::new(&registry)?,
            usage: UsageMetrics::new(&registry)?,
            evictions: EvictionMetrics::new(&registry)?,
            runtime: RuntimeMetrics::new(&registry)?,
            cluster: ClusterMetrics::new(&registry)?,
            series: Mutex::new(Series {
                workloads: WorkloadSeries::new(&registry, limits)?,
                last_events: HashMap::new(),
                last_probes: HashMap::new(),
            }),
            uncounted_kills: Mutex::default(),
            registry,
        })
    }

    /// Returns every metric, with a value or without, sorted by name.
    pub fn families(&self) -> Vec<Family> {
        self.registry.families()
    }

    /// Returns the current values. Render them afterwards, without a lock on the metrics: the loop may wait for it.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.process.refresh();
        self.node.left_out.set(signed(self.registry.left_out()));
        self.registry.gather()
    }

    /// Renders the current values in OpenMetrics' text format.
    pub fn render_openmetrics(&self) -> String {
        let exemplar = |family: &str, metric: &Metric, bucket| self.evictions.exemplar(family, metric, bucket);
        super::openmetrics::render(&self.gather(), exemplar)
    }

    pub fn observe(&self, report: &NodeReport, now: Instant) {
        let mut series = lock(&self.series);
        self.node.observe_states(report);
        self.node.observe_events(&mut series.last_events, &report.accounts);
        self.node.observe_probes(&mut series.last_probes, report.probe_statistics.as_deref().unwrap_or_default());
        self.node.observe_totals(report);
        self.node.observe_incidents(&report.incidents);
        self.notifications.observe(&report.notifications);
        self.signals.observe(report);
        for threshold in &report.thresholds {
            self.evictions.start_series(&threshold.threshold, report.cluster.is_some());
        }
        self.figures.observe(&report.figures);
        self.disk_usage.observe(&report.figures.disk_usage);
        self.usage.observe(report);
        series.workloads.observe(&report.counters, now);
        for (workload, kills) in std::mem::take(&mut *lock(&self.uncounted_kills)) {
            series.workloads.oom_kills(&workload, kills, now);
        }
        self.cluster.observe(report.cluster.as_ref());
        self.cluster.pods(&report.pods);
    }

    /// Notes another program that kills workloads.
    pub(super) fn other_killer(&self, killer: &str) {
        self.node.other_killer.with_label_values(&[killer]).set(1);
    }

    /// Counts one wake-up of the loop.
    pub fn wakeup(&self, cause: &str) {
        self.node.wakeups.with_label_values(&[cause]).inc();
    }

    /// Counts one sample that was due, and was taken this much later.
    pub fn sampled_late(&self, late: Duration) {
        self.node.lateness.with_label_values::<&str>(&[]).observe(late.as_secs_f64());
    }

    pub fn eviction(&self, cause: impl Into<Cause>, outcome: EvictionOutcome) {
        self.node.evictions.with_label_values(&[cause.into().as_str(), outcome.as_str()]).inc();
    }

    /// Counts a soft eviction that waits for the end of maintenance.
    pub(super) fn deferred(&self, signal: Signal) {
        self.node.deferred.with_label_values(&[signal.as_str()]).inc();
    }

    pub fn oom_kills(&self, constraint: Option<OomConstraint>, kills: u64) {
        let constraint = constraint.map_or(UNKNOWN_CONSTRAINT, OomConstraint::as_str);
        self.node.oom_kills_by_constraint.with_label_values(&[constraint]).inc_by(kills);
    }

    /// Counts OOM kills that no eBPF program counted.
    pub fn oom_kills_of(&self, workload: &str, kills: u64) {
        *lock(&self.uncounted_kills).entry(workload.to_owned()).or_default() += kills;
    }

    /// Counts a proactive reclaim, in observe mode a simulated one.
    pub fn reclaimed(&self, outcome: ReclaimOutcome, freed: Bytes, took: Duration) {
        self.node.reclaims.with_label_values(&[outcome.as_str()]).inc();
        self.node.reclaim_freed.inc_by(freed.0);
        self.node.reclaim_seconds.inc_by(took.as_secs_f64());
    }

    /// Counts processes with a newly found deviation of `oom_score_adj`, and repaired ones.
    pub fn scores(&self, drifted: u64, repaired: u64) {
        self.node.drifted.inc_by(drifted);
        self.node.repaired.inc_by(repaired);
    }

    /// Sets two totals: OOM kills without a workload, and lost records of the kernel's log.
    pub fn unaccounted(&self, unattributed: u64, log_records_lost: u64) {
        follow(&self.node.unattributed, unattributed);
        follow(&self.node.log_records_lost, log_records_lost);
    }
}

impl NodeMetrics {
    fn observe_states(&self, report: &NodeReport) {
        let memory = report.memory.as_ref();
        let available = |semantics: Semantics| Some(([semantics.as_str()], memory?.available(semantics).as_f64()));
        replace(&self.available, [Semantics::Corrected, Semantics::Kubelet].into_iter().filter_map(available));
        set_known(&self.capacity, memory.map(|memory| memory.capacity.as_f64()));
        set_known(&self.working_set, memory.map(|memory| memory.working_set.as_f64()));
        for threshold in &report.thresholds {
            // `increase()` misses the first increment of a counter that appears with it.
            for outcome in EvictionOutcome::ALL {
                self.evictions.with_label_values(&[threshold.threshold.signal.as_str(), outcome.as_str()]);
            }
        }
        replace(
            &self.condition,
            report.conditions.iter().map(|(condition, status)| ([&**condition], (*status).into())),
        );
        replace(&self.workloads, report.classes.iter().map(|class| ([class.qos_class], signed(class.count))));
        replace(&self.probe_attached, report.probes.iter().map(|probe| ([&*probe.name], probe.is_attached().into())));
        replace(&self.capability_missing, report.missing_capabilities.iter().map(|it| ([it.as_str()], 1)));
        replace(&self.signal_source, report.sources.iter().map(|(signal, source)| ([*signal, *source], 1)));
        self.oom_score_adj_drift.set(signed(report.oom_score_adj_drift));
    }

    fn observe_totals(&self, report: &NodeReport) {
        for (what, total) in &report.accounts.untracked {
            follow(&self.untracked.with_label_values(&[untracked_name(*what)]), *total);
        }
        let kswapd = &report.kswapd;
        follow(&self.kswapd_wakes, kswapd.wakes);
        follow(&self.kswapd_reclaimed, kswapd.reclaimed_pages);
        follow(&self.kswapd_scanned, kswapd.scanned_pages);
        follow(&self.kswapd_seconds, Duration::from_nanos(kswapd.active_ns).as_secs_f64());
        follow(&self.log_lines_dropped, report.log_lines_dropped);
    }

    fn observe_events(&self, last_events: &mut HashMap<&'static str, [u64; 5]>, accounts: &Accounts) {
        let counters = [&self.generated, &self.delivered, &self.lost, &self.malformed, &self.suppressed];
        let counts = |it: &EventAccount| {
            (event_name(it.kind), [it.generated, it.delivered, it.lost, it.malformed, it.suppressed])
        };
        // Malformed events whose kind is unreadable count under the generated kind "unknown".
        let unknown = ("unknown", [0, 0, 0, accounts.unknown, 0]);
        for (event, counts) in accounts.events.iter().map(counts).chain([unknown]) {
            let last = last_events.entry(event).or_default();
            for ((counter, last), count) in counters.iter().zip(last).zip(counts) {
                counter.with_label_values(&[event]).inc_by(increase(last, count));
            }
        }
    }

    /// Adds the runs of each probe since the last call, as counted by the kernel.
    fn observe_probes(&self, last: &mut HashMap<String, ProbeStatistics>, statistics: &[ProbeStatistics]) {
        for current in statistics {
            let name = current.name.as_str();
            let last = last.entry(name.to_owned()).or_default();
            self.probe_hits.with_label_values(&[name]).inc_by(increase(&mut last.hits, current.hits));
            self.probe_missed.with_label_values(&[name]).inc_by(increase(&mut last.missed, current.missed));
            let seconds = Duration::from_nanos(increase(&mut last.nanos, current.nanos)).as_secs_f64();
            self.probe_seconds.with_label_values(&[name]).inc_by(seconds);
        }
    }

    fn observe_incidents(&self, report: &IncidentReport) {
        let IncidentReport { oom_kills, evictions, journal } = *report;
        let JournalReport { bytes, write_failures, dropped, counted, truncations } = journal;
        follow(&self.incidents.with_label_values(&[Kind::OomKill.as_str()]), oom_kills);
        follow(&self.incidents.with_label_values(&[Kind::Eviction.as_str()]), evictions);
        self.journal_bytes.set(signed(bytes));
        follow(&self.write_failures, write_failures);
        follow(&self.dropped, dropped);
        follow(&self.counted, counted);
        follow(&self.truncations, truncations);
    }
}

/// Renders metrics in the text format 0.0.4.
pub fn render(gathered: &[MetricFamily]) -> prometheus::Result<Vec<u8>> {
    let mut text = String::with_capacity(16 << 10);
    TextEncoder::new().encode_utf8(gathered, &mut text)?;
    // The format requires `+Inf`, but the encoder writes Rust's `inf`. Labels contain no line breaks.
    Ok(text.replace(" inf\n", " +Inf\n").into_bytes())
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
