//! The reasons for which a workload is exempt from eviction.

use std::fmt;

use crate::units::named_enum;

named_enum! {
    pub enum Protection {
        Init = "holds process 1",
        Agent = "holds this agent",
        /// The configuration or the built-in list names the workload.
        Named = "named as protected",
        /// A program that a user starts in a login session is part of the session.
        Session = "a login session, or what manages them",
        /// Found by the socket on which the container runtime listens, or as the parent of a container.
        Runtime = "runs containers",
        /// Found by the socket, the port or the lock file of the kubelet.
        Kubelet = "runs the kubelet",
        /// The system bus, the device manager, the login manager, the SSH daemon, the network, an init system.
        System = "the system needs it",
        /// Found by input devices that no user may open: the login manager hands them out, to the one program in control of the seat.
        Seat = "holds the seat of a session",
        /// A `.mount` unit, or a process of root's with `/dev/fuse`. The end of a FUSE daemon makes every access to its mount fail.
        Mount = "serves a mount",
        /// It serves a user's session, or a mount of a user's. That protects it only among the workloads of that user.
        ServesUser = "serves the session or a mount of a user",
        /// A process of it has an `oom_score_adj` of -998 or below.
        KillExempt = "has a process with oom_score_adj -998 or below",
        /// `evictions.candidates: pods`.
        NotAPod = "not a pod, and only pods are candidates",
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

impl Protection {
    /// Returns whether it may give way: to the configuration, or to the rule that a user's workloads protect one another only.
    pub const fn is_weak(self) -> bool {
        matches!(self, Self::Mount | Self::ServesUser)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
