//! Conditions that follow from pressure stall information: whose, how much of it, for how long.

use std::time::Duration;

/// Whose tasks wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureScope {
    /// Everybody's.
    System,
    /// Those of all pods together; cgroup v2 keeps that.
    Kubepods,
}

impl PressureScope {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::System, Self::Kubepods];

    /// Returns the name used in configuration and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Kubepods => "kubepods",
        }
    }
}

/// What they wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureResource {
    /// Memory to be reclaimed, read back, or swapped in.
    Memory,
    /// Disks.
    Io,
    /// A CPU.
    Cpu,
}

impl PressureResource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Io, Self::Cpu];

    /// Returns the name used in configuration, metrics, and by the kernel for its files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Io => "io",
            Self::Cpu => "cpu",
        }
    }
}

/// How many of them wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureKind {
    /// At least one.
    Some,
    /// All that are not idle.
    Full,
}

impl PressureKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Some, Self::Full];

    /// Returns the name used in configuration, metrics, and by the kernel for its lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Some => "some",
            Self::Full => "full",
        }
    }
}

/// A share of time, and how long it must last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureLevel {
    /// Compared with the average of the last ten seconds; 0 to 1.
    pub share: f64,
    /// For so long without a break.
    pub lasting: Duration,
}

/// A node condition of the operator's own making.
#[derive(Debug, Clone, PartialEq)]
pub struct PressureCondition {
    /// Its name.
    pub condition: String,
    /// Whose tasks.
    pub scope: PressureScope,
    /// Waiting for what.
    pub resource: PressureResource,
    /// How many of them.
    pub kind: PressureKind,
    /// Becomes true when the average is at least this.
    pub set: PressureLevel,
    /// Becomes false when the average is below this.
    pub clear: PressureLevel,
}
