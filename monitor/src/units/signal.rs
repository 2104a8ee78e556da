//! The eviction signals, by the names that Kubernetes gives them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::named_enum;

named_enum! {
    /// A figure that thresholds are compared with.
    #[derive(Serialize, Deserialize)]
    pub enum Signal {
        MemoryAvailable = "memory.available",
        /// Memory of the cgroup that holds all pods.
        AllocatableMemoryAvailable = "allocatableMemory.available",
        /// Bytes on the filesystem of the kubelet's root directory.
        NodeFsAvailable = "nodefs.available",
        NodeFsInodesFree = "nodefs.inodesFree",
        /// Bytes on the filesystem that holds the images.
        ImageFsAvailable = "imagefs.available",
        ImageFsInodesFree = "imagefs.inodesFree",
        /// Bytes on the filesystem that holds the containers' writable layers.
        ContainerFsAvailable = "containerfs.available",
        ContainerFsInodesFree = "containerfs.inodesFree",
        /// Process ids; each thread takes one.
        PidAvailable = "pid.available",
    }
}

named_enum! {
    /// The unit of a signal, by whose usage pods are ranked.
    pub enum Resource {
        Memory = "memory",
        /// Bytes of a filesystem.
        EphemeralStorage = "ephemeral-storage",
        Inodes = "inodes",
        Pids = "pids",
    }
}

impl Resource {
    /// Returns whether amounts are bytes. Bytes are printed with binary suffixes, other amounts with decimal suffixes.
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Memory | Self::EphemeralStorage)
    }

    /// Returns whether only the removal of files frees the resource.
    pub const fn is_on_disk(self) -> bool {
        matches!(self, Self::EphemeralStorage | Self::Inodes)
    }
}

impl Signal {
    pub const fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => Resource::EphemeralStorage,
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => Resource::Inodes,
            Self::PidAvailable => Resource::Pids,
        }
    }
}

impl Signal {
    /// Returns whether only pods are evicted for the signal.
    pub const fn is_of_pods(self) -> bool {
        self.resource().is_on_disk() || matches!(self, Self::AllocatableMemoryAvailable)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is none of the nine signals.
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
    fn every_name_parses_back_to_its_signal() {
        for signal in Signal::ALL {
            assert_eq!(signal.as_str().parse(), Ok(signal));
        }
        let error = "memory.Available".parse::<Signal>().unwrap_err();
        assert_eq!(error.to_string(), "unsupported eviction signal memory.Available");
    }
}
