//! Composes the message of an eviction for a threshold, letter by letter like the kubelet's (`eviction-semantics.md` §9). Without
//! [`crate::config::Quirk::MessageWithoutVolumes`] an eviction for a disk names what the pod holds there, its volumes included.

use std::fmt::Write as _;

use crate::config::Policy;
use crate::units::{Amount, Quantity, Resource};
use crate::workloads::Pod;
use crate::workloads::kubelet_summary::{ContainerStats, PodStats};
use crate::workloads::pod::Container;

use super::disk_holding::DiskHolding;
use super::names::Names;
use super::usage::units;
use super::{Layout, MetThreshold};

/// Returns the message and the annotations of the event. For a pod without statistics the message names only the threshold, and there
/// are no annotations.
pub fn compose(
    policy: &Policy,
    layout: Layout,
    acted_on: &MetThreshold,
    pod: &Pod,
    stats: Option<&PodStats>,
) -> (String, Vec<(&'static str, String)>) {
    let resource = acted_on.threshold.signal.resource();
    let mut message = format!(
        "The node was low on resource: {}. Threshold quantity: {}, available: {}. ",
        resource.as_str(),
        acted_on.threshold.value.quantity_text(acted_on.value.capacity, policy.quirks),
        Quantity::from_units(acted_on.value.available, resource.is_bytes()),
    );
    let Some(stats) = stats else { return (message, Vec::new()) };
    let mut annotations = Vec::new();
    let holding = DiskHolding::of(policy, acted_on.threshold.signal, layout, pod, stats);
    let of_pod = holding.as_ref().and_then(DiskHolding::usage_above_request);
    if let Some((usage, request)) = of_pod.or_else(|| pod_usage(resource, pod, stats)) {
        let name = &pod.metadata.name;
        say(&mut message, "Pod", name, &usage, &request, resource);
        annotations.push(("offending_pod", name.clone()));
        annotations.push(("offending_pod_usage", usage));
    }
    message.extend(holding.iter().flat_map(DiskHolding::volumes));
    let (mut names, mut usages) = (Vec::new(), Vec::new());
    let containers = [&pod.spec.containers, &pod.spec.init_containers].map(|all| Names::new(all, |it| &it.name));
    for container in &stats.containers {
        let asked = containers.iter().find_map(|all| all.first(&container.name));
        let told = asked.and_then(|asked| usage_above_request(resource, pod, asked, container));
        let told = told.filter(|_| holding.as_ref().is_none_or(|holding| holding.is_worth_naming(container)));
        if let Some((usage, request)) = told {
            say(&mut message, "Container", &container.name, &usage, &request, resource);
            names.push(container.name.as_str());
            usages.push(usage);
        }
    }
    annotations.push(("offending_containers", names.join(",")));
    annotations.push(("offending_containers_usage", usages.join(",")));
    annotations.push(("starved_resource", resource.as_str().to_owned()));
    (message, annotations)
}

fn say(message: &mut String, kind: &str, name: &str, usage: &str, request: &str, resource: Resource) {
    let resource = resource.as_str();
    // Writing to a String does not fail.
    let _ = write!(
        message,
        "{kind} {name} was using {usage}, request is {request}, has larger consumption of {resource}. "
    );
}

/// Returns the usage and the request of the pod as a whole, if it has a pod-level request for memory. The message names them whether or
/// not the request is exceeded.
fn pod_usage(resource: Resource, pod: &Pod, stats: &PodStats) -> Option<(String, String)> {
    let requests = &pod.spec.resources.as_ref().filter(|_| resource == Resource::Memory)?.requests;
    let request = requests.get(resource.as_str())?;
    let usage = stats.memory.as_ref()?.working_set_bytes.unwrap_or(0);
    Some((text(usage), request.to_string()))
}

/// Returns the usage and the request of a container that uses more than it requested. Callers leave out containers for debugging: they
/// cannot request anything, so the message would always name them.
fn usage_above_request(
    resource: Resource,
    pod: &Pod,
    container: &Container,
    stats: &ContainerStats,
) -> Option<(String, String)> {
    let usage = match resource {
        Resource::Memory => stats.memory?.working_set_bytes?,
        Resource::EphemeralStorage => stats.rootfs?.used_bytes?.wrapping_add(stats.logs?.used_bytes?),
        Resource::Inodes | Resource::Pids => return None,
    };
    let request = pod.allocated_request(container, resource);
    let above = units(Some(usage)) > request.map_or(Amount::ZERO, Quantity::amount);
    above.then(|| (text(usage), request.map_or_else(|| "0".to_owned(), Quantity::to_string)))
}

fn text(bytes: u64) -> String {
    Quantity::from_units(bytes.cast_signed(), true).to_string()
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
