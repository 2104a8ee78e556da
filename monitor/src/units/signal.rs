//! The eviction signals, by the names that Kubernetes gives them.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a threshold is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Signal {
    /// Memory of the whole node.
    MemoryAvailable,
    /// Memory of the cgroup that holds all pods.
    AllocatableMemoryAvailable,
    /// Bytes on the file system of the kubelet's root directory.
    NodeFsAvailable,
    /// Inodes on the file system of the kubelet's root directory.
    NodeFsInodesFree,
    /// Bytes on the file system that holds the images.
    ImageFsAvailable,
    /// Inodes on the file system that holds the images.
    ImageFsInodesFree,
    /// Bytes on the file system that holds the containers' writable layers.
    ContainerFsAvailable,
    /// Inodes on the file system that holds the containers' writable layers.
    ContainerFsInodesFree,
    /// Process ids, counted in threads.
    PidAvailable,
}

impl Signal {
    /// Every signal, in the order in which they are listed to people.
    pub const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// Returns the name used in configuration, metrics and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }
}

/// What a signal counts, and what pods are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Bytes of memory.
    Memory,
    /// Bytes of a filesystem.
    EphemeralStorage,
    /// Inodes of a filesystem.
    Inodes,
    /// Process ids.
    Pids,
}

impl Resource {
    /// Returns the name used in messages and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }

    /// Tells whether amounts are bytes, which are written with binary suffixes; all else with decimal ones.
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Memory | Self::EphemeralStorage)
    }

    /// Whether it is freed only when files are removed.
    #[must_use]
    pub const fn is_on_disk(self) -> bool {
        matches!(self, Self::EphemeralStorage | Self::Inodes)
    }
}

impl Signal {
    /// Returns what the signal counts.
    #[must_use]
    pub const fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => Resource::EphemeralStorage,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => Resource::Inodes,
            Self::PidAvailable => Resource::Pids,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The name is not one of the nine signals.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unsupported eviction signal {0}")]
pub struct UnsupportedSignal(pub String);

impl FromStr for Signal {
    type Err = UnsupportedSignal;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == text).ok_or_else(|| UnsupportedSignal(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for signal in Signal::ALL {
            assert_eq!(signal.as_str().parse(), Ok(signal));
        }
        let error = "memory.Available".parse::<Signal>().unwrap_err();
        assert_eq!(error.to_string(), "unsupported eviction signal memory.Available");
    }
}
