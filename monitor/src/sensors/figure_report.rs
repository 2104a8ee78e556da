//! What the sensors know of the node, as plain values for reports.

use std::time::Duration;

use crate::config::{PressureKind, PressureResource, PressureScope, Semantics};
use crate::units::{Bytes, Signal};

/// What the loop knows beside the state of its thresholds. What could not be read is absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FiguresReport {
    /// What each difference between `MemTotal` and what can really be handed out is worth, by name.
    pub corrections: Vec<(&'static str, Bytes)>,
    /// Swap.
    pub swap: Option<SwapReport>,
    /// Pressure stall information, by scope, resource and kind.
    pub pressure: Vec<PressureReport>,
    /// When signals will have run out.
    pub exhaustion: Vec<ExhaustionReport>,
    /// The local filesystems.
    pub filesystems: Vec<FilesystemReport>,
    /// Every signal that could be observed.
    pub signals: Vec<SignalReport>,
    /// Which filesystem plays which part for the signals.
    pub roles: Vec<RoleReport>,
    /// What workloads keep on disks.
    pub disk_usage: DiskUsageReport,
}

/// A signal, as thresholds are compared with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalReport {
    /// Which.
    pub signal: Signal,
    /// What is left, in the signal's own unit.
    pub available: i64,
    /// What percentages are relative to.
    pub capacity: i64,
}

/// A filesystem in its part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleReport {
    /// `nodefs`, `imagefs` or `containerfs`.
    pub role: &'static str,
    /// The device as `major:minor`.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Its type.
    pub kind: String,
}

/// The node's swap.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SwapReport {
    /// How much is switched on.
    pub total: Bytes,
    /// How much of it is not in use.
    pub free: Bytes,
    /// Read back since boot.
    pub read: Bytes,
    /// Written since boot.
    pub written: Bytes,
    /// Read back a second, over the last seconds.
    pub read_per_second: f64,
    /// Written a second.
    pub written_per_second: f64,
}

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureReport {
    /// Whose tasks.
    pub scope: PressureScope,
    /// Waiting for what.
    pub resource: PressureResource,
    /// How many of them.
    pub kind: PressureKind,
    /// Shares of the last 10, 60 and 300 seconds, 0 to 1.
    pub averages: [f64; 3],
    /// Time stalled since boot.
    pub total: Duration,
}

/// When a signal will have run out if it goes on as it did lately.
#[derive(Debug, Clone, PartialEq)]
pub struct ExhaustionReport {
    /// Its name, e.g. `memory.available`.
    pub signal: &'static str,
    /// Seconds until nothing is left; infinite when it does not fall.
    pub seconds: f64,
    /// Seconds until the nearest threshold of each kind (`hard`, `soft`); zero when it is met.
    pub thresholds: Vec<(&'static str, f64)>,
}

/// A local filesystem.
#[derive(Debug, Clone, PartialEq)]
pub struct FilesystemReport {
    /// The device as `major:minor`.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// Its type.
    pub kind: String,
    /// How many inodes there can be and how many of them are not in use; nothing where it keeps no count (btrfs).
    pub inodes: Option<(u64, u64)>,
    /// Inodes made less inodes removed, a second.
    pub growth: Option<f64>,
    /// Seconds until no inode is left; infinite when they do not grow.
    pub seconds: Option<f64>,
    /// The workloads that make most of them, and how many a second.
    pub makers: Vec<(String, f64)>,
}

/// Memory of the node, under both semantics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// What percentages are relative to.
    pub capacity: Bytes,
    /// `MemTotal` of `/proc/meminfo`.
    pub mem_total: Bytes,
    /// `MemAvailable` of `/proc/meminfo`.
    pub mem_available: Bytes,
    /// What `MemAvailable` still counts wrongly, by name.
    pub corrections: Vec<(&'static str, Bytes)>,
    /// Available under corrected semantics.
    pub corrected: Bytes,
    /// Usage of the root cgroup.
    pub usage: Bytes,
    /// File memory of the root cgroup that was not used lately.
    pub inactive_file: Bytes,
    /// Usage minus inactive file memory.
    pub working_set: Bytes,
    /// Available under the kubelet's semantics.
    pub kubelet: Bytes,
}

impl MemoryReport {
    /// Returns the figure that is compared with thresholds under these semantics.
    #[must_use]
    pub fn available(&self, semantics: Semantics) -> Bytes {
        match semantics {
            Semantics::Corrected => self.corrected,
            Semantics::Kubelet => self.kubelet,
        }
    }
}

/// Where a signal is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceReport {
    /// The signal: one that thresholds name, or what the kernel side counts.
    pub signal: &'static str,
    /// `ebpf`, `psi`, `kmsg`, `polling` or `none`.
    pub source: &'static str,
}

/// What all workloads keep on disks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DiskUsageReport {
    /// One for each workload and source.
    pub kept: Vec<KeptReport>,
    /// Files looked at since the start.
    pub walked: u64,
    /// Times that quotas of a workload were read again between two measurements.
    pub recounts: u64,
    /// CPU time that all of it has taken.
    pub cpu: Duration,
}

/// What a workload keeps, as far as it is known by one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReport {
    /// Whose it is.
    pub workload: String,
    /// `quota`, `walk` or `filesystem`.
    pub source: &'static str,
    /// Allocated space.
    pub bytes: Bytes,
    /// Files, directories and all else that takes an inode.
    pub inodes: u64,
    /// Of the oldest part.
    pub age: Duration,
}
