//! So much is kept of a pod at most, however large its object is.

use super::{Pod, ResourceList, ResourceName, Resources};

/// Of lists of containers, volumes and tolerations; more than any pod that runs has.
const MOST: usize = 256;
/// Of resources named in one place.
const MOST_RESOURCES: usize = 16;
/// Of owners.
const MOST_OWNERS: usize = 16;

impl Pod {
    /// The same pod without what is beyond that, and without resources that nothing is decided by.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.metadata.owners.sort_by_key(|owner| !owner.controller);
        self.metadata.owners.truncate(MOST_OWNERS);
        let (spec, status) = (&mut self.spec, &mut self.status);
        let is_cut = spec.containers.len().max(spec.init_containers.len()) > MOST;
        for containers in [&mut spec.containers, &mut spec.init_containers] {
            containers.truncate(MOST);
            for container in containers {
                looked_at(&mut container.resources);
                if is_cut {
                    // The limits of some are no limit of the whole.
                    container.resources.limits = ResourceList::default();
                }
            }
        }
        spec.resources.iter_mut().for_each(looked_at);
        retain(&mut spec.overhead);
        spec.volumes.truncate(MOST);
        spec.tolerations.truncate(MOST);
        status.container_statuses.truncate(MOST);
        status.init_container_statuses.truncate(MOST);
        status.ephemeral_container_statuses.truncate(MOST);
        self
    }
}

fn looked_at(resources: &mut Resources) {
    retain(&mut resources.requests);
    retain(&mut resources.limits);
}

fn retain(list: &mut ResourceList) {
    list.0.retain(|(name, _)| match name {
        ResourceName::Other(name) => name.starts_with("hugepages-"),
        ResourceName::Cpu | ResourceName::Memory | ResourceName::EphemeralStorage => true,
    });
    // The few that are decided by come first.
    list.0.sort_by_key(|(name, _)| matches!(name, ResourceName::Other(_)));
    list.0.truncate(MOST_RESOURCES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_pod_is_kept_in_part() {
        let many = vec![r#"{"key": "a"}"#; 10_000].join(",");
        let json = format!(
            r#"{{"spec": {{"tolerations": [{many}], "containers": [{{"resources": {{
                "requests": {{"memory": "1", "example.com/gpu": "1", "hugepages-2Mi": "2Mi"}}}}}}]}}}}"#
        );
        let pod = serde_json::from_str::<Pod>(&json).unwrap().bounded();
        assert_eq!((pod.spec.tolerations.len(), pod.spec.containers[0].resources.requests.0.len()), (MOST, 2));
    }
}
