//! The node's figures as plain values for reports.

use std::time::Duration;

use crate::config::{PressureKind, PressureResource, PressureScope, Semantics};
use crate::eviction::SignalValue;
use crate::units::Bytes;

/// The figures of a report, except the states of thresholds. A figure that cannot be read is absent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FiguresReport {
    /// The corrections of `MemAvailable`, by name.
    pub corrections: Vec<(&'static str, Bytes)>,
    pub swap: Option<SwapReport>,
    pub pressure: Vec<PressureReport>,
    pub exhaustion: Vec<ExhaustionReport>,
    pub filesystems: Vec<FilesystemReport>,
    /// The values that thresholds are compared with.
    pub signals: Vec<SignalValue>,
    pub roles: Vec<RoleReport>,
    pub disk_usage: DiskUsageReport,
    /// `None` without a reservation.
    pub daemons: Option<DaemonsReport>,
}

/// The memory outside of pods, compared with what is reserved for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonsReport {
    /// `systemReserved` plus `kubeReserved`.
    pub reserved: Bytes,
    /// By how much the reservation is exceeded; zero if it is not.
    pub above: Bytes,
    /// The largest workloads outside of pods, while it is exceeded.
    pub largest: Vec<(String, Bytes)>,
}

impl DaemonsReport {
    /// Names the largest workloads with their memory.
    pub fn words(&self) -> String {
        let named = self.largest.iter().map(|(name, bytes)| format!("{name} {bytes}"));
        named.collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleReport {
    /// `nodefs`, `imagefs` or `containerfs`.
    pub role: &'static str,
    /// The device as `major:minor`.
    pub device: String,
    pub mount_point: String,
    pub kind: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SwapReport {
    pub total: Bytes,
    pub free: Bytes,
    /// Memory read back from swap since boot.
    pub read: Bytes,
    /// Memory written to swap since boot.
    pub written: Bytes,
    /// The read rate over the last seconds.
    pub read_per_second: f64,
    pub written_per_second: f64,
}

/// One line of a pressure file; totals count since boot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureReport {
    pub scope: PressureScope,
    pub resource: PressureResource,
    pub kind: PressureKind,
    /// Shares of the last 10, 60 and 300 seconds, 0 to 1.
    pub averages: [f64; 3],
    pub total: Duration,
}

/// The time until a signal reaches zero at its present rate.
#[derive(Debug, Clone, PartialEq)]
pub struct ExhaustionReport {
    pub signal: &'static str,
    /// Seconds until zero. Infinite for a signal that does not fall.
    pub seconds: f64,
    /// Seconds until the nearest threshold of each kind (`hard`, `soft`); zero for a threshold that is met.
    pub thresholds: Vec<(&'static str, f64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FilesystemReport {
    /// The device as `major:minor`.
    pub device: String,
    pub mount_point: String,
    pub kind: String,
    /// The numbers of all inodes and of free inodes; `None` where the filesystem does not count inodes (btrfs).
    pub inodes: Option<(u64, u64)>,
    /// Inodes created minus inodes removed, per second.
    pub growth: Option<f64>,
    /// Seconds until no inode is free. Infinite without growth.
    pub seconds: Option<f64>,
    /// The workloads that create the most inodes, with inodes per second.
    pub makers: Vec<(String, f64)>,
}

/// Memory of the node under both semantics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryReport {
    /// The value that percentages refer to.
    pub capacity: Bytes,
    pub mem_total: Bytes,
    pub mem_available: Bytes,
    /// What `MemAvailable` leaves out wrongly, by name.
    pub additions: Vec<(&'static str, Bytes)>,
    /// The amounts that `MemAvailable` counts wrongly, by name.
    pub corrections: Vec<(&'static str, Bytes)>,
    pub corrected: Bytes,
    /// The usage of the root cgroup. The two figures below are also of the root cgroup.
    pub usage: Bytes,
    pub inactive_file: Bytes,
    pub working_set: Bytes,
    pub kubelet: Bytes,
}

impl MemoryReport {
    /// Returns the figure that thresholds are compared with under these semantics.
    pub fn available(&self, semantics: Semantics) -> Bytes {
        match semantics {
            Semantics::Corrected => self.corrected,
            Semantics::Kubelet => self.kubelet,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DiskUsageReport {
    pub kept: Vec<KeptReport>,
    /// The number of files examined since the start.
    pub walked: u64,
    /// How often project quotas were read again between two measurements.
    pub recounts: u64,
    /// The CPU time of all measurements.
    pub cpu: Duration,
}

/// The disk usage of a workload by one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptReport {
    pub workload: String,
    /// `quota`, `walk` or `filesystem`.
    pub source: &'static str,
    pub bytes: Bytes,
    pub inodes: u64,
    /// The age of the oldest part.
    pub age: Duration,
}
