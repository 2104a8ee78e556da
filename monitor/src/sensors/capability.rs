//! A capability that the agent may lack and still run.

use crate::units::Signal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// The unique name in logs, `/readyz` and metrics.
    pub name: &'static str,
    /// The agent's behaviour without the capability.
    pub effect: &'static str,
}

impl Capability {
    pub const fn new(name: &'static str, effect: &'static str) -> Self {
        Self { name, effect }
    }
}

pub(super) const VMSTAT: Capability =
    Capability::new("vmstat", "refaults, swap rates and the kernel's own counts are not known");
pub(super) const PIDS: Capability = Capability::new(Signal::PidAvailable.as_str(), "the signal is not observed");
pub(super) const ALLOCATABLE: Capability = Capability::new(
    Signal::AllocatableMemoryAvailable.as_str(),
    "the memory of all pods is not observed: no threshold on it is met, and system daemons are not compared with their reservation",
);
pub(super) const PRESSURE: Capability =
    Capability::new("pressureConditions", "the condition stays as it is until there are figures");
pub(super) const SWAP: Capability = Capability::new(
    "evictions.waitForSwap",
    "an eviction does not wait while the kernel swaps out as fast as memory falls",
);
pub(super) const INODES: Capability = Capability::new("inodes", "free inodes are not observed");
pub(super) const DISK_USAGE: Capability = Capability::new("disk_usage", "disk usage is not measured");
pub(super) const WORKLOADS: Capability =
    Capability::new("workloads", "part of the cgroup tree cannot be read: the last known workloads stay known");
pub(super) const CUT: Capability =
    Capability::new("cgroups", "the cgroups beyond the limit are not attributed, and none of them is evicted alone");
