//! The figures beside memory and thresholds, as plain values.

use std::time::Duration;

use super::disk_usage::DiskUsageReport;
use crate::config::{PressureKind, PressureResource, PressureScope};
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
