//! Stands in until the methods of pods are written.

use super::{Pod, ResourceList};
use crate::config::{Amount, Quantity, Quirks, Resource};
use crate::workloads::QosClass;

impl ResourceList {
    /// The amount of a resource.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, quantity)| quantity)
    }
}

impl Pod {
    /// `namespace/name`.
    #[must_use]
    pub fn full_name(&self) -> String {
        [&self.metadata.namespace, "/", &self.metadata.name].concat()
    }

    /// Neither failed nor succeeded.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.status.phase != "Failed" && self.status.phase != "Succeeded"
    }

    /// Never evicted.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.spec.priority.is_some_and(|priority| priority >= 2_000_000_000)
    }

    /// QoS class.
    #[must_use]
    pub fn qos_class(&self, _: Quirks) -> QosClass {
        QosClass::Burstable
    }

    /// What it requested.
    #[must_use]
    pub fn request(&self, resource: Resource, _: Quirks) -> Amount {
        let requests = self.spec.containers.iter().filter_map(|it| it.resources.requests.get(resource.as_str()));
        requests.map(Quantity::amount).sum()
    }

    /// The limits of its containers together.
    #[must_use]
    pub fn ephemeral_storage_limit(&self, _: Quirks) -> Option<Quantity> {
        self.spec.containers.iter().find_map(|it| it.resources.limits.get("ephemeral-storage")).cloned()
    }
}
