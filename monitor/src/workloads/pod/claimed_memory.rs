//! What devices give a pod of the node's own resources (Dynamic Resource Allocation, KEP-5517, feature gate `DRANodeAllocatableResources`).
//! The scheduler writes it to the pod's status.

use serde::{Deserialize, Serialize};

use super::object::{Pod, ResourceList};
use super::resource_name::ResourceName;
use crate::units::{Amount, Quantity, Resource};
use crate::workloads::json_defaults::{list, or_default};

/// The resources of one claim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimStatus {
    /// The containers that use the claim. They share it.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// As Kubernetes 1.37 writes it.
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<Mapped>,
    /// What the device needs beside that (1.37).
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<Overhead>,
    /// As Kubernetes 1.36 wrote it. Its kubelet counts it nowhere.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "ResourceList::is_empty")]
    pub resources: ResourceList,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Mapped {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Overhead {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Quantity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Quantity>,
}

impl ClaimStatus {
    /// Returns what all containers that use the claim have of a resource.
    fn total(&self, resource: &str) -> Quantity {
        let users = self.containers.iter().map(|_| ());
        let shared = self.shared(resource).chain(self.resources.get(resource));
        let of_each = self.of_each(resource).flat_map(|quantity| users.clone().map(move |()| quantity));
        shared.chain(of_each).sum()
    }

    /// Returns the amounts that the containers share.
    fn shared<'s>(&'s self, resource: &'s str) -> impl Iterator<Item = &'s Quantity> + Clone {
        let mapped = self.mapping.iter().filter(move |it| it.name == resource).filter_map(|it| it.quantity.as_ref());
        mapped.chain(self.overheads(resource).filter_map(|it| it.per_pod.as_ref()))
    }

    /// Returns the amounts that each container has for itself.
    fn of_each<'s>(&'s self, resource: &'s str) -> impl Iterator<Item = &'s Quantity> + Clone {
        self.overheads(resource).filter_map(|it| it.per_container.as_ref())
    }

    fn overheads<'s>(&'s self, resource: &'s str) -> impl Iterator<Item = &'s Overhead> + Clone {
        self.overhead.iter().filter(move |it| it.name == resource)
    }

    /// Returns the bytes of memory that count for the `oom_score_adj` of one of its containers, divided as the kubelet divides them.
    fn share(&self) -> i64 {
        let memory = Resource::Memory.as_str();
        let users = i64::try_from(self.containers.len()).unwrap_or(i64::MAX).max(1);
        let shared = self.shared(memory).map(|quantity| quantity.value_bytes() / users);
        shared.chain(self.of_each(memory).map(Quantity::value_bytes)).fold(0, i64::saturating_add)
    }
}

impl Pod {
    /// Returns what the pod's claims have of a resource of the node.
    pub fn claimed(&self, resource: &str) -> Quantity {
        let all: Vec<Quantity> = self.status.claims.iter().map(|claim| claim.total(resource)).collect();
        all.iter().sum()
    }

    /// Returns the memory of the pod's claims.
    pub fn claimed_memory(&self) -> Amount {
        if self.status.claims.is_empty() { Amount::ZERO } else { self.claimed(ResourceName::Memory.as_str()).amount() }
    }

    /// Returns the bytes of claimed memory that count for the `oom_score_adj` of a container (1.37).
    pub fn claimed_by(&self, container: &str) -> i64 {
        let used = self.status.claims.iter().filter(|claim| claim.containers.iter().any(|name| name == container));
        used.map(ClaimStatus::share).fold(0, i64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(claims: &str) -> Pod {
        serde_json::from_str(&format!(r#"{{"status": {{"nodeAllocatableResourceClaimStatuses": [{claims}]}}}}"#))
            .unwrap()
    }

    #[test]
    fn memory_of_a_claim_is_shared_by_its_containers() {
        for (claims, total, of_a, of_b) in [
            ("", 0, 0, 0),
            (
                r#"{"containers": ["a"], "mapping": [{"name": "memory", "quantity": "8"}, {"name": "cpu", "quantity": "2"}]}"#,
                8,
                8,
                0,
            ),
            (r#"{"containers": ["a", "b"], "mapping": [{"name": "memory", "quantity": "9"}]}"#, 9, 4, 4),
            (
                r#"{"containers": ["a", "b"], "overhead": [{"name": "memory", "perPod": "10", "perContainer": "3"}]},
                   {"containers": ["b"], "mapping": [{"name": "memory", "quantity": "100"}, {"name": "memory"}]}"#,
                116,
                8,
                108,
            ),
            // 1.36
            (r#"{"containers": ["a"], "resources": {"memory": "7"}}"#, 7, 0, 0),
        ] {
            let pod = pod(claims);
            let found = (pod.claimed_memory().units(), pod.claimed_by("a"), pod.claimed_by("b"));
            assert_eq!(found, (total, of_a, of_b), "{claims}");
        }
    }
}
