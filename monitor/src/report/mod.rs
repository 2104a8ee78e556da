//! What others see: metrics, health, the summary at start, log records.
//!
//! The loop describes the node in a `NodeReport`, plain values only, and everything here renders that.

mod action_counters;
mod cluster_metrics;
pub mod condition_log;
pub mod configuration_state;
pub mod dedup;
pub mod disk_usage_metrics;
pub mod event_sink;
mod eviction_log;
pub mod eviction_report;
mod figures_metrics;
pub mod health;
pub mod http;
pub mod incident_metrics;
pub mod incident_sink;
mod log_limits;
pub mod log_sink;
pub mod logging;
pub mod metrics;
mod metrics_sink;
pub mod node_status;
pub mod oom_kill_report;
pub mod probe_metrics;
pub mod publications;
pub mod rate_limit;
pub mod reclaim_metrics;
pub mod reclaim_report;
pub mod record;
mod register;
pub mod reporter;
pub mod runtime_metrics;
pub mod series;
pub mod stats;
pub mod summary;
mod summary_figures;
mod summary_lines;

use std::borrow::Cow;

use crate::config::Threshold;
use crate::kernel::{ProbeStatistics, ReclaimCounters};
use crate::units::{Bytes, CgroupId};

pub use crate::sensors::figure_report::{
    DiskUsageReport, ExhaustionReport, FiguresReport, FilesystemReport, KeptReport, MemoryReport, PressureReport,
    RoleReport, SignalReport, SourceReport, SwapReport,
};
pub use action_counters::EvictionOutcome;
pub use cluster_metrics::{ClusterReport, PodInfo};
pub use configuration_state::{ConfigState, ReloadOutcome};
pub use dedup::Dedup;
pub use health::{Health, hang_limit};
pub use http::{BindError, Guard};
pub use incident_metrics::IncidentReport;
pub use incident_sink::Recorder;
pub use logging::{LogFormat, LoggingError};
pub use metrics::Metrics;
pub use publications::Publications;
pub use rate_limit::RateLimiter;
pub use reporter::Reporter;
pub use summary::{StartSummary, render_summary};

/// The node as it was at one look.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeReport {
    /// The memory figures; nothing when they could not be read.
    pub memory: Option<MemoryReport>,
    /// Every threshold of the policy.
    pub thresholds: Vec<ThresholdReport>,
    /// Every node condition that the agent keeps.
    pub conditions: Vec<ConditionReport>,
    /// Workloads by QoS class, in the order in which they are shown; not measured.
    pub classes: Vec<ClassReport>,
    /// Workloads that are never evicted, whatever their class.
    pub protected: Vec<String>,
    /// Every probe, attached or not.
    pub probes: Vec<ProbeReport>,
    /// Where each signal stands on its ladder: eBPF, PSI, the kernel's log, polling.
    pub sources: Vec<SourceReport>,
    /// Processes whose `oom_score_adj` is not what their workload's class asks for.
    pub oom_score_adj_drift: u64,
    /// What was counted for each cgroup, by the workload it belongs to.
    pub counters: Vec<CgroupReport>,
    /// Where the events of each kind went.
    pub events: Vec<EventReport>,
    /// What the kernel side could not count because a map was full, by what it was.
    pub untracked: Vec<(&'static str, u64)>,
    /// Times that kswapd was woken, all NUMA nodes together.
    pub kswapd_wakes: u64,
    /// How long it was active, in nanoseconds.
    pub kswapd_nanos: u64,
    /// Pages that it freed and looked at, as far as the kernel tells.
    pub kswapd_reclaimed_pages: u64,
    pub kswapd_scanned_pages: u64,
    /// What each attached probe costs.
    pub probe_statistics: Vec<ProbeStatistics>,
    /// Swap, pressure, filesystems, and when things will have run out.
    pub figures: FiguresReport,
    /// Log lines dropped because whoever reads them is too slow.
    pub log_lines_dropped: u64,
    /// Incidents, and the journal that keeps them.
    pub incidents: IncidentReport,
    /// The Kubernetes control plane; nothing where there is none.
    pub cluster: Option<ClusterReport>,
    /// Which workload is which pod, as far as that is known.
    pub pods: Vec<PodInfo>,
}

/// A threshold and how it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ThresholdReport {
    /// The threshold.
    pub threshold: Threshold,
    /// Its value at the signal's capacity; nothing when there is no observation of the signal.
    pub bytes: Option<Bytes>,
    /// Whether the signal is below it.
    pub met: bool,
}

/// A node condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionReport {
    /// Its name, e.g. `MemoryPressure`.
    pub condition: Cow<'static, str>,
    /// Whether it is reported as true.
    pub status: bool,
}

/// The workloads of one QoS class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReport {
    /// `BestEffort`, `Burstable` or `Guaranteed`.
    pub qos_class: &'static str,
    /// How many there are.
    pub count: usize,
    /// Their names.
    pub members: Vec<String>,
    /// Their working sets together; zero before they are measured.
    pub working_set: Bytes,
    /// A few of them, largest working set first.
    pub largest: Vec<(String, Bytes)>,
}

/// Workloads named in the summary for each class.
const LARGEST_SHOWN: usize = 3;

impl NodeReport {
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

/// A kernel probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Its name, e.g. `oom:mark_victim`.
    pub name: String,
    /// Why it is not attached, and what is lost; nothing when it is.
    pub missing: Option<String>,
}

/// What was counted for one cgroup since the kernel side began to count it. Never falls for the same id.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CgroupReport {
    /// The cgroup. Several may belong to one workload; a cgroup made again under an old path has another id.
    pub cgroup: CgroupId,
    /// The workload's name.
    pub workload: String,
    /// Reclaim stalls by kind (`direct`, `memcg`).
    pub stalls: Vec<StallReport>,
    /// Inodes by file system.
    pub inodes: Vec<InodeReport>,
    /// Processes that the kernel's OOM killer chose here.
    pub oom_kills: u64,
}

/// Reclaim stalls of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallReport {
    /// `direct` or `memcg`.
    pub kind: &'static str,
    /// How many, how long, and what came of them.
    pub counters: ReclaimCounters,
}

/// Inodes made and removed on one file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InodeReport {
    /// The device as `major:minor`.
    pub device: String,
    /// Made.
    pub created: u64,
    /// Removed.
    pub removed: u64,
}

/// Where the events of one kind went, since the kernel side was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventReport {
    /// The kind.
    pub event: &'static str,
    /// Generated by the kernel side; the sum of the next three.
    pub generated: u64,
    /// Decoded here.
    pub delivered: u64,
    /// Not delivered because the ring buffer was full.
    pub lost: u64,
    /// Delivered but not decodable.
    pub malformed: u64,
    /// Held back on purpose, and not counted as generated.
    pub suppressed: u64,
}
