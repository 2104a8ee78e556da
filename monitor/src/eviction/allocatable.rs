//! Node allocatable: the part of a node's capacity that schedulers may give to pods (`eviction-semantics.md` §13).

use crate::config::{Policy, ThresholdValue};
use crate::units::{Quantity, Resource, Signal};

/// One resource of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocatable {
    /// The name of the resource, such as `cpu`, `memory` or `ephemeral-storage`.
    pub resource: String,
    pub capacity: Quantity,
    /// The quantity in `systemReserved`.
    pub system_reserved: Quantity,
    /// The quantity in `kubeReserved`.
    pub kube_reserved: Quantity,
    /// The quantity that the hard threshold keeps free. It is zero if the policy does not subtract hard thresholds.
    pub hard_threshold: Quantity,
    /// Memory that is set aside as huge pages. Huge pages are resources of their own.
    pub huge_pages: Quantity,
    /// The quantity that is left for pods.
    pub allocatable: Quantity,
    /// The limit of the cgroup of all pods. The hard threshold is not subtracted: otherwise pods could never use so much that the
    /// threshold is met.
    pub pods_limit: Quantity,
}

/// The reservations exceed the capacity. The kubelet does not start with such a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid Node Allocatable configuration. {}", .0.join(" "))]
pub struct ReservationError(
    /// One sentence for each resource whose reservations exceed its capacity.
    pub Vec<String>,
);

/// Computes what each resource of `capacity` leaves for pods. Reservations of other resources are ignored.
///
/// # Errors
/// Returns an error if the reservations of a resource exceed its capacity.
pub fn allocatable(policy: &Policy, capacity: &[(String, Quantity)]) -> Result<Vec<Allocatable>, ReservationError> {
    let mut errors = Vec::new();
    let mut all = Vec::with_capacity(capacity.len());
    for (resource, capacity) in capacity {
        match one(policy, resource, capacity) {
            Ok(one) => all.push(one),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(ReservationError(errors));
    }
    for (_, pages) in capacity.iter().filter(|(resource, _)| resource.starts_with("hugepages-")) {
        if let Some(memory) = all.iter_mut().find(|one| one.resource == Resource::Memory.as_str()) {
            memory.huge_pages = memory.huge_pages.sum(pages);
            memory.allocatable = left(&memory.allocatable, pages);
        }
    }
    Ok(all)
}

fn one(policy: &Policy, resource: &str, capacity: &Quantity) -> Result<Allocatable, String> {
    let system_reserved = reserved(&policy.reservations.system, resource);
    let kube_reserved = reserved(&policy.reservations.kube, resource);
    let hard_threshold = hard_threshold(policy, resource, capacity);
    let by_name = system_reserved.sum(&kube_reserved);
    let reserved = by_name.sum(&hard_threshold);
    if reserved > *capacity {
        return Err(format!(
            "Resource {resource:?} has a reservation of {reserved} but capacity of {capacity}. \
             Expected capacity >= reservation."
        ));
    }
    Ok(Allocatable {
        resource: resource.to_owned(),
        capacity: capacity.clone(),
        allocatable: left(capacity, &reserved),
        pods_limit: left(capacity, &by_name),
        system_reserved,
        kube_reserved,
        hard_threshold,
        huge_pages: Quantity::default(),
    })
}

fn reserved(list: &[(String, Quantity)], resource: &str) -> Quantity {
    list.iter().filter(|(name, _)| name == resource).map(|(_, quantity)| quantity).sum()
}

/// Returns the quantity of the resource that its hard threshold keeps free, or zero if thresholds are not subtracted from what pods
/// get. Of several hard thresholds the last counts.
fn hard_threshold(policy: &Policy, resource: &str, capacity: &Quantity) -> Quantity {
    let signal = match resource {
        "memory" => Signal::MemoryAvailable,
        "ephemeral-storage" => Signal::NodeFsAvailable,
        _ => return Quantity::default(),
    };
    let hard = policy.thresholds.iter().rfind(|threshold| threshold.signal == signal && threshold.is_hard());
    match hard.filter(|_| policy.reservations.hard_thresholds).map(|threshold| &threshold.value) {
        Some(ThresholdValue::Quantity(quantity)) => quantity.clone(),
        Some(ThresholdValue::Percentage(percentage)) => {
            Quantity::from_units(percentage.of(capacity.value_bytes(), policy.quirks), true)
        }
        None => Quantity::default(),
    }
}

/// Returns the capacity minus `taken`, at least zero. If nothing is taken, the capacity keeps the text in which it was written.
fn left(capacity: &Quantity, taken: &Quantity) -> Quantity {
    if taken.is_zero() {
        return capacity.clone();
    }
    let left = capacity.difference(taken);
    if left.is_negative() { Quantity::default() } else { left }
}

#[cfg(test)]
#[path = "allocatable_tests.rs"]
mod tests;
