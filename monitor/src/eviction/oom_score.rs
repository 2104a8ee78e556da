//! `oom_score_adj` by QoS class: whom the kernel's OOM killer should prefer when the agent was too late (`eviction-semantics.md` §15).

use crate::config::{Bytes, OomScores, Quirk, Quirks, Resource};
use crate::workloads::pod::Container;
use crate::workloads::{Pod, QosClass};

const BEST_EFFORT: i64 = 1000;

/// The value for every process of a workload that requested so much of a node's memory.
#[must_use]
pub fn oom_score_adj(qos: QosClass, request: Bytes, capacity: Bytes, scores: OomScores) -> i16 {
    let signed = |bytes: Bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX);
    let adj = match qos {
        QosClass::Guaranteed => i64::from(scores.guaranteed),
        QosClass::BestEffort => BEST_EFFORT,
        QosClass::Burstable => clamp(share(signed(request), signed(capacity)), scores, Quirks::NONE),
    };
    i16::try_from(adj).unwrap_or(999)
}

/// The value for each container of a pod, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adjustments<'a> {
    /// Regular containers, then init containers.
    pub containers: Vec<(&'a str, i64)>,
    /// Containers added for debugging. They request nothing.
    pub ephemeral: Vec<(&'a str, i64)>,
}

/// The values for a pod on a node with so many bytes of memory.
#[must_use]
pub fn adjustments(pod: &Pod, capacity: i64, scores: OomScores, quirks: Quirks) -> Adjustments<'_> {
    let spec = &pod.spec;
    let fixed = fixed(pod, scores, quirks);
    let remaining = remaining_per_container(pod);
    let share_of = |request: i64| share(request.saturating_add(remaining), capacity);
    // A sidecar is needed as long as the container that is killed last.
    let least = spec.containers.iter().map(Container::memory_request).min().unwrap_or(0);
    let value = |container: &Container, is_sidecar: bool| {
        let own = share_of(container.memory_request());
        let adj = if is_sidecar { own.min(share_of(least)) } else { own };
        fixed.unwrap_or_else(|| clamp(adj, scores, quirks))
    };
    let regular = spec.containers.iter().map(|it| (it.name.as_str(), value(it, false)));
    let init = spec.init_containers.iter().map(|it| (it.name.as_str(), value(it, it.is_sidecar())));
    Adjustments {
        containers: regular.chain(init).collect(),
        ephemeral: spec.ephemeral_containers.iter().map(|it| (it.name.as_str(), value(it, false))).collect(),
    }
}

/// Where the class alone decides.
fn fixed(pod: &Pod, scores: OomScores, quirks: Quirks) -> Option<i64> {
    if pod.is_node_critical() {
        return Some(scores.guaranteed.into());
    }
    match pod.qos_class(quirks) {
        QosClass::Guaranteed => Some(scores.guaranteed.into()),
        QosClass::BestEffort => Some(BEST_EFFORT),
        QosClass::Burstable => None,
    }
}

/// What the pod requested beyond its containers, shared among them; less than nothing when it requested less than they did.
fn remaining_per_container(pod: &Pod) -> i64 {
    let Some(request) = pod.pod_level_requests().and_then(|requests| requests.get("memory")) else { return 0 };
    if request.is_zero() {
        return 0;
    }
    let containers = pod.spec.containers.len() + pod.spec.init_containers.len();
    let remaining = request.value_bytes().saturating_sub(pod.container_request(Resource::Memory).units());
    i64::try_from(containers).ok().and_then(|containers| remaining.checked_div(containers)).unwrap_or(0)
}

/// A thousand for nothing, less by the share of the node that was requested.
fn share(request: i64, capacity: i64) -> i64 {
    let thousandths = i128::from(request) * 1000 / i128::from(capacity.max(1));
    i64::try_from(1000 - thousandths).unwrap_or(if request > 0 { i64::MIN } else { i64::MAX })
}

fn clamp(adj: i64, scores: OomScores, quirks: Quirks) -> i64 {
    let most = BEST_EFFORT - 1;
    if adj > BEST_EFFORT && quirks.has(Quirk::OomScoreAdjAbove1000) {
        return adj;
    }
    adj.max(scores.burstable_min.into()).min(most)
}

#[cfg(test)]
#[path = "oom_score_tests.rs"]
mod tests;
