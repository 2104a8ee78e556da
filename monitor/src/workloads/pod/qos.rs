//! The QoS class of a pod.

use super::object::{Pod, ResourceList, Resources};
use crate::config::{Quirk, Quirks};
use crate::units::Amount;
use crate::workloads::cgroup_path::QosClass;

impl Pod {
    /// Returns the class that the API server or the kubelet has set, else the class that follows from the resources
    /// (`eviction-semantics.md` §14).
    pub fn qos_class(&self, quirks: Quirks) -> QosClass {
        let known = QosClass::ALL.into_iter().find(|class| class.as_str() == self.status.qos_class);
        known.unwrap_or_else(|| self.computed_qos_class(quirks))
    }

    /// Returns the class that follows from the resources. Ephemeral containers are ignored, because they cannot request anything.
    fn computed_qos_class(&self, quirks: Quirks) -> QosClass {
        let counts =
            |resources: &&Resources| quirks.has(Quirk::EmptyPodResourcesBestEffort) || resources.names_compute();
        match self.spec.resources.as_ref().filter(counts) {
            Some(of_pod) => class_of([of_pod]),
            None => class_of(self.spec.containers.iter().chain(&self.spec.init_containers).map(|it| &it.resources)),
        }
    }
}

impl Resources {
    /// Returns whether any processor or memory quantity is given, even zero.
    fn names_compute(&self) -> bool {
        [&self.requests, &self.limits]
            .into_iter()
            .any(|list| ["cpu", "memory"].iter().any(|name| list.get(name).is_some()))
    }
}

/// The resources that decide the class. A quantity of zero counts as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Compute {
    cpu: Amount,
    memory: Amount,
}

impl Compute {
    const NONE: Self = Self { cpu: Amount::ZERO, memory: Amount::ZERO };

    fn of(list: &ResourceList) -> Self {
        let amount = |name: &str| list.get(name).map_or(Amount::ZERO, |quantity| quantity.amount().max(Amount::ZERO));
        Self { cpu: amount("cpu"), memory: amount("memory") }
    }

    fn has_both(self) -> bool {
        !self.cpu.is_zero() && !self.memory.is_zero()
    }

    fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }
}

/// Returns the class. Guaranteed requires that every container limits both resources, and that the sums of requests and limits
/// are equal.
fn class_of<'a>(all: impl IntoIterator<Item = &'a Resources>) -> QosClass {
    let (mut requests, mut limits, mut all_limited) = (Compute::NONE, Compute::NONE, true);
    for resources in all {
        let limit = Compute::of(&resources.limits);
        requests = requests.plus(Compute::of(&resources.requests));
        limits = limits.plus(limit);
        all_limited &= limit.has_both();
    }
    match (requests, limits) {
        (Compute::NONE, Compute::NONE) => QosClass::BestEffort,
        _ if all_limited && requests == limits => QosClass::Guaranteed,
        _ => QosClass::Burstable,
    }
}

#[cfg(test)]
#[path = "qos_tests.rs"]
mod tests;
