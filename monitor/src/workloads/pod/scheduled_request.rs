//! The requests that the scheduler counts (`PodRequests` of k8s.io/component-helpers with `UseStatusResources`, Kubernetes 1.37): the most of
//! what the pod asks for, what the kubelet has allocated, and what is in force. While a resize is infeasible, what the pod asks for does
//! not count. Otherwise a pod that is told no would still take the room of others.

use super::allocation::{Told, is_resizable};
use super::object::{Container, Pod};
use super::resources::combined;
use crate::units::Quantity;

impl Pod {
    /// Returns the request of the pod, with its overhead and its claims. Unlike for [`Pod::request`], a resource that the pod as a whole does
    /// not name is that of its containers.
    pub fn scheduled_request(&self, resource: &str) -> Quantity {
        let of_pod = self.scheduled_pod_level_request(resource);
        let requested = of_pod.unwrap_or_else(|| self.scheduled_container_request(resource));
        [&requested].into_iter().chain(self.spec.overhead.get(resource)).sum()
    }

    /// Returns the request in the specification, as the descheduler counts it (0.36).
    pub fn specified_request(&self, resource: &str) -> Quantity {
        let of_pod = self.pod_level_requests().and_then(|requests| requests.get(resource)).cloned();
        let requested = of_pod.unwrap_or_else(|| self.container_sum(|it| specified(it, resource)));
        [&requested].into_iter().chain(self.spec.overhead.get(resource)).sum()
    }

    fn scheduled_pod_level_request(&self, resource: &str) -> Option<Quantity> {
        let specified = self.pod_level_requests()?.get(resource)?;
        let told = if is_resizable(resource) { self.told_of_pod() } else { Told::default() };
        let counted = [told.allocated, told.in_force].into_iter().flatten().filter_map(|list| list.get(resource));
        let wanted = Some(specified).filter(|_| told.is_empty() || !self.is_resize_infeasible());
        counted.chain(wanted).max().cloned()
    }

    fn scheduled_container_request(&self, resource: &str) -> Quantity {
        let claimed = self.claimed(resource);
        let wanted = self.container_sum(|container| specified(container, resource));
        if !is_resizable(resource) {
            return wanted.sum(&claimed);
        }
        let allocated = self.container_sum(|container| match self.told_of(container).allocated {
            Some(allocated) => allocated.get(resource),
            None => specified(container, resource),
        });
        // A kubelet leaves the claims out of what is allocated to containers, and sets what is in force with them.
        let in_force = self.container_sum(|container| match self.told_of(container).in_force_or_allocated() {
            Some(in_force) => in_force.get(resource),
            None => specified(container, resource),
        });
        let counted = allocated.sum(&claimed).max(in_force);
        if self.is_resize_infeasible() { counted } else { counted.max(wanted.sum(&claimed)) }
    }

    fn container_sum<'p>(&'p self, request_of: impl Fn(&'p Container) -> Option<&'p Quantity>) -> Quantity {
        combined(&self.spec, |container| request_of(container).cloned(), |sum: Quantity, next| sum.sum(next))
            .unwrap_or_default()
    }
}

fn specified<'p>(container: &'p Container, resource: &str) -> Option<&'p Quantity> {
    container.resources.requests.get(resource)
}
