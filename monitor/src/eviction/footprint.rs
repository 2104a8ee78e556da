//! What a workload has on the node's filesystems, and how much of that counts for a signal.

use crate::units::{Amount, Bytes, Monotonic, Resource, Signal};

use super::Layout;
use super::usage::Measured;

/// Bytes and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// As many blocks as it occupies.
    pub bytes: Bytes,
    /// Files, directories and whatever else has one.
    pub inodes: u64,
}

/// What a workload has on the disks of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// The writable layers of its containers.
    pub layers: Taken,
    /// Their logs.
    pub logs: Taken,
    /// Its volumes that lie on the node's own filesystem.
    pub volumes: Taken,
    /// When the oldest part of it was measured.
    pub at: Monotonic,
}

impl DiskUsage {
    /// How much of it lies on the filesystem of `signal` (`eviction-semantics.md` §5), in the signal's unit. Nothing where the signal is
    /// of something else.
    pub fn on(&self, signal: Signal, layout: Layout) -> Amount {
        let of = |taken: &Taken| match signal.resource() {
            Resource::EphemeralStorage => Amount::from(taken.bytes),
            Resource::Inodes => Amount::from(Bytes(taken.inodes)),
            Resource::Memory | Resource::Pids => Amount::ZERO,
        };
        let Measured { writable_layers, logs_and_volumes } = Measured::of(signal, layout);
        let mut sum = Amount::ZERO;
        if writable_layers {
            sum = sum + of(&self.layers);
        }
        if logs_and_volumes {
            sum = sum + of(&self.logs) + of(&self.volumes);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `eviction-semantics.md` §5: what is counted of a workload when a signal is low, by the layout of the filesystems. Images
    /// are charged to nobody, so nobody has anything on a filesystem that holds only images.
    #[test]
    fn the_usage_table_of_each_layout() {
        use Signal::{
            ContainerFsAvailable, ContainerFsInodesFree, ImageFsAvailable, ImageFsInodesFree, NodeFsAvailable,
            NodeFsInodesFree,
        };
        // Powers of ten, so that a sum says what it is made of.
        let taken = |bytes, inodes| Taken { bytes: Bytes(bytes), inodes };
        let usage = DiskUsage { layers: taken(100, 7), logs: taken(10, 3), volumes: taken(1, 1), at: Monotonic(0) };
        let (everything, layers, logs_and_volumes, nothing) = ((111, 11), (100, 7), (11, 4), (0, 0));
        for (layout, nodefs, imagefs, containerfs) in [
            (Layout::Single, everything, everything, everything),
            (Layout::DedicatedImageFs, logs_and_volumes, layers, layers),
            (Layout::SplitImageFs, everything, nothing, everything),
        ] {
            for (bytes, inodes, expected) in [
                (NodeFsAvailable, NodeFsInodesFree, nodefs),
                (ImageFsAvailable, ImageFsInodesFree, imagefs),
                (ContainerFsAvailable, ContainerFsInodesFree, containerfs),
            ] {
                let found = (usage.on(bytes, layout).units(), usage.on(inodes, layout).units());
                assert_eq!(found, expected, "{bytes} and {inodes}, {layout:?}");
            }
            for signal in [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable, Signal::PidAvailable] {
                assert_eq!(usage.on(signal, layout), Amount::ZERO, "{signal}");
            }
        }
    }
}
