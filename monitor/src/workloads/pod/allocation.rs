//! What the kubelet has allocated. A resize in place changes the specification at once, and the allocation only when the kubelet accepts it,
//! which is never for one that is infeasible. Whoever may resize a pod must not make it look as if it had what it asks for.

use super::object::{Container, Pod, RESIZE_PENDING, ResourceList, Resources};
use crate::units::{Quantity, Resource};

impl Pod {
    /// Returns the request of a container that is in force. The kubelet ranks by it too (1.33: its evictions begin with `getAllocatedPods`),
    /// and sets `oom_score_adj` by it.
    pub fn allocated_request<'p>(&'p self, container: &'p Container, resource: Resource) -> Option<&'p Quantity> {
        told_or(|| self.told_of(container), &container.resources.requests, resource)
    }

    /// Returns the request of the pod as a whole that is in force.
    pub fn allocated_pod_level_request(&self, resource: Resource) -> Option<&Quantity> {
        told_or(|| self.told_of_pod(), self.pod_level_requests()?, resource)
    }

    /// Returns what the status tells of a container.
    pub(super) fn told_of(&self, container: &Container) -> Told<'_> {
        let mut statuses = self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        let status = statuses.find(|status| status.name == container.name);
        status.map(|status| Told::of(&status.allocated_resources, &status.resources)).unwrap_or_default()
    }

    /// Returns what the status tells of the pod as a whole.
    pub(super) fn told_of_pod(&self) -> Told<'_> {
        Told::of(&self.status.allocated_resources, &self.status.resources)
    }

    /// Returns whether the node can never have what the pod asks for.
    pub fn is_resize_infeasible(&self) -> bool {
        let pending = self.status.conditions.iter().find(|condition| condition.kind == RESIZE_PENDING);
        pending.is_some_and(|condition| condition.reason == "Infeasible")
    }
}

/// The requests in a status.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told<'p> {
    /// Those that were allocated (feature gate `InPlacePodVerticalScalingAllocatedStatus`).
    pub(super) allocated: Option<&'p ResourceList>,
    pub(super) in_force: Option<&'p ResourceList>,
}

impl<'p> Told<'p> {
    /// An empty list tells nothing: kubelets before 1.27 write none.
    fn of(allocated: &'p ResourceList, in_force: &'p Resources) -> Self {
        let [allocated, in_force] =
            [allocated, &in_force.requests].map(|list| Some(list).filter(|list| !list.is_empty()));
        Self { allocated, in_force }
    }

    pub(super) fn is_empty(self) -> bool {
        self.allocated.is_none() && self.in_force.is_none()
    }

    fn allocated_or_in_force(self) -> Option<&'p ResourceList> {
        self.allocated.or(self.in_force)
    }

    pub(super) fn in_force_or_allocated(self) -> Option<&'p ResourceList> {
        self.in_force.or(self.allocated)
    }
}

/// Returns whether a running pod's request can be changed. Not every version reports those of other resources.
pub(super) fn is_resizable(resource: &str) -> bool {
    ["cpu", "memory"].contains(&resource)
}

/// Returns the entry of what the status tells, or else of the specification.
fn told_or<'p>(
    told: impl FnOnce() -> Told<'p>,
    specified: &'p ResourceList,
    resource: Resource,
) -> Option<&'p Quantity> {
    let told = if is_resizable(resource.as_str()) { told().allocated_or_in_force() } else { None };
    told.unwrap_or(specified).get(resource.as_str())
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
