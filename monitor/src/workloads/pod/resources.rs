//! What a pod asks for, all its containers together.

use super::{Container, Pod, ResourceList, ResourceName, Resources, Spec};
use crate::config::{Quirk, Quirks};
use crate::units::{Amount, Quantity, Resource};

impl ResourceList {
    /// The amount of a resource, if it is named.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.iter().find(|(known, _)| known.as_str() == name).map(|(_, quantity)| quantity)
    }

    /// Names anything that can be asked for by the pod as a whole. Local storage cannot.
    fn names_pod_level(&self) -> bool {
        self.0.iter().any(|(name, _)| match name {
            ResourceName::Cpu | ResourceName::Memory => true,
            ResourceName::EphemeralStorage => false,
            ResourceName::Other(name) => name.starts_with("hugepages-"),
        })
    }
}

impl Resources {
    fn requests(&self) -> &ResourceList {
        &self.requests
    }
}

impl Pod {
    /// Tells whether the pod as a whole requests or limits anything, so that its containers' requests no longer count.
    /// `spec.resources: {}` does not, huge pages alone do.
    #[must_use]
    pub fn has_pod_level_resources(&self) -> bool {
        let says_something = |of_pod: &Resources| of_pod.requests.names_pod_level() || of_pod.limits.names_pod_level();
        self.spec.resources.as_ref().is_some_and(says_something)
    }

    /// Returns what the pod as a whole requests, if it requests anything.
    #[must_use]
    pub fn pod_level_requests(&self) -> Option<&ResourceList> {
        self.spec.resources.as_ref().map(Resources::requests).filter(|requests| requests.names_pod_level())
    }

    /// Returns how much of a resource the pod requested, overhead included (`eviction-semantics.md` §5). Of inodes and process ids
    /// that is nothing: nobody can request them.
    #[must_use]
    pub fn request(&self, resource: Resource, quirks: Quirks) -> Amount {
        if !resource.is_bytes() {
            return Amount::ZERO;
        }
        let requested = if !self.has_pod_level_resources() {
            self.container_request(resource)
        } else if resource == Resource::Memory {
            self.pod_level_requests()
                .and_then(|requests| requests.get(resource.as_str()))
                .map_or(Amount::ZERO, Quantity::amount)
        } else if quirks.has(Quirk::PodLevelHidesStorageRequest) {
            Amount::ZERO
        } else {
            self.container_request(resource)
        };
        match self.spec.overhead.get(resource.as_str()) {
            // Who requests nothing is not given the overhead as a request.
            Some(overhead) if !requested.is_zero() => requested + overhead.amount(),
            _ => requested,
        }
    }

    /// Returns how much of a resource the containers requested together, whatever the pod as a whole says.
    #[must_use]
    pub fn container_request(&self, resource: Resource) -> Amount {
        let request = |container: &Container| container.resources.requests.get(resource.as_str()).map(Quantity::amount);
        together(&self.spec, request, |sum, next| sum + *next).unwrap_or_default()
    }

    /// Returns how much local storage the pod may use in all, where any of its containers has a limit (`eviction-semantics.md` §8).
    #[must_use]
    pub fn ephemeral_storage_limit(&self) -> Option<Quantity> {
        let name = Resource::EphemeralStorage.as_str();
        let limit = |container: &Container| container.resources.limits.get(name).cloned();
        let limit = together(&self.spec, limit, |sum: Quantity, next| sum.sum(next))?;
        match self.spec.overhead.get(name) {
            Some(overhead) if !limit.is_zero() => Some(limit.sum(overhead)),
            _ => Some(limit),
        }
    }
}

/// Adds up what the containers and sidecars, which all run at once, ask for; or takes what an init container and the sidecars
/// started before it ask for, where that is more. Nothing, where none of them names it.
fn together<'a, T: Clone + Ord>(
    spec: &'a Spec,
    asked: impl Fn(&'a Container) -> Option<T>,
    add: impl Fn(T, &T) -> T,
) -> Option<T> {
    let plus = |sum: Option<T>, next: &Option<T>| match (sum, next) {
        (Some(sum), Some(next)) => Some(add(sum, next)),
        (sum, next) => sum.or_else(|| next.clone()),
    };
    let mut running = spec.containers.iter().fold(None, |sum, container| plus(sum, &asked(container)));
    let (mut sidecars, mut starting) = (None, None);
    for container in &spec.init_containers {
        let own = asked(container);
        if container.is_sidecar() {
            running = plus(running, &own);
            sidecars = plus(sidecars, &own);
        } else {
            starting = plus(own, &sidecars).max(starting);
        }
    }
    // Of equals `max` takes the second, as a limit is printed the way the kubelet comes upon it first.
    starting.max(running)
}

#[cfg(test)]
#[path = "resources_tests.rs"]
mod tests;
