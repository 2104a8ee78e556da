//! What the operator asked for, as plain values with the defaults that apply when nothing is said.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::patterns::{NamePattern, built_in_patterns};
use super::signal::Signal;
use super::threshold::{Threshold, ThresholdValue};
use super::units::Bytes;

/// Whether the agent acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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

/// Which of the two figures called available is compared with the thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Semantics {
    /// What the kernel could really hand out, from `MemAvailable`.
    #[default]
    Corrected,
    /// Capacity minus working set, as the kubelet computes it.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ranking {
    /// QoS class, exceeds its request, priority, usage above request.
    #[default]
    Qos,
}

impl Ranking {
    /// Returns the name used in configuration and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Qos => "qos",
        }
    }
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
    /// Workloads that are never candidates: the built-in list, then the configured patterns.
    pub protected: Vec<NamePattern>,
    /// What the kernel side counts and streams.
    pub kernel: KernelOptions,
    /// Where metrics and health are served.
    pub listen: SocketAddr,
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
            protected: built_in_patterns(),
            kernel: KernelOptions::default(),
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9946),
            lock_file: PathBuf::from("/run/node-pressure-monitor.lock"),
            cgroup_root: PathBuf::from("/sys/fs/cgroup"),
            proc_root: PathBuf::from("/proc"),
        }
    }
}

/// When and whom to evict.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Which figure is compared with the thresholds.
    pub semantics: Semantics,
    /// Who goes first.
    pub ranking: Ranking,
    /// Hard thresholds, then soft ones, each in the order written.
    pub thresholds: Vec<Threshold>,
    /// Time between SIGTERM and SIGKILL of a soft eviction, at most.
    pub max_pod_grace_period: Duration,
    /// How long a condition stays true after its thresholds are no longer met. Zero: no hysteresis.
    pub pressure_transition_period: Duration,
}

impl Policy {
    /// Returns the threshold that applies when `evictionHard` is not given.
    #[must_use]
    pub fn default_hard_threshold() -> Threshold {
        Threshold {
            signal: Signal::MemoryAvailable,
            value: ThresholdValue::Quantity(Bytes::from_mib(100)),
            grace_period: Duration::ZERO,
            min_reclaim: None,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            semantics: Semantics::default(),
            ranking: Ranking::default(),
            thresholds: vec![Self::default_hard_threshold()],
            max_pod_grace_period: Duration::ZERO,
            pressure_transition_period: Duration::from_secs(300),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvictionLimits {
    /// Pause after an eviction that had an effect.
    pub cool_down: Duration,
    /// Evictions in any minute, at most.
    pub max_per_minute: u32,
    /// When a killed workload is not gone after this time, the next candidate is tried.
    pub kill_timeout: Duration,
}

impl Default for EvictionLimits {
    fn default() -> Self {
        Self { cool_down: Duration::from_millis(100), max_per_minute: 6, kill_timeout: Duration::from_secs(3) }
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
