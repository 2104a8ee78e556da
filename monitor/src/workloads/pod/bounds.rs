//! Limits on how much of a pod object is kept in memory.

use super::object::{Pod, ResourceList, Resources, shorten};
use super::resource_name::ResourceName;

/// Limit of each list of containers, volumes and tolerations. No running pod has more.
const MAX_ITEMS: usize = 256;
const MAX_RESOURCES: usize = 16;
const MAX_OWNERS: usize = 16;

impl Pod {
    /// Removes the items beyond the limits, and resources that do not affect decisions.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.metadata.owners.sort_by_key(|owner| !owner.controller);
        self.metadata.owners.truncate(MAX_OWNERS);
        let (spec, status) = (&mut self.spec, &mut self.status);
        let is_cut = spec.containers.len().max(spec.init_containers.len()) > MAX_ITEMS;
        for containers in [&mut spec.containers, &mut spec.init_containers] {
            containers.truncate(MAX_ITEMS);
            for container in containers {
                retain_deciding(&mut container.resources);
                if is_cut {
                    // The sum over some of the containers is not the pod's limit.
                    container.resources.limits = ResourceList::default();
                }
            }
        }
        spec.resources.iter_mut().for_each(retain_deciding);
        retain(&mut spec.overhead);
        spec.volumes.truncate(MAX_ITEMS);
        // The beginning tells on which filesystem the path is.
        spec.volumes.iter_mut().filter_map(|volume| volume.host_path.as_mut()).for_each(|it| shorten(&mut it.path));
        spec.tolerations.truncate(MAX_ITEMS);
        status.container_statuses.truncate(MAX_ITEMS);
        status.init_container_statuses.truncate(MAX_ITEMS);
        status.ephemeral_container_statuses.truncate(MAX_ITEMS);
        let of_containers = status.container_statuses.iter_mut().chain(&mut status.init_container_statuses);
        let of_containers = of_containers.chain(&mut status.ephemeral_container_statuses);
        for told in of_containers {
            retain(&mut told.allocated_resources);
            retain_deciding(&mut told.resources);
        }
        retain(&mut status.allocated_resources);
        retain_deciding(&mut status.resources);
        status.conditions.truncate(1);
        status.claims.truncate(MAX_ITEMS);
        for claim in &mut status.claims {
            claim.containers.truncate(MAX_ITEMS);
            claim.mapping.truncate(MAX_RESOURCES);
            claim.overhead.truncate(MAX_RESOURCES);
            retain(&mut claim.resources);
        }
        self
    }
}

fn retain_deciding(resources: &mut Resources) {
    retain(&mut resources.requests);
    retain(&mut resources.limits);
}

fn retain(list: &mut ResourceList) {
    list.0.retain(|(name, _)| match name {
        ResourceName::Other(name) => name.starts_with("hugepages-"),
        ResourceName::Cpu | ResourceName::Memory | ResourceName::EphemeralStorage => true,
    });
    // Resources that affect decisions come first.
    list.0.sort_by_key(|(name, _)| matches!(name, ResourceName::Other(_)));
    list.0.truncate(MAX_RESOURCES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_pod_is_cut() {
        let many = vec![r#"{"key": "a"}"#; 10_000].join(",");
        let json = format!(
            r#"{{"spec": {{"tolerations": [{many}], "containers": [{{"resources": {{
                "requests": {{"memory": "1", "example.com/gpu": "1", "hugepages-2Mi": "2Mi"}}}}}}]}}}}"#
        );
        let pod = serde_json::from_str::<Pod>(&json).unwrap().bounded();
        assert_eq!((pod.spec.tolerations.len(), pod.spec.containers[0].resources.requests.0.len()), (MAX_ITEMS, 2));
    }
}
