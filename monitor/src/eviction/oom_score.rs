//! Computes `oom_score_adj`, which tells the kernel's OOM killer which processes to prefer (`eviction-semantics.md` §15).

use crate::config::{OomScores, Quirk, Quirks};
use crate::units::{Bytes, Quantity, Resource};
use crate::workloads::pod::Container;
use crate::workloads::{Pod, QosClass};

/// The value for BestEffort pods. Burstable pods get less.
const BEST_EFFORT: i16 = 1000;

/// Returns the value for every process of a workload with this QoS class and memory request, on a node with `capacity` of memory.
pub fn oom_score_adj(qos: QosClass, request: Bytes, capacity: Bytes, scores: OomScores) -> i16 {
    let node = Node { capacity: capacity.signed(), scores, may_exceed: false };
    i16::try_from(node.adj(qos, node.unrequested(request.signed()))).unwrap_or(BEST_EFFORT)
}

/// Returns the value for each container of `pod`, then for each init container, on a node with `capacity` bytes of memory.
pub fn container_adjustments<'a>(
    pod: &'a Pod,
    capacity: i64,
    scores: &OomScores,
    quirks: Quirks,
) -> Vec<(&'a str, i64)> {
    let pod_scores = PodScores::of(pod, capacity, *scores, quirks);
    let containers = pod.spec.containers.iter().map(|container| (container, pod_scores.of_container(container)));
    let init = pod.spec.init_containers.iter().map(|container| (container, pod_scores.of_init_container(container)));
    containers.chain(init).map(|(container, adj)| (container.name.as_str(), adj)).collect()
}

/// The part of the computation that all containers of a pod share.
#[derive(Debug, Clone, Copy)]
pub struct PodScores<'a> {
    pod: &'a Pod,
    node: Node,
    /// The QoS class that the values follow from. A node-critical pod counts as Guaranteed.
    qos: QosClass,
    /// Each container's share of the pod-level request that the containers themselves did not request.
    share: i64,
    /// The smallest request of a regular container.
    least: Option<i64>,
}

impl<'a> PodScores<'a> {
    /// Computes what all containers of `pod` share.
    pub fn of(pod: &'a Pod, capacity: i64, scores: OomScores, quirks: Quirks) -> Self {
        Self {
            pod,
            node: Node { capacity, scores, may_exceed: quirks.has(Quirk::OomScoreAdjAbove1000) },
            qos: if pod.is_node_critical() { QosClass::Guaranteed } else { pod.qos_class(quirks) },
            share: share(pod),
            least: pod.spec.containers.iter().map(|container| request(pod, container)).min(),
        }
    }

    /// Returns the value for a container. A container for debugging requests nothing.
    pub fn of_container(&self, container: &Container) -> i64 {
        self.node.adj(self.qos, self.unrequested(request(self.pod, container)))
    }

    /// Returns the value for an init container. The OOM killer must not prefer a sidecar to the containers that need it, so the value of a
    /// sidecar is at most that of the regular container with the smallest request.
    pub fn of_init_container(&self, container: &Container) -> i64 {
        let own = self.unrequested(request(self.pod, container));
        let served = self.least.filter(|_| container.is_sidecar()).map(|least| self.unrequested(least));
        self.node.adj(self.qos, served.map_or(own, |served| own.min(served)))
    }

    fn unrequested(&self, request: i64) -> i64 {
        self.node.unrequested(request.wrapping_add(self.share))
    }
}

/// Returns the allocated request. The kubelet adds the memory of claims (1.37, `getEffectiveContainerMemoryRequest`).
fn request(pod: &Pod, container: &Container) -> i64 {
    let requested = pod.allocated_request(container, Resource::Memory).map_or(0, Quantity::value_bytes);
    requested.saturating_add(pod.claimed_by(&container.name))
}

/// Returns each container's share of the pod-level request that no container requested. It is negative if the pod requests less than its
/// containers together, which the API server rejects.
fn share(pod: &Pod) -> i64 {
    let of_pod = pod.allocated_pod_level_request(Resource::Memory).filter(|request| !request.is_zero());
    let Some(of_pod) = of_pod else { return 0 };
    let left = of_pod.value_bytes().wrapping_sub(pod.container_request(Resource::Memory).units());
    let containers = pod.spec.containers.len() + pod.spec.init_containers.len();
    i64::try_from(containers).ok().and_then(|containers| left.checked_div(containers)).unwrap_or(0)
}

/// The arithmetic that is the same for all workloads of a node.
#[derive(Debug, Clone, Copy)]
struct Node {
    capacity: i64,
    scores: OomScores,
    /// Whether [`Quirk::OomScoreAdjAbove1000`] applies.
    may_exceed: bool,
}

impl Node {
    /// Returns how many thousandths of the node's memory were not requested. The result is negative if the request exceeds the memory.
    fn unrequested(self, request: i64) -> i64 {
        // A request of more than 8Pi overflows 64 bits here. The kubelet lets the product wrap, so its value may exceed 1000.
        let product = if self.may_exceed { request.wrapping_mul(1000) } else { request.saturating_mul(1000) };
        1000_i64.saturating_sub(product / self.capacity.max(1))
    }

    fn adj(self, qos: QosClass, unrequested: i64) -> i64 {
        let best_effort = i64::from(BEST_EFFORT);
        match qos {
            QosClass::Guaranteed => i64::from(self.scores.guaranteed),
            QosClass::BestEffort => best_effort,
            QosClass::Burstable if unrequested > best_effort && self.may_exceed => unrequested,
            QosClass::Burstable => unrequested.clamp(i64::from(self.scores.burstable_min), best_effort - 1),
        }
    }
}

#[cfg(test)]
#[path = "oom_score_tests.rs"]
mod tests;
