//! What the kubelet has allocated. A resize in place changes the specification at once, and the allocation only when the kubelet accepts it,
//! which is never for one that is infeasible. Whoever may resize a pod must not make it look as if it had what it asks for.

use super::object::{Container, Pod, ResourceList, Resources};
use crate::units::{Quantity, Resource};

impl Pod {
    /// Returns the request of a container that is in force. The kubelet ranks by it too (1.33).
    pub fn allocated_request<'p>(&'p self, container: &'p Container, resource: Resource) -> Option<&'p Quantity> {
        let statuses = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        let told = || {
            let status = statuses.clone().find(|status| status.name == container.name)?;
            allocated(&status.allocated_resources, &status.resources)
        };
        told_or(told, &container.resources.requests, resource)
    }

    /// Returns the request of the pod as a whole that is in force.
    pub fn allocated_pod_level_request(&self, resource: Resource) -> Option<&Quantity> {
        let told = || allocated(&self.status.allocated_resources, &self.status.resources);
        told_or(told, self.pod_level_requests()?, resource)
    }
}

/// Returns the entry of what the status tells, or else of the specification. Of the resources that evictions count, only memory can be
/// resized, and not every version reports the others.
fn told_or<'p>(
    told: impl FnOnce() -> Option<&'p ResourceList>,
    specified: &'p ResourceList,
    resource: Resource,
) -> Option<&'p Quantity> {
    let told = if resource == Resource::Memory { told() } else { None };
    told.unwrap_or(specified).get(resource.as_str())
}

/// Returns the requests in a status: those that were allocated (feature gate `InPlacePodVerticalScalingAllocatedStatus`), or else those in
/// force. An empty list tells nothing: kubelets before 1.27 write none.
fn allocated<'p>(allocated: &'p ResourceList, in_force: &'p Resources) -> Option<&'p ResourceList> {
    [allocated, &in_force.requests].into_iter().find(|list| !list.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Quirks;

    fn pod(json: &str) -> Pod {
        serde_json::from_str(json).unwrap()
    }

    /// A pod of one container that asks for 10Ti, with this status of the container.
    fn resized(status: &str) -> Pod {
        pod(&format!(
            r#"{{"spec": {{"containers": [{{"name": "c", "resources": {{"requests": {{"memory": "10Ti", "ephemeral-storage": "7"}}}}}}]}},
                "status": {{"qosClass": "Burstable",
                    "conditions": [{{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}}],
                    "containerStatuses": [{{"name": "c"{status}}}]}}}}"#
        ))
    }

    #[test]
    fn a_resize_that_is_not_allocated_changes_nothing() {
        let asked = 10 << 40;
        for (status, expected) in [
            ("", asked),
            (r#", "resources": {}"#, asked),
            (r#", "resources": null, "allocatedResources": null"#, asked),
            (r#", "resources": {"requests": {"memory": "64"}}"#, 64),
            (r#", "allocatedResources": {"memory": "64"}"#, 64),
            // The kubelet has accepted a resize that the runtime has not carried out.
            (r#", "allocatedResources": {"memory": "128"}, "resources": {"requests": {"memory": "64"}}"#, 128),
            // Memory was not requested before.
            (r#", "resources": {"requests": {"cpu": "1"}}"#, 0),
        ] {
            for quirks in [Quirks::ALL, Quirks::NONE] {
                assert_eq!(resized(status).request(Resource::Memory, quirks).units(), expected, "{status}");
                assert_eq!(resized(status).request(Resource::EphemeralStorage, quirks).units(), 7, "{status}");
            }
        }
        assert_eq!(
            resized(r#", "allocatedResources": {"memory": "64"}"#).scheduled_request("memory").canonical(),
            "10Ti"
        );
    }

    #[test]
    fn sidecars_and_overhead_count_as_allocated() {
        let json = r#"{"spec": {"overhead": {"memory": "1000"},
                "initContainers": [{"name": "once", "resources": {"requests": {"memory": "9"}}},
                    {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"memory": "1Ti"}}}],
                "containers": [{"name": "a", "resources": {"requests": {"memory": "1Ti"}}},
                    {"name": "new", "resources": {"requests": {"memory": "30"}}}]},
            "status": {"initContainerStatuses": [{"name": "side", "allocatedResources": {"memory": "100"}}],
                "containerStatuses": [{"name": "a", "resources": {"requests": {"memory": "2"}}}, {"name": "gone"}]}}"#;
        assert_eq!(pod(json).request(Resource::Memory, Quirks::NONE).units(), 1132);
        assert_eq!(pod(json).container_request(Resource::Memory).units(), 132);
    }

    #[test]
    fn a_pod_level_request_counts_as_allocated() {
        let of = |status: &str| {
            let json = format!(
                r#"{{"spec": {{"resources": {{"requests": {{"memory": "1Ti"}}}}, "containers": [{{"name": "c"}}]}}, "status": {{{status}}}}}"#
            );
            pod(&json).request(Resource::Memory, Quirks::NONE).units()
        };
        assert_eq!(of(""), 1 << 40);
        assert_eq!(of(r#""resources": {"requests": {"memory": "5"}}"#), 5);
        assert_eq!(of(r#""allocatedResources": {"memory": "6"}, "resources": {"requests": {"memory": "5"}}"#), 6);
    }
}
