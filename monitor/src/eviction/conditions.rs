//! What the outside is told: node conditions, the taints that follow from them, and events on the node.

use crate::units::Resource;

use super::NodeCondition;

/// What a node condition is reported with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionText {
    /// `reason` of the condition.
    pub reason: &'static str,
    /// `message` of the condition.
    pub message: &'static str,
    /// `reason` of the event when the status changes.
    pub event: &'static str,
}

impl NodeCondition {
    /// Every condition.
    pub const ALL: [Self; 3] = [Self::MemoryPressure, Self::DiskPressure, Self::PidPressure];

    /// The texts for a status (`eviction-semantics.md` §10).
    pub const fn text(self, status: bool) -> ConditionText {
        let (reason, message, event) = match (self, status) {
            (Self::MemoryPressure, true) => (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
            ),
            (Self::MemoryPressure, false) => {
                ("KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory")
            }
            (Self::DiskPressure, true) => {
                ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure")
            }
            (Self::DiskPressure, false) => {
                ("KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure")
            }
            (Self::PidPressure, true) => {
                ("KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID")
            }
            (Self::PidPressure, false) => {
                ("KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID")
            }
        };
        ConditionText { reason, message, event }
    }

    /// The key of the taint that keeps pods away (effect `NoSchedule`) while the condition is true.
    pub const fn taint_key(self) -> &'static str {
        match self {
            Self::MemoryPressure => "node.kubernetes.io/memory-pressure",
            Self::DiskPressure => "node.kubernetes.io/disk-pressure",
            Self::PidPressure => "node.kubernetes.io/pid-pressure",
        }
    }
}

/// An event on the node: something is to be got back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeEvent {
    /// What runs out.
    pub resource: Resource,
}

impl NodeEvent {
    /// Its `reason`; its type is `Warning`.
    pub const REASON: &'static str = "EvictionThresholdMet";

    /// Its `message`.
    pub fn message(self) -> String {
        format!("Attempting to reclaim {}", self.resource.as_str())
    }
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
