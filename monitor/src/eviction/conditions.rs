//! The texts of node conditions, of the taints that follow from them, and of events on the node.

use crate::units::Resource;

use super::NodeCondition;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConditionText {
    /// The `reason` of the condition.
    pub reason: &'static str,
    /// The `message` of the condition.
    pub message: &'static str,
    /// The `reason` of the event that reports the change of the status.
    pub event: &'static str,
    /// The same beside a kubelet, whose event of that name is about its own condition.
    pub event_beside_kubelet: &'static str,
}

impl NodeCondition {
    /// Returns the texts for a status of the condition (`eviction-semantics.md` §10).
    pub const fn text(self, status: bool) -> ConditionText {
        let (reason, message, event, event_beside_kubelet) = match (self, status) {
            (Self::MemoryPressure, true) => (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
                "NodeHasInsufficientMemory",
                "MonitorHasInsufficientMemory",
            ),
            (Self::MemoryPressure, false) => (
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
                "NodeHasSufficientMemory",
                "MonitorHasSufficientMemory",
            ),
            (Self::DiskPressure, true) => {
                ("KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure", "MonitorHasDiskPressure")
            }
            (Self::DiskPressure, false) => (
                "KubeletHasNoDiskPressure",
                "kubelet has no disk pressure",
                "NodeHasNoDiskPressure",
                "MonitorHasNoDiskPressure",
            ),
            (Self::PidPressure, true) => (
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
                "NodeHasInsufficientPID",
                "MonitorHasInsufficientPID",
            ),
            (Self::PidPressure, false) => (
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
                "NodeHasSufficientPID",
                "MonitorHasSufficientPID",
            ),
        };
        ConditionText { reason, message, event, event_beside_kubelet }
    }

    /// Returns the key of the taint (effect `NoSchedule`) that keeps new pods away while the condition is true.
    pub const fn taint_key(self) -> &'static str {
        match self {
            Self::MemoryPressure => "node.kubernetes.io/memory-pressure",
            Self::DiskPressure => "node.kubernetes.io/disk-pressure",
            Self::PidPressure => "node.kubernetes.io/pid-pressure",
        }
    }
}

/// The `reason` of the event on the node that the agent tries to reclaim a resource. Its type is `Warning`.
pub const RECLAIM_EVENT: &str = "EvictionThresholdMet";
/// The same beside a kubelet, whose event of that name is about its own thresholds.
pub const RECLAIM_EVENT_BESIDE_KUBELET: &str = "MonitorEvictionThresholdMet";

/// Returns the `message` of that event.
pub fn reclaim_message(resource: Resource) -> String {
    format!("Attempting to reclaim {}", resource.as_str())
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
