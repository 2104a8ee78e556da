//! The remedy for each missing capability. `doctor` says more, because it looks at the machine.

/// For a probe, a tracepoint or a whole rung of signals.
const KERNEL: &str = "run `node-pressure-monitor doctor` as root on the node: it names the kernel feature or the capability that is missing";
const API_SERVER: &str = "look at the API server and the network; check the agent's ClusterRole and its token with `node-pressure-monitor doctor`";
const DIRECTORY: &str = "make the directory writable for the agent, and free space on its disk";

/// Returns the mend of a capability by its name, as in the metric `capability_missing`.
pub(super) const fn mend(capability: &str) -> Option<&'static str> {
    Some(match capability.as_bytes() {
        b"configuration" => {
            "correct the file: `node-pressure-monitor check-config FILE` names the line and the fix; the configuration before stays in force"
        }
        b"pool" => "give the node a label that the configuration's pools name, or a pool without a selector",
        b"arming" => {
            "wait until the node has recovered, correct the threshold, or set evictions.actOnPresentPressure: true"
        }
        b"sampling" => "see the log: /proc/meminfo must be readable for the agent",
        b"container runtime" => "start the runtime, or set runtime in the configuration to its socket",
        b"API server" | b"node object" | b"events" | b"heartbeat" | b"pods as written" => API_SERVER,
        b"pods" => "write the file again: kubectl get pods -A -o json --field-selector spec.nodeName=NODE",
        b"incident journal" | b"decision state" | b"eviction ledger" => DIRECTORY,
        b"serving" => "correct the certificate, key or token file that the log names",
        b"bearerToken" => "connect the agent to the API server, or leave metrics.tokenReview out",
        b"namespaces" => "run the agent in the host's namespaces: hostPID: true, and no private cgroup namespace",
        b"nested cgroups" => {
            "write 1 to memory.use_hierarchy at boot before other cgroups are made, or boot with cgroup v2"
        }
        b"oom_score_adj" | b"own oom_score_adj" => "run the agent as root with CAP_SYS_RESOURCE",
        b"memory.reclaim" => "boot Linux 5.19 or later with cgroup v2, or set evictions.reclaimDeadline: 0s",
        b"counter error" => "set the threshold above the error that the log names",
        b"pid.available"
        | b"allocatableMemory.available"
        | b"vmstat"
        | b"pressureConditions"
        | b"evictions.waitForSwap"
        | b"inodes"
        | b"OOM constraint"
        | b"PSI trigger"
        | b"OOM kills in the kernel's log" => KERNEL,
        b"disk_usage" => "see the log: it names the directory that cannot be measured",
        b"workloads" | b"cgroups" => "see the log: it names the part of the cgroup tree",
        _ if is_tracepoint(capability.as_bytes()) => KERNEL,
        _ => return None,
    })
}

/// `oom:mark_victim` and the like.
const fn is_tracepoint(name: &[u8]) -> bool {
    let mut rest = name;
    while let [first, after @ ..] = rest {
        match first {
            b':' => return true,
            b' ' => return false,
            _ => rest = after,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster;

    #[test]
    fn capabilities_are_known_by_the_names_that_the_agent_uses() {
        let of_agent = [
            cluster::CAPABILITY,
            cluster::ledger::CAPABILITY,
            crate::runtime::CAPABILITY,
            crate::incidents::writer::CAPABILITY,
            crate::actions::kept_state::CAPABILITY,
            crate::actions::self_protection::SCORES,
            crate::actions::self_protection::OWN_SCORE,
            crate::node::NESTED_ACCOUNTING,
            crate::node::pool_choice::CAPABILITY,
            "oom:mark_victim",
        ];
        for capability in of_agent {
            assert!(mend(capability).is_some(), "{capability}");
        }
        assert_eq!(mend("something else: new"), None);
    }
}
