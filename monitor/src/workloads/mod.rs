//! Workloads: what can be evicted as a whole, found in the cgroup tree.

pub mod containers;
pub mod lenient;
pub mod marks;
pub mod membership;
mod oom_kills;
pub mod path;
pub mod pids;
pub mod pod;
pub mod processes;
pub mod specs;
pub mod statistics;
pub mod tree;
mod walk;

use std::fmt;
use std::sync::Arc;

use crate::units::{Amount, Bytes, CgroupId, Resource};

pub use marks::Preference;
pub use path::{PodUid, QosClass};
pub use pod::Pod;
pub use specs::{PodSpecs, PodsFile};
pub use statistics::Summary;
pub use tree::WorkloadTree;

/// What kind of cgroup a workload is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A Kubernetes pod with all its containers.
    Pod(PodUid),
    /// A systemd service.
    Service,
    /// A systemd scope.
    Scope,
    /// A container outside Kubernetes; the id is the runtime's.
    Container(String),
    /// Another cgroup that holds processes.
    Cgroup,
}

impl Kind {
    /// The pod that it is, if it is one.
    #[must_use]
    pub const fn pod_uid(&self) -> Option<&PodUid> {
        match self {
            Self::Pod(uid) => Some(uid),
            Self::Service | Self::Scope | Self::Container(_) | Self::Cgroup => None,
        }
    }
}

/// Why a workload is never a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// It holds process 1.
    Init,
    /// It holds the agent.
    Agent,
    /// It is named in the configuration or in the built-in list.
    Named,
    /// `user.oomd_omit` is set on its cgroup by root.
    Omit,
    /// A static pod of Kubernetes: critical, whatever its class.
    StaticPod,
    /// What stands for a static pod at the API server.
    MirrorPod,
    /// A pod that the system needs, by its priority.
    CriticalPriority,
    /// A pod of a DaemonSet (`kubernetes.protect.daemonSets`).
    DaemonSet,
    /// One of `kubernetes.protect.annotations`.
    Annotation,
    /// One of `kubernetes.protect.namespaces`.
    Namespace,
    /// `kubernetes.protect.priorityAtLeast`.
    Priority,
    /// `kubernetes.protect.localStorage`.
    LocalStorage,
    /// `kubernetes.protect.persistentVolumes`.
    PersistentVolume,
    /// `kubernetes.protect.unowned`.
    Unowned,
    /// Other workloads live inside it; they are candidates themselves.
    HoldsOthers,
}

impl Protection {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "holds process 1",
            Self::Agent => "holds this agent",
            Self::Named => "named as protected",
            Self::Omit => "user.oomd_omit is set",
            Self::StaticPod => "a static pod",
            Self::MirrorPod => "the mirror of a static pod",
            Self::CriticalPriority => "critical by its priority",
            Self::DaemonSet => "a pod of a DaemonSet",
            Self::Annotation => "protected by an annotation",
            Self::Namespace => "in a protected namespace",
            Self::Priority => "protected by its priority",
            Self::LocalStorage => "has local storage",
            Self::PersistentVolume => "has a persistent volume",
            Self::Unowned => "no controller would make it anew",
            Self::HoldsOthers => "holds other workloads",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Path of its cgroup relative to the memory hierarchy's root.
    pub name: String,
    /// Identity of that cgroup: a cgroup made later at the same path has another.
    pub id: CgroupId,
    /// What it is.
    pub kind: Kind,
    /// By Kubernetes' path, or by `memory.min`, `memory.low` and `memory.max`.
    pub qos: QosClass,
    /// Memory it was promised: what the pod requests, or as the cgroup has it; zero when nothing says so.
    pub request: Bytes,
    /// `user.oomd_avoid`.
    pub preference: Preference,
    /// Why it is never a candidate, if so.
    pub protection: Option<Protection>,
    /// The pod as it was asked for, where somebody tells: the API server, or the file of pods. Stays as it was known last for as long as
    /// the cgroup lives.
    pub pod: Option<Arc<Pod>>,
}

/// A workload's memory at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadUsage {
    /// Which workload.
    pub workload: Workload,
    /// Usage minus inactive file memory; at most this when not exact.
    pub working_set: Bytes,
    /// False when inactive file memory was not looked up: that takes the kernel as long as all else together.
    pub exact: bool,
    /// What it is ranked by when something other than memory is short.
    pub other: Option<OtherUsage>,
}

/// How much a workload uses of a resource that is not memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherUsage {
    /// Of what.
    pub resource: Resource,
    /// How much; nothing while that is not known.
    pub used: Option<Amount>,
    /// How much it requested; nothing for what cannot be requested.
    pub request: Option<Amount>,
}

/// QoS class of a workload outside Kubernetes: `request` from `memory.min`/`memory.low` (v1: the soft limit), `limit` from
/// `memory.max`. A limit alone promises nothing, so it makes no Guaranteed workload.
#[must_use]
pub fn qos_class(request: Bytes, limit: Option<Bytes>) -> QosClass {
    match (request, limit) {
        (Bytes(0), None) => QosClass::BestEffort,
        (request, Some(limit)) if request >= limit => QosClass::Guaranteed,
        _ => QosClass::Burstable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qos_follows_from_request_and_limit() {
        for (request, limit, qos) in [
            (0, None, QosClass::BestEffort),
            (0, Some(100), QosClass::Burstable),
            (50, None, QosClass::Burstable),
            (50, Some(100), QosClass::Burstable),
            (100, Some(100), QosClass::Guaranteed),
            // memory.low above memory.max protects all that it may use.
            (200, Some(100), QosClass::Guaranteed),
        ] {
            assert_eq!(qos_class(Bytes(request), limit.map(Bytes)), qos, "{request} {limit:?}");
        }
    }
}
