//! Output of the agent: metrics, health, summary, log records, incidents and events.
//!
//! The loop describes the node in a `NodeReport` of plain values. This module renders it.

mod afterwards;
mod cardinality;
mod cluster_metrics;
mod configuration_reporting;
pub mod configuration_state;
pub mod disk_usage_metrics;
mod event_names;
pub mod event_sink;
mod eviction_latency;
mod eviction_log;
mod eviction_model;
pub mod eviction_report;
pub mod eviction_reporting;
mod evidence_reporting;
mod figures_metrics;
pub mod health;
pub mod http;
mod incident_limiter;
pub mod incident_sink;
mod kernel_reporting;
mod limits;
pub mod live;
mod log_journal;
mod log_people;
pub mod log_sink;
pub mod logging;
mod loop_state;
pub mod metrics;
mod metrics_sink;
mod node_digest;
mod node_reporting;
pub mod node_status;
mod note_reporting;
pub mod notifications;
pub mod oom_kill_report;
mod openmetrics;
mod process_metrics;
pub mod publications;
pub mod reclaim_metrics;
pub mod record;
mod register;
pub mod reporter;
pub mod runtime_metrics;
mod score_reporting;
pub mod series;
mod signal_metrics;
mod source_reporting;
pub mod state_document;
pub mod stats;
pub mod summary;
mod summary_figures;
mod turn_reporting;
pub mod usage_metrics;
mod waiting;
mod workload_log;

use std::borrow::Cow;

use crate::config::Threshold;
use crate::eviction::decider::Unarmed;
use crate::kernel::{Accounts, CgroupCounters, DeviceId, InodeCounters, KswapdCounters, ProbeStatistics, ProbeStatus};
use crate::runtime::Names;
use crate::units::{Bytes, CgroupId};
use crate::workloads::PatternReach;

pub use crate::sensors::figure_report::{
    DaemonsReport, DiskUsageReport, ExhaustionReport, FiguresReport, FilesystemReport, KeptReport, MemoryReport,
    PressureReport, RoleReport, SwapReport,
};
pub use cluster_metrics::{ClusterReport, PodInfo};
pub use configuration_state::{ConfigState, ReloadOutcome};
pub use health::{Health, hang_limit};
pub use http::Guard;
pub use incident_sink::{IncidentReport, Recorder};
pub use limits::{Dedup, RateLimiter};
pub use logging::{LogFormat, LoggingError};
pub use loop_state::LoopState;
pub use metrics::{EvictionOutcome, Metrics};
pub use notifications::NotificationReport;
pub use publications::Publications;
pub use register::Family;
pub use reporter::Reporter;
pub use source_reporting::log_layout;
pub use summary::{StartSummary, render_summary};
pub use turn_reporting::Turn;
pub use usage_metrics::RequestsReport;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeReport {
    /// `None` if the figures could not be read.
    pub memory: Option<MemoryReport>,
    pub thresholds: Vec<ThresholdReport>,
    /// Every node condition that the agent keeps, and whether it is true.
    pub conditions: Vec<(Cow<'static, str>, bool)>,
    /// Workloads by QoS class, in the order in which they are shown; not measured.
    pub classes: Vec<ClassReport>,
    /// Workloads that are never evicted, whatever their class.
    pub protected: Vec<String>,
    /// What each pattern of `protected` and of `evictions.services` matches.
    pub patterns: Vec<PatternReach>,
    /// Every probe, attached or not.
    pub probes: Vec<ProbeStatus>,
    /// The current source of each signal: eBPF, PSI, the kernel's log or polling.
    pub sources: Vec<(&'static str, &'static str)>,
    pub missing_capabilities: Vec<String>,
    /// Number of processes whose `oom_score_adj` deviates from the value of their QoS class.
    pub oom_score_adj_drift: u64,
    pub counters: Vec<CgroupReport>,
    /// Delivered and lost events, and objects that the kernel side did not track because a map was full.
    pub accounts: Accounts,
    /// Summed over NUMA nodes.
    pub kswapd: KswapdCounters,
    /// Runtime cost of each attached probe; `None` in a report that only a viewer needs, since the kernel answers slowly.
    pub probe_statistics: Option<Vec<ProbeStatistics>>,
    pub figures: FiguresReport,
    /// Log lines dropped because the reader of stderr is too slow.
    pub log_lines_dropped: u64,
    pub incidents: IncidentReport,
    pub notifications: NotificationReport,
    /// The Kubernetes control plane; `None` without one.
    pub cluster: Option<ClusterReport>,
    /// The known pods of workloads.
    pub pods: Vec<PodInfo>,
    /// The working set of each workload; empty unless the configuration asks for it.
    pub workload_memory: Vec<(String, Bytes)>,
    /// The pods' requests to the scheduler; `None` while no pod is known.
    pub requests: Option<RequestsReport>,
    pub names: Names,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ThresholdReport {
    pub threshold: Threshold,
    /// The threshold at the signal's capacity, in the signal's unit; `None` without an observation of the signal.
    pub bytes: Option<Bytes>,
    /// Whether the signal is below it.
    pub met: bool,
    /// Why it does not evict yet, if it does not.
    pub unarmed: Option<Unarmed>,
    /// Why it can evict nothing on this host, if it cannot.
    pub reported_only: Option<&'static str>,
    /// The workloads that it may evict, in words: `12 pods`.
    pub evicts: Option<String>,
}

/// The workloads of one QoS class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReport {
    /// `BestEffort`, `Burstable` or `Guaranteed`.
    pub qos_class: &'static str,
    pub count: usize,
    pub members: Vec<String>,
    /// Their working sets together; zero before they are measured.
    pub working_set: Bytes,
    /// A few of them, largest working set first.
    pub largest: Vec<(String, Bytes)>,
}

/// Workloads named in the summary for each class.
const LARGEST_SHOWN: usize = 3;

impl NodeReport {
    /// Returns whether the metrics can be taken from the report.
    pub fn is_complete(&self) -> bool {
        self.probe_statistics.is_some()
    }

    /// The classes with the working sets that `measure` returns; a workload without one is gone.
    pub fn measured_classes(&self, measure: &mut dyn FnMut(&str) -> Option<Bytes>) -> Vec<ClassReport> {
        let measured = |class: &ClassReport| {
            let sets = class.members.iter().filter_map(|name| Some((name.clone(), measure(name)?)));
            let mut largest: Vec<(String, Bytes)> = sets.collect();
            largest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let working_set = largest.iter().fold(Bytes::ZERO, |sum, (_, set)| sum.saturating_add(*set));
            largest.truncate(LARGEST_SHOWN);
            ClassReport { working_set, largest, ..class.clone() }
        };
        self.classes.iter().map(measured).collect()
    }
}

/// Counters of one cgroup since the kernel side first saw it. They never decrease for the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupReport {
    /// Several cgroups may belong to one workload; a cgroup made again under an old path has another id.
    pub cgroup: CgroupId,
    pub workload: String,
    /// Reclaim stalls and OOM victims; `None` if it had none.
    pub counters: Option<CgroupCounters>,
    pub inodes: Vec<(DeviceId, InodeCounters)>,
}
