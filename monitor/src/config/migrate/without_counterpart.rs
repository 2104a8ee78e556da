//! The fields and flags of a kubelet that concern evictions, or seem to, and have no counterpart in the agent's configuration.

/// Names in a file and as flags, and the reason.
const KNOWN: &[(&[&str], &str)] = &[
    (
        &["config", "configDir", "config-dir"],
        "names another file of the kubelet, which this file does not cover: migrate that file too. Where both give a value, the flag counts",
    ),
    (
        &["experimental-allocatable-ignore-eviction"],
        "decides how the kubelet computes allocatable. The agent's check-config --capacity always subtracts hard thresholds; evictions do not \
         depend on it, except that true switches the threshold for all pods together off (see enforceNodeAllocatable)",
    ),
    (
        &["failSwapOn", "fail-swap-on", "memorySwap"],
        "the agent starts with and without swap. Whether pods may use swap stays the kubelet's decision",
    ),
    (
        &["kernelMemcgNotification", "kernel-memcg-notification", "experimental-kernel-memcg-notification"],
        "the agent receives the kernel's events in any case",
    ),
    (
        &[
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "image-gc-high-threshold",
            "image-gc-low-threshold",
        ],
        "the agent collects images only when a threshold on nodefs or imagefs is met. The kubelet keeps collecting by these shares",
    ),
    (
        &["imageMaximumGCAge", "image-maximum-gc-age"],
        "the agent removes no image because of its age. The kubelet keeps doing so",
    ),
    (
        &["maximum-dead-containers", "maximum-dead-containers-per-container"],
        "the agent collects dead containers when a threshold on a disk is met, and keeps the newest of each name",
    ),
    (
        &["containerLogMaxSize", "containerLogMaxFiles", "container-log-max-size", "container-log-max-files"],
        "the kubelet keeps rotating logs. The agent counts what they use",
    ),
    (
        &["cgroupRoot", "cgroup-root"],
        "the cgroup in which the kubelet creates those of pods. The agent finds them; its own cgroupRoot says where cgroups are mounted",
    ),
    (
        &["oomScoreAdj", "oom-score-adj"],
        "the oom_score_adj of the kubelet's own process. The agent's oomScoreAdj names the scheme for pods",
    ),
    (
        &["singleProcessOOMKill"],
        "decides whether the kernel's OOM killer kills a whole container. The agent always ends a workload as a whole",
    ),
    (&["memoryThrottlingFactor"], "the kubelet sets memory.high of containers by it. The agent sets no limits"),
    (
        &["qosReserved", "qos-reserved", "experimental-qos-reserved", "reservedMemory", "reserved-memory"],
        "the kubelet reserves memory by it. The agent's decisions do not depend on it",
    ),
    (
        &[
            "systemReservedCgroup",
            "kubeReservedCgroup",
            "system-reserved-cgroup",
            "kube-reserved-cgroup",
            "systemCgroups",
            "system-cgroups",
        ],
        "the kubelet sets limits there. The agent compares the memory outside of pods with the sum of both reservations",
    ),
    (&["reservedSystemCPUs", "reserved-cpus"], "CPU time is no signal of evictions"),
    (
        &["podPidsLimit", "pod-max-pids", "pod-pids-limit"],
        "the kubelet sets this limit on each pod. A threshold on pid.available protects the whole node",
    ),
    (
        &["nodeStatusUpdateFrequency", "node-status-update-frequency"],
        "how often the kubelet reports. The agent reports changes at once, and confirms them by kubernetes.heartbeat",
    ),
    (
        &["housekeeping-interval", "volumeStatsAggPeriod", "volume-stats-agg-period"],
        "how often the kubelet measures. The agent samples by `sampling`, more often the closer a threshold is",
    ),
    (
        &["kubeconfig", "kubelet-kubeconfig"],
        "the kubelet's own credentials. The agent needs an account of its own: kubernetes.kubeconfig, or the service account of its pod",
    ),
    (
        &["shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority"],
        "counts for the node's shutdown. No eviction uses it",
    ),
];

/// Returns why a field or flag has no counterpart, or `None` for one that does not concern evictions.
pub fn reason(name: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(names, _)| names.contains(&name)).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_reason() {
        let mut names: Vec<_> = KNOWN.iter().flat_map(|(names, _)| names.iter()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(reason("failSwapOn").is_some() && reason("clusterDNS").is_none());
    }
}
