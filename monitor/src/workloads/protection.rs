//! The reasons for which a workload is exempt from eviction.

use std::fmt;

use crate::units::named_enum;

named_enum! {
    pub enum Protection {
        Init = "holds process 1",
        Agent = "holds this agent",
        /// The configuration or the built-in list names the workload.
        Named = "named as protected",
        /// Root has set `user.oomd_omit` on its cgroup.
        Omit = "user.oomd_omit is set",
        /// A static pod is critical, whatever its class.
        StaticPod = "a static pod",
        /// A mirror pod is the API server's object for a static pod.
        MirrorPod = "the mirror of a static pod",
        /// The pod has the priority of a system-critical pod.
        CriticalPriority = "critical by its priority",
        /// `kubernetes.protect.daemonSets`.
        DaemonSet = "a pod of a DaemonSet",
        /// One of `kubernetes.protect.annotations`.
        Annotation = "protected by an annotation",
        /// One of `kubernetes.protect.namespaces`.
        Namespace = "in a protected namespace",
        /// `kubernetes.protect.priorityAtLeast`.
        Priority = "protected by its priority",
        /// `kubernetes.protect.localStorage`.
        LocalStorage = "has local storage",
        /// `kubernetes.protect.persistentVolumes`.
        PersistentVolume = "has a persistent volume",
        /// `kubernetes.protect.unowned`.
        Unowned = "no controller would recreate it",
        /// The workload contains other workloads, which are candidates themselves.
        HoldsOthers = "contains other workloads",
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
