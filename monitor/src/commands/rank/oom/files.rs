//! The containers of a node that consists of files. The kernel chooses a process; a container's figure is the most that its processes hold.

use std::collections::HashMap;

use crate::config::Policy;
use crate::eviction::oom_score::container_adjustments;
use crate::units::Bytes;
use crate::workloads::kubelet_summary::{ContainerStats, NodeStats, PodStats};
use crate::workloads::{Pod, Summary};

use super::{OomOrder, Subject};

/// Orders the containers of the pods. Returns nothing if the summary does not say how much memory the node has.
pub fn of_files(pods: &[Pod], summary: &Summary, policy: &Policy) -> Option<OomOrder> {
    let memory = memory(&summary.node)?;
    let by_uid: HashMap<&str, &PodStats> =
        summary.pods.iter().map(|stats| (stats.pod_ref.uid.as_str(), stats)).collect();
    let of_pod = |pod: &Pod| {
        let uids = [Some(pod.metadata.uid.as_str()), pod.mirrored_uid()];
        let stats = uids.into_iter().flatten().find_map(|uid| by_uid.get(uid));
        stats.map_or_else(Vec::new, |stats| subjects(pod, stats, memory, policy))
    };
    let subjects = pods.iter().filter(|pod| pod.is_active()).flat_map(of_pod).collect();
    let swap = summary
        .node
        .swap
        .map_or(0, |swap| swap.swap_available_bytes.unwrap_or(0).saturating_add(swap.swap_usage_bytes.unwrap_or(0)));
    Some(OomOrder::of(subjects, Bytes(memory.0.saturating_add(swap)), false))
}

/// The memory of the node, of which the Summary API knows two parts.
fn memory(node: &NodeStats) -> Option<Bytes> {
    let memory = node.memory?;
    let total = memory.available_bytes?.checked_add(memory.working_set_bytes?)?;
    (total > 0).then_some(Bytes(total))
}

fn subjects(pod: &Pod, stats: &PodStats, memory: Bytes, policy: &Policy) -> Vec<Subject> {
    let values = container_adjustments(pod, memory.signed(), &policy.oom_scores, policy.quirks);
    let adj = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, adj)| *adj);
    let subject = |part: &str, usage: u64, adj: i64| Subject {
        workload: pod.full_name(),
        part: part.to_owned(),
        pid: None,
        usage: Bytes(usage),
        adj,
    };
    let of_container =
        |container: &ContainerStats| Some(subject(&container.name, usage(container)?, adj(&container.name)?));
    let containers: Vec<Subject> = stats.containers.iter().filter_map(of_container).collect();
    if !containers.is_empty() {
        return containers;
    }
    // Without figures of containers the pod's largest value stands for all.
    let of_pod = stats.memory.and_then(|memory| memory.rss_bytes.or(memory.working_set_bytes));
    let largest = values.iter().map(|(_, adj)| *adj).max();
    of_pod.zip(largest).map(|(usage, adj)| subject("", usage, adj)).into_iter().collect()
}

/// Returns the anonymous memory, which is what the kernel counts beside mapped files; the working set has page cache in it.
fn usage(container: &ContainerStats) -> Option<u64> {
    let memory = container.memory?;
    memory.rss_bytes.or(memory.working_set_bytes)
}

/// Returns the number of containers of which only the working set is known, which is more than the kernel counts.
pub fn working_sets(summary: &Summary) -> usize {
    let lacks = |container: &&ContainerStats| container.memory.is_some_and(|memory| memory.rss_bytes.is_none());
    summary.pods.iter().map(|pod| pod.containers.iter().filter(lacks).count()).sum()
}
