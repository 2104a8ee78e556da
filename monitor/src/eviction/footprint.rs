//! The disk usage of a workload on the node's filesystems, and the part that counts for a signal.

use crate::units::{Amount, Bytes, Monotonic, Resource, Signal};

use super::Layout;
use super::usage::Measured;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Taken {
    /// The bytes of the blocks that the files occupy.
    pub bytes: Bytes,
    /// The number of files, directories and other objects that have an inode.
    pub inodes: u64,
}

/// The disk usage of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUsage {
    /// The usage of the writable layers of its containers.
    pub layers: Taken,
    /// The usage of the logs of its containers.
    pub logs: Taken,
    /// The usage of those of its volumes that lie on the node's own filesystem.
    pub volumes: Taken,
    /// When the oldest of these figures was measured.
    pub at: Monotonic,
}

impl DiskUsage {
    /// Returns how much of the usage lies on the filesystem of `signal` (`eviction-semantics.md` §5), in the signal's unit. Returns zero
    /// for a signal that is not about a filesystem.
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

    /// Checks the table of `eviction-semantics.md` §5: which usage of a workload counts for a signal, by the layout of the filesystems.
    /// Images are charged to no workload, so no workload has usage on a filesystem that holds only images.
    #[test]
    fn usage_on_a_filesystem_depends_on_the_layout() {
        use Signal::{
            ContainerFsAvailable, ContainerFsInodesFree, ImageFsAvailable, ImageFsInodesFree, NodeFsAvailable,
            NodeFsInodesFree,
        };
        // The bytes are powers of ten, so that a sum shows its parts.
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
