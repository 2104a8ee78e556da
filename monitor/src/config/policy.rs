//! The configuration as plain values, with the defaults of absent fields.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::candidate_options::CandidateOptions;
use super::disk_options::{DiskUsageOptions, FilesystemPaths, IncidentOptions};
use super::kubelet_version::FollowedKubelet;
use super::kubernetes_options::KubernetesOptions;
use super::notification_options::NotificationOptions;
use super::patterns::{NamePattern, built_in_patterns};
use super::pressure_conditions::PressureCondition;
use super::quirks::{Quirk, Quirks, Semantics};
use super::runtime_options::RuntimeOptions;
use super::serving_options::ServingOptions;
use super::threshold::{Threshold, ThresholdValue};
use crate::units::{Bytes, Quantity, Resource, Signal, named_enum};

named_enum! {
    #[derive(Default, Serialize, Deserialize, clap::ValueEnum)]
    pub enum Mode {
        /// Change nothing; report what enforce would do
        #[default]
        Observe = "observe",
        /// Evict, and set oom_score_adj
        Enforce = "enforce",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Ranking {
    /// QoS class, exceeds its request, priority, usage above request.
    #[default]
    Qos,
    /// Exceeds its request, priority, usage above request, as in Kubernetes 1.9 and later.
    Kubernetes,
    /// QoS class, usage above request, usage, as in OpenShift 3 up to 3.7 (Kubernetes 1.7), and as the documents of all its versions say.
    OpenShift3,
    /// As [`Self::Kubernetes`], but pods cannot request local disk, as in OpenShift 3.9 to 3.11 (Kubernetes 1.9 to 1.11;
    /// kubernetes/kubernetes#53542). Pods have a priority from 3.11 on; before it they are all equal by it.
    OpenShift39,
    /// These keys, most important first.
    Custom(Vec<RankingKey>),
}

impl Ranking {
    /// The presets, by their names in the configuration.
    pub const PRESETS: [(&str, Self); 4] = [
        ("qos", Self::Qos),
        ("kubernetes", Self::Kubernetes),
        ("openshift3", Self::OpenShift3),
        ("openshift3.9", Self::OpenShift39),
    ];

    /// Returns the keys for a resource under pressure, most important first.
    pub fn keys(&self, resource: Resource) -> &[RankingKey] {
        use RankingKey::{ExceedsRequests, Excess, Preference, Priority, QosClass, Usage, UsageAboveRequest};
        match (self, resource) {
            (Self::Custom(keys), _) => keys,
            // In OpenShift 3.9 to 3.11 requests for ephemeral storage are a technology preview, off by default.
            (Self::Kubernetes, Resource::Pids)
            | (Self::OpenShift39, Resource::EphemeralStorage | Resource::Inodes | Resource::Pids) => &[Priority, Usage],
            (Self::Kubernetes | Self::OpenShift39, _) => &[ExceedsRequests, Priority, UsageAboveRequest],
            (Self::OpenShift3, Resource::Memory) => &[QosClass, Excess, Usage],
            // In OpenShift 3, pods cannot request local disk.
            (Self::OpenShift3, _) => &[QosClass, Usage],
            (Self::Qos, Resource::Pids) => &[Preference, QosClass, Priority, Usage],
            (Self::Qos, _) => &[Preference, QosClass, ExceedsRequests, Priority, UsageAboveRequest],
        }
    }

    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Qos => "qos",
            Self::Kubernetes => "kubernetes",
            Self::OpenShift3 => "openshift3",
            Self::OpenShift39 => "openshift3.9",
            Self::Custom(_) => "custom",
        }
    }
}

named_enum! {
    /// One criterion of a ranking. The last criterion is always the workload's name.
    #[derive(Serialize, Deserialize)]
    pub enum RankingKey {
        /// Workloads with `user.oomd_avoid` rank last.
        Preference = "preference",
        /// BestEffort, then Burstable, then Guaranteed.
        QosClass = "qosClass",
        /// Workloads above their request rank first. Process ids cannot be requested, so all workloads are equal by them.
        ExceedsRequests = "exceedsRequests",
        /// Lower priorities rank first.
        Priority = "priority",
        /// Workloads furthest above their request rank first; usage below the request is a negative distance.
        UsageAboveRequest = "usageAboveRequest",
        /// Workloads furthest above their request rank first; all below it are equal.
        Excess = "excess",
        /// Larger usage ranks first.
        Usage = "usage",
        /// Smaller requests rank first.
        Request = "request",
    }
}

/// How `oom_score_adj` follows from the QoS class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OomScores {
    pub guaranteed: i16,
    /// The smallest value for Burstable pods.
    pub burstable_min: i16,
}

impl OomScores {
    pub const KUBERNETES: Self = Self { guaranteed: -997, burstable_min: 3 };
    pub const OPENSHIFT3: Self = Self { guaranteed: -998, burstable_min: 2 };
}

impl Default for OomScores {
    fn default() -> Self {
        Self::KUBERNETES
    }
}

/// The reservations that reduce node allocatable.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reservations {
    /// `systemReserved`: names of resources and amounts, in the order written.
    pub system: Vec<(String, Quantity)>,
    pub kube: Vec<(String, Quantity)>,
    /// Whether hard thresholds reduce it too, as in Kubernetes. In OpenShift 3 `system-reserved` has to cover them.
    pub hard_thresholds: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MonitorConfig {
    /// The name of the pool that the node is in.
    pub pool: Option<Arc<str>>,
    /// Pools of nodes; the first one whose labels a node has replaces this configuration.
    pub pools: Vec<Pool>,
    pub mode: Mode,
    pub policy: Policy,
    /// The hard threshold is the default, because the file has no `evictionHard`. The agent fits it to the machine.
    pub has_default_hard: bool,
    pub sampling: Sampling,
    pub evictions: EvictionLimits,
    pub candidates: CandidateOptions,
    pub pressure_conditions: Vec<PressureCondition>,
    /// Workloads that are never candidates: the built-in patterns, then the configured ones.
    pub protected: Vec<NamePattern>,
    pub kernel: KernelOptions,
    /// A file with the pods of this node, as `kubectl get pods -o json` prints them.
    pub pods: Option<PathBuf>,
    pub disk_usage: DiskUsageOptions,
    pub incidents: IncidentOptions,
    pub notifications: NotificationOptions,
    pub filesystems: FilesystemPaths,
    pub runtime: RuntimeOptions,
    pub kubernetes: KubernetesOptions,
    /// The address of metrics and health.
    pub listen: SocketAddr,
    /// Whether the metrics have the memory of each workload.
    pub workload_memory: bool,
    pub serving: ServingOptions,
    /// Locked while the agent runs, so that a second instance refuses to start.
    pub lock_file: PathBuf,
    pub cgroup_root: PathBuf,
    pub proc_root: PathBuf,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    pub name: Arc<str>,
    /// The labels that its nodes have, with these values.
    pub(super) selector: BTreeMap<String, String>,
    /// The configuration of its nodes.
    pub config: MonitorConfig,
}

/// The directory of the default lock file, which systemd makes for the unit.
pub const LOCK_DIRECTORY: &str = "/run/node-pressure-monitor";

impl Default for MonitorConfig {
    fn default() -> Self {
        Self {
            pool: None,
            pools: Vec::new(),
            mode: Mode::default(),
            policy: Policy::default(),
            has_default_hard: true,
            sampling: Sampling::default(),
            evictions: EvictionLimits::default(),
            candidates: CandidateOptions::default(),
            pressure_conditions: Vec::new(),
            protected: built_in_patterns(),
            kernel: KernelOptions::default(),
            pods: None,
            disk_usage: DiskUsageOptions::default(),
            incidents: IncidentOptions::default(),
            notifications: NotificationOptions::default(),
            filesystems: FilesystemPaths::default(),
            runtime: RuntimeOptions::default(),
            kubernetes: KubernetesOptions::default(),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9946),
            workload_memory: false,
            serving: ServingOptions::default(),
            lock_file: PathBuf::from(LOCK_DIRECTORY).join("lock"),
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            proc_root: PathBuf::from("/proc"),
        }
    }
}

/// When to evict, and which workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub semantics: Semantics,
    pub quirks: Quirks,
    /// The kubelet whose rules `semantics: kubelet` follow.
    #[serde(default)]
    pub kubelet: FollowedKubelet,
    pub ranking: Ranking,
    pub oom_scores: OomScores,
    /// Hard thresholds, then soft ones, each sorted by the signal's name, then the allocatable copies. The containerfs copies are absent.
    pub thresholds: Vec<Threshold>,
    /// How many thresholds come from `evictionHard`. A soft threshold with a grace period of zero is hard too, but is not counted.
    pub hard_count: usize,
    /// Whether the thresholds include the allocatable copies.
    pub pods_enforced: bool,
    /// Whether they do because `enforceNodeAllocatable` is absent. The copies then count only where the cgroup of all pods has a limit.
    #[serde(default)]
    pub pods_by_default: bool,
    /// The most seconds between SIGTERM and SIGKILL of a soft eviction. Negative means the pod's own grace period.
    pub max_pod_grace_period: i64,
    /// How long a condition stays true after its thresholds are no longer met.
    pub pressure_transition_period: Duration,
    pub local_storage_isolation: bool,
    pub reservations: Reservations,
}

impl Policy {
    /// Returns the grace period of a soft eviction. `own` is the pod's grace period.
    pub fn soft_grace(&self, own: Option<i64>) -> Duration {
        Duration::from_secs(u64::try_from(self.soft_grace_seconds(own)).unwrap_or(0))
    }

    /// Returns [`Self::soft_grace`] in seconds, which the kubelet computes as the lesser of the two and may be negative.
    pub fn soft_grace_seconds(&self, own: Option<i64>) -> i64 {
        let limit = self.max_pod_grace_period;
        match own {
            // Kubernetes documents a negative limit as "defer to the pod", whose grace period defaults to 30 s.
            _ if limit < 0 && !self.quirks.has(Quirk::NegativeMaxGrace) => own.unwrap_or(30),
            Some(own) => own.min(limit),
            None => limit,
        }
    }

    /// Returns whether a threshold counts only where all pods together have a limit: no configuration has asked for it.
    pub fn needs_no_limit(&self, threshold: &Threshold) -> bool {
        self.pods_by_default && threshold.is_hard() && threshold.signal == Signal::AllocatableMemoryAvailable
    }

    /// Returns the threshold that applies where `evictionHard` is absent.
    pub fn default_hard_threshold() -> Threshold {
        Threshold {
            signal: Signal::MemoryAvailable,
            value: ThresholdValue::bytes(Bytes::from_mib(100)),
            grace_period: Duration::ZERO,
            min_reclaim: None,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        let hard = Self::default_hard_threshold();
        Self {
            semantics: Semantics::default(),
            quirks: Quirks::of(Semantics::default()),
            kubelet: FollowedKubelet::default(),
            ranking: Ranking::default(),
            oom_scores: OomScores::default(),
            thresholds: vec![hard.clone(), Threshold { signal: Signal::AllocatableMemoryAvailable, ..hard }],
            hard_count: 1,
            pods_enforced: true,
            pods_by_default: true,
            max_pod_grace_period: 0,
            pressure_transition_period: Duration::from_secs(300),
            local_storage_isolation: true,
            reservations: Reservations { hard_thresholds: true, ..Reservations::default() },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// The shortest interval between two samples.
    pub floor: Duration,
    /// The longest interval between two samples.
    pub ceiling: Duration,
    /// The fastest assumed loss of available memory, in bytes per second; `None` measures it.
    pub fastest_rate: Option<Bytes>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { floor: Duration::from_millis(1), ceiling: Duration::from_secs(10), fastest_rate: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionLimits {
    /// The cool-down after an eviction that had an effect.
    pub cool_down: Duration,
    pub max_per_minute: u32,
    /// After this time, a killed workload that has not exited counts as failed, and the next candidate is tried.
    pub kill_timeout: Duration,
    /// The time that the first eviction of a shortage of memory has to buy.
    pub minimum_gain: Duration,
    /// How long proactive reclaim may take before an eviction; zero turns proactive reclaim off.
    pub reclaim_deadline: Duration,
    /// Whether a threshold evicts that was met when it arrived, or cannot be meant for this node. Traces of agents without this rule do
    /// not have the field.
    #[serde(default = "yes")]
    pub act_on_present_pressure: bool,
    /// Whether an eviction for memory waits while the kernel swaps out as fast as memory falls. Traces of agents without this rule do not
    /// have the field.
    #[serde(default)]
    pub wait_for_swap: bool,
}

const fn yes() -> bool {
    true
}

impl Default for EvictionLimits {
    fn default() -> Self {
        Self {
            cool_down: Duration::from_millis(100),
            max_per_minute: 6,
            kill_timeout: Duration::from_secs(3),
            minimum_gain: Duration::from_secs(10),
            reclaim_deadline: Duration::ZERO,
            act_on_present_pressure: false,
            wait_for_swap: true,
        }
    }
}

/// Options of the eBPF programs' stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelOptions {
    /// The size of the ring buffer, rounded up to a power-of-two number of pages when it is loaded.
    pub ring_buffer: Bytes,
    /// Reclaim stalls of at least this length are streamed one by one; zero streams every stall.
    pub stall_threshold: Duration,
    /// The shortest interval between two wake-ups by one kind of event.
    pub doorbell_interval: Duration,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            ring_buffer: Bytes::from_kib(256),
            stall_threshold: Duration::from_millis(10),
            doorbell_interval: Duration::from_millis(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soft_eviction_waits_at_most_the_configured_grace() {
        let grace = |limit, semantics, own| {
            let quirks = Quirks::of(semantics);
            Policy { max_pod_grace_period: limit, quirks, ..Policy::default() }.soft_grace_seconds(own)
        };
        for (limit, own, kubelet, corrected) in [
            (60, None, 60, 60),
            (60, Some(30), 30, 30),
            (60, Some(300), 60, 60),
            (0, Some(30), 0, 0),
            (-1, Some(30), -1, 30),
            (-1, Some(0), -1, 0),
            (-1, None, -1, 30),
        ] {
            assert_eq!(grace(limit, Semantics::Kubelet, own), kubelet, "{limit} {own:?}");
            assert_eq!(grace(limit, Semantics::Corrected, own), corrected, "{limit} {own:?}");
        }
    }
}
