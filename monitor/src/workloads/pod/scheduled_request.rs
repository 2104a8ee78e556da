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
        let is_infeasible = self.is_resize_infeasible();
        let allocated = self.container_sum(|container| match self.told_of(container) {
            Told { allocated: Some(allocated), .. } => allocated.get(resource),
            told if is_infeasible && !told.is_empty() => None,
            _ => specified(container, resource),
        });
        // A kubelet leaves the claims out of what is allocated to containers, and sets what is in force with them.
        let in_force = self.container_sum(|container| match self.told_of(container).in_force_or_allocated() {
            Some(in_force) => in_force.get(resource),
            None => specified(container, resource),
        });
        let counted = allocated.sum(&claimed).max(in_force);
        if is_infeasible { counted } else { counted.max(wanted.sum(&claimed)) }
    }

    fn container_sum<'p>(&'p self, request_of: impl Fn(&'p Container) -> Option<&'p Quantity>) -> Quantity {
        combined(&self.spec, |container| request_of(container).cloned(), |sum: Quantity, next| sum.sum(next))
            .unwrap_or_default()
    }
}

fn specified<'p>(container: &'p Container, resource: &str) -> Option<&'p Quantity> {
    container.resources.requests.get(resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduled(spec: &str, status: &str) -> (String, String) {
        let pod: Pod = serde_json::from_str(&format!(r#"{{"spec": {spec}, "status": {status}}}"#)).unwrap();
        (pod.scheduled_request("memory").canonical(), pod.specified_request("memory").canonical())
    }

    #[test]
    fn what_a_pod_asks_for_counts_unless_the_node_can_never_have_it() {
        let spec = r#"{"containers": [{"name": "c", "resources": {"requests": {"memory": "10Ti"}}}]}"#;
        for (status, conditions, expected) in [
            ("", "", "10Ti"),
            (r#""resources": {"requests": {"memory": "64"}}"#, "", "10Ti"),
            (r#""resources": {"requests": {"memory": "64"}}"#, "Deferred", "10Ti"),
            (r#""resources": {"requests": {"memory": "64"}}"#, "Infeasible", "64"),
            (
                r#""allocatedResources": {"memory": "32"}, "resources": {"requests": {"memory": "64"}}"#,
                "Infeasible",
                "64",
            ),
            (
                r#""allocatedResources": {"memory": "128"}, "resources": {"requests": {"memory": "64"}}"#,
                "Infeasible",
                "128",
            ),
            // Memory was not requested before.
            (r#""resources": {"requests": {"cpu": "1"}}"#, "Infeasible", "0"),
            // A kubelet without the feature tells nothing.
            ("", "Infeasible", "10Ti"),
        ] {
            let separator = if status.is_empty() { "" } else { "," };
            let status = format!(
                r#"{{"containerStatuses": [{{"name": "c"{separator}{status}}}],
                    "conditions": [{{"type": "Ready", "reason": "Infeasible"}}, {{"type": "PodResizePending", "reason": "{conditions}"}}]}}"#
            );
            assert_eq!(scheduled(spec, &status), (expected.to_owned(), "10Ti".to_owned()), "{status}");
        }
    }

    #[test]
    fn sidecars_overhead_claims_and_the_pod_as_a_whole_count() {
        let infeasible = r#""conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]"#;
        let claims = r#""nodeAllocatableResourceClaimStatuses": [{"containers": ["c"], "mapping": [{"name": "memory", "quantity": "1000"}]}]"#;
        let request = |memory: &str| format!(r#""resources": {{"requests": {{"memory": "{memory}"}}}}"#);
        let of = |memory: &str, rest: &str| {
            format!(
                r#"{{"initContainers": [{{"name": "s", "restartPolicy": "Always", {}}}], "containers": [{{"name": "c", {}}}], "overhead": {{"memory": "5"}}{rest}}}"#,
                request(memory),
                request("10")
            )
        };
        let sidecar = format!(r#""initContainerStatuses": [{{"name": "s", {}}}]"#, request("20"));
        for (spec, status, expected) in [
            (of("1Ti", ""), format!("{{{sidecar}, {infeasible}}}"), "35"),
            (of("20", ""), format!("{{{claims}}}"), "1035"),
            // What is in force has the claim in it, and what is allocated has not.
            (
                of("20", ""),
                format!(r#"{{{claims}, "containerStatuses": [{{"name": "c", {}}}]}}"#, request("1010")),
                "1035",
            ),
            (of("20", &format!(", {}", request("1Ti"))), format!("{{{}, {infeasible}}}", request("70")), "75"),
            (of("20", &format!(", {}", request("70"))), r#"{"allocatedResources": {"memory": "90"}}"#.to_owned(), "95"),
            (of("20", r#", "resources": {"requests": {"cpu": "1"}}"#), "{}".to_owned(), "35"),
        ] {
            assert_eq!(scheduled(&spec, &status).0, expected, "{spec} {status}");
        }
    }
}
