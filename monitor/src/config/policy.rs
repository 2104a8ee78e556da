//! What the operator asked for, as plain values with the defaults that apply when nothing is said.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::disk_usage_options::DiskUsageOptions;
use super::filesystem_paths::FilesystemPaths;
use super::incident_options::IncidentOptions;
use super::kubernetes_options::KubernetesOptions;
use super::patterns::{NamePattern, built_in_patterns};
use super::pressure_conditions::PressureCondition;
use super::quirks::{Quirk, Quirks};
use super::runtime_options::RuntimeOptions;
use super::serving_options::ServingOptions;
use super::threshold::{Threshold, ThresholdValue};
use crate::units::Bytes;
use crate::units::Quantity;
use crate::units::{Resource, Signal};

/// Whether the agent acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Mode {
    /// Does everything but act, and says what it would have done.
    #[default]
    Observe,
    /// Evicts, and sets `oom_score_adj`.
    Enforce,
}

impl Mode {
    /// Returns the name used in configuration and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}

/// Whose rules apply. Sets what is not set by hand: which figure called available acts, the quirks, the percentages' arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Semantics {
    /// What the kernel could really hand out (`MemAvailable`), and the kubelet's rules with its quirks mended.
    #[default]
    Corrected,
    /// Capacity minus working set, and the kubelet's rules with its quirks.
    Kubelet,
}

impl Semantics {
    /// Returns the name used in configuration, metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Corrected => "corrected",
            Self::Kubelet => "kubelet",
        }
    }
}

/// The order in which workloads are evicted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Ranking {
    /// QoS class, exceeds its request, priority, usage above request.
    #[default]
    Qos,
    /// Exceeds its request, priority, usage above request: Kubernetes 1.9 and later.
    Kubernetes,
    /// QoS class, usage above request, usage: OpenShift 3.
    OpenShift3,
    /// These keys, most important first.
    Custom(Vec<RankingKey>),
}

impl Ranking {
    /// The presets, by the names used in configuration.
    pub const PRESETS: [(&str, Self); 3] =
        [("qos", Self::Qos), ("kubernetes", Self::Kubernetes), ("openshift3", Self::OpenShift3)];

    /// Returns the keys for a resource that runs out, most important first.
    #[must_use]
    pub fn keys(&self, resource: Resource) -> &[RankingKey] {
        use RankingKey::{ExceedsRequests, Excess, Preference, Priority, QosClass, Usage, UsageAboveRequest};
        match (self, resource) {
            (Self::Custom(keys), _) => keys,
            (Self::Kubernetes, Resource::Pids) => &[Priority, Usage],
            (Self::Kubernetes, _) => &[ExceedsRequests, Priority, UsageAboveRequest],
            (Self::OpenShift3, Resource::Memory) => &[QosClass, Excess, Usage],
            // There, local disk is nothing that can be requested.
            (Self::OpenShift3, _) => &[QosClass, Usage],
            (Self::Qos, Resource::Pids) => &[Preference, QosClass, Priority, Usage],
            (Self::Qos, _) => &[Preference, QosClass, ExceedsRequests, Priority, UsageAboveRequest],
        }
    }

    /// Returns the name used in logs and metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Qos => "qos",
            Self::Kubernetes => "kubernetes",
            Self::OpenShift3 => "openshift3",
            Self::Custom(_) => "custom",
        }
    }
}

/// One criterion of a ranking. The name of the workload always decides last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RankingKey {
    /// `user.oomd_avoid` goes last.
    Preference,
    /// BestEffort, then Burstable, then Guaranteed.
    QosClass,
    /// Who uses more than was requested goes first. Process ids cannot be requested: equal for all.
    ExceedsRequests,
    /// The lower priority goes first.
    Priority,
    /// Who is further above the request goes first; below it counts as a negative distance.
    UsageAboveRequest,
    /// Who is further above the request goes first; all below it are equal.
    Excess,
    /// Who uses more goes first.
    Usage,
    /// Who requested less goes first.
    Request,
}

impl RankingKey {
    /// Every key.
    pub const ALL: [Self; 8] = [
        Self::Preference,
        Self::QosClass,
        Self::ExceedsRequests,
        Self::Priority,
        Self::UsageAboveRequest,
        Self::Excess,
        Self::Usage,
        Self::Request,
    ];

    /// Returns the name used in configuration and output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preference => "preference",
            Self::QosClass => "qosClass",
            Self::ExceedsRequests => "exceedsRequests",
            Self::Priority => "priority",
            Self::UsageAboveRequest => "usageAboveRequest",
            Self::Excess => "excess",
            Self::Usage => "usage",
            Self::Request => "request",
        }
    }
}

/// How `oom_score_adj` follows from the QoS class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OomScores {
    /// For Guaranteed pods.
    pub guaranteed: i16,
    /// The least for Burstable ones.
    pub burstable_min: i16,
}

impl OomScores {
    /// Kubernetes since Guaranteed is -997.
    pub const KUBERNETES: Self = Self { guaranteed: -997, burstable_min: 3 };
    /// OpenShift 3.
    pub const OPENSHIFT3: Self = Self { guaranteed: -998, burstable_min: 2 };
}

impl Default for OomScores {
    fn default() -> Self {
        Self::KUBERNETES
    }
}

/// Which figures node allocatable is reduced by.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reservations {
    /// `systemReserved`: resource names and amounts in the order written.
    pub system: Vec<(String, Quantity)>,
    /// `kubeReserved`.
    pub kube: Vec<(String, Quantity)>,
    /// Hard thresholds are kept from pods too, as Kubernetes does; in OpenShift 3 `system-reserved` is to cover them.
    pub hard_thresholds: bool,
}

/// Everything the agent can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct MonitorConfig {
    /// Whether the agent acts.
    pub mode: Mode,
    /// When and whom to evict.
    pub policy: Policy,
    /// How often to look.
    pub sampling: Sampling,
    /// How much may be evicted in what time.
    pub evictions: EvictionLimits,
    /// Node conditions that follow from pressure stall information.
    pub pressure_conditions: Vec<PressureCondition>,
    /// Workloads that are never candidates: the built-in list, then the configured patterns.
    pub protected: Vec<NamePattern>,
    /// What the kernel side counts and streams.
    pub kernel: KernelOptions,
    /// The pods of this node, as `kubectl get pods -o json` prints them; limits of local storage are known from there alone.
    pub pods: Option<PathBuf>,
    /// What finding out who keeps what on the disks may cost.
    pub disk_usage: DiskUsageOptions,
    /// Where incidents are kept.
    pub incidents: IncidentOptions,
    /// Where the filesystems of the signals are, as far as that is not to be found out.
    pub filesystems: FilesystemPaths,
    /// Where the container runtime is, and what of it may be collected.
    pub runtime: RuntimeOptions,
    /// How to live with a Kubernetes control plane.
    pub kubernetes: KubernetesOptions,
    /// Where metrics and health are served.
    pub listen: SocketAddr,
    /// Who may read them.
    pub serving: ServingOptions,
    /// Held while the agent runs, so that a second instance is refused.
    pub lock_file: PathBuf,
    /// Where the cgroup file systems are mounted.
    pub cgroup_root: PathBuf,
    /// Where procfs is mounted.
    pub proc_root: PathBuf,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            policy: Policy::default(),
            sampling: Sampling::default(),
            evictions: EvictionLimits::default(),
            pressure_conditions: Vec::new(),
            protected: built_in_patterns(),
            kernel: KernelOptions::default(),
            pods: None,
            disk_usage: DiskUsageOptions::default(),
            incidents: IncidentOptions::default(),
            filesystems: FilesystemPaths::default(),
            runtime: RuntimeOptions::default(),
            kubernetes: KubernetesOptions::default(),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9946),
            serving: ServingOptions::default(),
            lock_file: PathBuf::from("/run/node-pressure-monitor.lock"),
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            proc_root: PathBuf::from("/proc"),
        }
    }
}

/// When and whom to evict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Whose rules apply.
    pub semantics: Semantics,
    /// Which of the kubelet's quirks are reproduced.
    pub quirks: Quirks,
    /// Who goes first.
    pub ranking: Ranking,
    /// How `oom_score_adj` follows from the QoS class.
    pub oom_scores: OomScores,
    /// Hard thresholds, then soft ones, each by the name of the signal, then the allocatable copies; without the containerfs override.
    pub thresholds: Vec<Threshold>,
    /// How many of them were written as hard ones. A soft one without a grace period is hard, but was not.
    pub hard_count: usize,
    /// The cgroup of all pods is limited (`enforceNodeAllocatable: [pods]`), and the allocatable copies are among the thresholds.
    pub pods_enforced: bool,
    /// Seconds between SIGTERM and SIGKILL of a soft eviction, at most. Negative: as long as the pod asks for.
    pub max_pod_grace_period: i64,
    /// How long a condition stays true after its thresholds are no longer met.
    pub pressure_transition_period: Duration,
    /// Whether limits of local storage are enforced.
    pub local_storage_isolation: bool,
    /// What is kept from pods.
    pub reservations: Reservations,
}

impl Policy {
    /// How long a pod evicted for a soft threshold may take to stop; `own` is the grace period that it asks for itself.
    #[must_use]
    pub fn soft_grace(&self, own: Option<i64>) -> Duration {
        Duration::from_secs(u64::try_from(self.soft_grace_seconds(own)).unwrap_or(0))
    }

    /// As [`Self::soft_grace`], in seconds as the kubelet computes them: the lesser of the two.
    #[must_use]
    pub fn soft_grace_seconds(&self, own: Option<i64>) -> i64 {
        let limit = self.max_pod_grace_period;
        match own {
            // Documented as "defer to the pod", whose grace period is 30 s when it does not say so itself.
            _ if limit < 0 && !self.quirks.has(Quirk::NegativeMaxGrace) => own.unwrap_or(30),
            Some(own) => own.min(limit),
            None => limit,
        }
    }

    /// Returns the threshold that applies when `evictionHard` is not given.
    #[must_use]
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
        Self {
            semantics: Semantics::default(),
            quirks: Quirks::of(Semantics::default()),
            ranking: Ranking::default(),
            oom_scores: OomScores::default(),
            thresholds: vec![Self::default_hard_threshold()],
            hard_count: 1,
            pods_enforced: false,
            max_pod_grace_period: 0,
            pressure_transition_period: Duration::from_secs(300),
            local_storage_isolation: true,
            reservations: Reservations { hard_thresholds: true, ..Reservations::default() },
        }
    }
}

/// How often to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// Looks are at least this far apart.
    pub floor: Duration,
    /// Looks are at most this far apart.
    pub ceiling: Duration,
    /// The rate, in bytes per second, at which memory is assumed to be able to vanish; without one it is measured.
    pub fastest_rate: Option<Bytes>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { floor: Duration::from_millis(1), ceiling: Duration::from_secs(10), fastest_rate: None }
    }
}

/// How much may be evicted in what time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictionLimits {
    /// Pause after an eviction that had an effect.
    pub cool_down: Duration,
    /// Evictions in any minute, at most.
    pub max_per_minute: u32,
    /// When a killed workload is not gone after this time, the next candidate is tried.
    pub kill_timeout: Duration,
    /// How long a workload may take to give memory back before one is evicted; zero: none is asked to.
    pub reclaim_deadline: Duration,
}

impl Default for EvictionLimits {
    fn default() -> Self {
        Self {
            cool_down: Duration::from_millis(100),
            max_per_minute: 6,
            kill_timeout: Duration::from_secs(3),
            reclaim_deadline: Duration::ZERO,
        }
    }
}

/// What the kernel side counts and streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelOptions {
    /// Size of the ring buffer. The kernel wants a power-of-two number of pages: rounded up when loaded.
    pub ring_buffer: Bytes,
    /// Reclaim stalls at least this long are streamed one by one. Zero streams every stall.
    pub stall_threshold: Duration,
    /// At most one wake-up per kind of event in this time.
    pub doorbell_interval: Duration,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            ring_buffer: Bytes(256 * Bytes::KIB),
            stall_threshold: Duration::from_millis(10),
            doorbell_interval: Duration::from_millis(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Semantics;

    #[test]
    fn the_grace_period_of_a_soft_eviction() {
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
