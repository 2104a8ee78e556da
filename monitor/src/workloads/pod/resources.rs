//! Sums of the requests and limits of a pod's containers.

use super::object::{Container, Pod, ResourceList, Resources, Spec};
use crate::config::{Quirk, Quirks};
use crate::units::{Amount, Quantity, Resource};

impl Pod {
    /// Returns whether the pod as a whole has requests or limits, which hide the requests of its containers. `spec.resources: {}`
    /// does not count, but huge pages alone do.
    pub fn has_pod_level_resources(&self) -> bool {
        let is_set = |of_pod: &Resources| of_pod.requests.names_pod_level() || of_pod.limits.names_pod_level();
        self.spec.resources.as_ref().is_some_and(is_set)
    }

    /// Returns the requests of the pod as a whole, if there are any.
    pub fn pod_level_requests(&self) -> Option<&ResourceList> {
        self.spec.resources.as_ref().map(|of_pod| &of_pod.requests).filter(|requests| requests.names_pod_level())
    }

    /// Returns the pod's request including overhead (`eviction-semantics.md` §5), as far as the kubelet has allocated it. It is zero for inodes and process ids, which cannot be
    /// requested.
    pub fn request(&self, resource: Resource, quirks: Quirks) -> Amount {
        if !resource.is_bytes() {
            return Amount::ZERO;
        }
        let requested = if !self.has_pod_level_resources() {
            self.container_request(resource)
        } else if resource == Resource::Memory {
            self.allocated_pod_level_request(resource).map_or(Amount::ZERO, Quantity::amount)
        } else if quirks.has(Quirk::PodLevelHidesStorageRequest) {
            Amount::ZERO
        } else {
            self.container_request(resource)
        };
        let claimed = match resource {
            Resource::Memory if !quirks.has(Quirk::ClaimedMemoryIgnored) => self.claimed_memory(),
            _ => Amount::ZERO,
        };
        match self.spec.overhead.get(resource.as_str()) {
            // Overhead counts only for a pod that requests the resource.
            Some(overhead) if !requested.is_zero() => requested + overhead.amount() + claimed,
            _ => requested + claimed,
        }
    }

    /// Returns the sum of the containers' allocated requests, whatever the pod as a whole requests.
    pub fn container_request(&self, resource: Resource) -> Amount {
        combined(
            &self.spec,
            |container| self.allocated_request(container, resource).map(Quantity::amount),
            |sum, next| sum + *next,
        )
        .unwrap_or_default()
    }

    /// Returns the pod's limit of local storage, if any of its containers has one (`eviction-semantics.md` §8).
    pub fn ephemeral_storage_limit(&self) -> Option<Quantity> {
        let name = Resource::EphemeralStorage.as_str();
        let limit = |container: &Container| container.resources.limits.get(name).cloned();
        let limit = combined(&self.spec, limit, |sum: Quantity, next| sum.sum(next))?;
        match self.spec.overhead.get(name) {
            Some(overhead) if !limit.is_zero() => Some(limit.sum(overhead)),
            _ => Some(limit),
        }
    }
}

/// Returns the larger of two sums: of all containers and sidecars, which run together; of an init container and the sidecars started before
/// it. Returns `None` if no container names the resource.
pub(super) fn combined<'a, T: Clone + Ord>(
    spec: &'a Spec,
    quantity_of: impl Fn(&'a Container) -> Option<T>,
    add: impl Fn(T, &T) -> T,
) -> Option<T> {
    let plus = |sum: Option<T>, next: &Option<T>| match (sum, next) {
        (Some(sum), Some(next)) => Some(add(sum, next)),
        (sum, next) => sum.or_else(|| next.clone()),
    };
    let mut running = spec.containers.iter().fold(None, |sum, container| plus(sum, &quantity_of(container)));
    let (mut sidecars, mut starting) = (None, None);
    for container in &spec.init_containers {
        let own = quantity_of(container);
        if container.is_sidecar() {
            running = plus(running, &own);
            sidecars = plus(sidecars, &own);
        } else {
            starting = plus(own, &sidecars).max(starting);
        }
    }
    // Of equal values `max` returns the second, so the limit keeps the text that the kubelet prints.
    starting.max(running)
}

#[cfg(test)]
#[path = "resources_tests.rs"]
mod tests;
