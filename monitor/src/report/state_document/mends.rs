//! The remedy for each missing capability. `doctor` says more, because it looks at the machine.

use crate::report::configuration_state::RESTART_NEEDED;
use crate::units::NOTHING_TO_DO;

/// For a probe, a tracepoint or a whole rung of signals.
const KERNEL: &str = "run `node-pressure-monitor doctor` as root on the node: it names the kernel feature or the capability that is missing";
const API_SERVER: &str = "look at the API server and the network; check the agent's ClusterRole and its token with `node-pressure-monitor doctor`";
const DIRECTORY: &str = "make the directory writable for the agent, and free space on its disk";

/// Returns the mend of a missing capability by its name, as in the metric `capability_missing`, and the reason. `None`: nothing can be done.
pub(super) fn mend(capability: &str, reason: &str) -> Option<&'static str> {
    if reason.contains(NOTHING_TO_DO) {
        return None;
    }
    Some(match capability {
        "configuration" if reason.starts_with(RESTART_NEEDED) => "restart the agent",
        "configuration" => {
            "correct the file: `node-pressure-monitor check-config FILE` names the line and the fix; the configuration before stays in force"
        }
        "pool" => "give the node a label that the configuration's pools name, or a pool without a selector",
        "arming" => {
            "wait until the node has recovered, correct the threshold, or set evictions.actOnPresentPressure: true"
        }
        "sampling" => "see the log: /proc/meminfo must be readable for the agent",
        "container runtime" => "start the runtime, or set runtime in the configuration to its socket",
        "API server" | "node object" | "events" | "heartbeat" | "pods as written" => API_SERVER,
        "pods" => "write the file again: kubectl get pods -A -o json --field-selector spec.nodeName=NODE",
        "incident journal" | "decision state" | "eviction ledger" => DIRECTORY,
        "serving" => "correct the certificate, key or token file that the log names",
        "bearerToken" => "connect the agent to the API server, or leave metrics.tokenReview out",
        "namespaces" => "run the agent in the host's namespaces: hostPID: true, and no private cgroup namespace",
        "nested cgroups" => {
            "write 1 to memory.use_hierarchy at boot before other cgroups are made, or boot with cgroup v2"
        }
        "oom_score_adj" | "own oom_score_adj" => "run the agent with CAP_SYS_RESOURCE",
        "memory.reclaim" => "boot Linux 5.19 or later with cgroup v2, or set evictions.reclaimDeadline: 0s",
        "counter error" => "set the threshold above the error that the log names",
        "pid.available"
        | "allocatableMemory.available"
        | "vmstat"
        | "pressureConditions"
        | "evictions.waitForSwap"
        | "inodes"
        | "OOM constraint"
        | "PSI trigger"
        | "eBPF"
        | "eBPF log"
        | "OOM kills in the kernel's log" => KERNEL,
        "locked memory" => "run the agent with CAP_IPC_LOCK",
        "own priority" => "run the agent with CAP_SYS_NICE",
        "open files" => "raise the limit of open files (LimitNOFILE in the unit)",
        "notifications" => "see the log: it names the receiver that does not accept them",
        "filesystems" | "nodefs" | "imagefs" | "containerfs" => {
            "see the log: it names the directory or the disk that does not answer; filesystems in the configuration names other paths"
        }
        _ if is_of_filesystem(capability) => "leave the threshold on this signal out of the configuration",
        "disk_usage" => "see the log: it names the directory that cannot be measured",
        "workloads" | "cgroups" => "see the log: it names the part of the cgroup tree",
        _ if is_tracepoint(capability) => KERNEL,
        _ => return None,
    })
}

/// `oom:mark_victim` and the like.
fn is_tracepoint(name: &str) -> bool {
    name.split_once(':').is_some_and(|(category, _)| !category.contains(' '))
}

/// A signal that a filesystem does not have.
fn is_of_filesystem(name: &str) -> bool {
    let role = name.split_once('.').map(|(role, _)| role);
    matches!(role, Some("nodefs" | "imagefs" | "containerfs"))
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
            crate::report::notifications::CAPABILITY,
            "oom:mark_victim",
            "eBPF",
            "locked memory",
            "own priority",
            "open files",
            "nodefs",
            "nodefs.inodesFree",
        ];
        for capability in of_agent {
            assert!(mend(capability, "a reason").is_some(), "{capability}");
        }
        assert_eq!(mend("something else: new", "a reason"), None);
    }

    #[test]
    fn what_the_kernel_lacks_for_good_has_no_mend() {
        let reason = format!("kprobe:oom_kill_process: this kernel has no kprobes; {NOTHING_TO_DO}; unknown");
        assert_eq!(mend("OOM constraint", &reason), None);
    }

    #[test]
    fn fields_that_need_a_restart_are_mended_by_one() {
        let config = crate::report::ConfigState::started(None, std::time::SystemTime::now());
        let restart = crate::report::ConfigState { needs_restart: vec!["kernel"], ..config.clone() };
        let refused = crate::report::ConfigState { refused: Some("m.yaml:3: mode".to_owned()), ..config };
        let of = |state: crate::report::ConfigState| mend("configuration", &state.words().1);
        assert_eq!(of(restart), Some("restart the agent"));
        assert!(of(refused).is_some_and(|mend| mend.starts_with("correct the file")));
    }
}
