//! The reasons for which a workload is exempt from eviction.

use std::fmt;

/// Why a workload is exempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    Init,
    Agent,
    /// The configuration or the built-in list names it.
    Named,
    /// Root has set `user.oomd_omit` on its cgroup.
    Omit,
    /// A static pod: critical, whatever its class.
    StaticPod,
    /// The mirror pod: the API server's object for a static pod.
    MirrorPod,
    /// The priority of a system-critical pod.
    CriticalPriority,
    /// `kubernetes.protect.daemonSets`.
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
    /// It contains other workloads, which are candidates themselves.
    HoldsOthers,
}

impl Protection {
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
            Self::Unowned => "no controller would recreate it",
            Self::HoldsOthers => "contains other workloads",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
