//! The end of a pod, from its status at the API server.

use std::fmt::Write as _;

use crate::cluster::evictions::eviction_requests::{EVICTED, MARK_REASON};
use crate::cluster::fleet::PodStatus;
use crate::commands::output::printable;

/// The kubelet's reason of `DisruptionTarget`.
const BY_KUBELET: &str = "TerminationByKubelet";

/// Returns the phase, the reason, the message, and the component that ended the pod.
pub(super) fn of(status: &PodStatus, pod: &str, node: Option<&str>) -> String {
    let ran = node.map_or_else(|| "ran on no node".to_owned(), |node| format!("ran on {}", printable(node)));
    let mut text = format!("{} {ran} and has ended.\n", printable(pod));
    for (label, value) in [("phase", &status.phase), ("reason", &status.reason), ("message", &status.message)] {
        if !value.is_empty() {
            // Writing to a String does not fail.
            let _ = writeln!(text, "  {label}: {}", printable(value));
        }
    }
    if let Some(disruption) = status.disruption() {
        let _ = writeln!(text, "  DisruptionTarget: {}", printable(&disruption.reason));
        if !disruption.message.is_empty() && disruption.message != status.message {
            let _ = writeln!(text, "    {}", printable(&disruption.message));
        }
    }
    if let Some(who) = ended_by(status) {
        let _ = writeln!(text, "{who}");
    }
    text
}

/// Returns a sentence about the component that ended the pod, as far as its status shows one.
fn ended_by(status: &PodStatus) -> Option<&'static str> {
    let is_evicted = status.reason == EVICTED;
    match status.disruption().map(|disruption| disruption.reason.as_str()) {
        Some(MARK_REASON) => Some("The agent evicted it."),
        Some(BY_KUBELET) if is_evicted => Some("The kubelet evicted it."),
        Some(BY_KUBELET) => Some("The kubelet ended it."),
        Some("EvictionByEvictionAPI") => Some(
            "A client of the eviction API evicted it: the agent, by a soft threshold, or another client such as kubectl drain.",
        ),
        Some("PreemptionByScheduler") => Some("The scheduler preempted it."),
        Some("DeletionByTaintManager") => Some("The taint manager evicted it because of a NoExecute taint."),
        Some("DeletionByPodGC") => Some("The garbage collector of pods ended it."),
        None if is_evicted => {
            Some("The kubelet or the agent evicted it: the condition DisruptionTarget, which names one, is missing.")
        }
        Some(_) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MESSAGE: &str = "The node was low on resource: memory.";

    fn status(disruption: Option<&str>, reason: &str) -> PodStatus {
        let condition =
            |by: &str| json!({"type": "DisruptionTarget", "status": "True", "reason": by, "message": MESSAGE});
        let conditions: Vec<_> = disruption.map(condition).into_iter().collect();
        let json = json!({"phase": "Failed", "reason": reason, "message": MESSAGE, "conditions": conditions});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn an_evicted_pod_is_told_with_the_component_that_evicted_it() {
        let expected = "batch/report ran on worker-1 and has ended.
  phase: Failed
  reason: Evicted
  message: The node was low on resource: memory.
  DisruptionTarget: EvictionByNodePressureMonitor
The agent evicted it.
";
        assert_eq!(of(&status(Some(MARK_REASON), EVICTED), "batch/report", Some("worker-1")), expected);
    }

    #[test]
    fn the_condition_names_the_component() {
        for (disruption, reason, expected) in [
            (Some(BY_KUBELET), EVICTED, "The kubelet evicted it."),
            (Some(BY_KUBELET), "Terminated", "The kubelet ended it."),
            (Some("EvictionByEvictionAPI"), EVICTED, "A client of the eviction API evicted it"),
            (None, EVICTED, "The kubelet or the agent evicted it"),
            (Some("Other"), EVICTED, "DisruptionTarget: Other"),
        ] {
            let text = of(&status(disruption, reason), "a/b", Some("n"));
            assert!(text.contains(expected), "{disruption:?} {reason}: {text}");
        }
        let succeeded: PodStatus = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
        assert_eq!(of(&succeeded, "a/b", Some("n")), "a/b ran on n and has ended.\n  phase: Succeeded\n");
    }
}
