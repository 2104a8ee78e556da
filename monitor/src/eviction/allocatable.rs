//! Node allocatable: what the scheduler may give to pods (`eviction-semantics.md` §13).

use crate::config::{Amount, Policy, Quantity, Signal};

/// One resource of a node, in amounts of its own unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocatable {
    /// `cpu`, `memory`, `ephemeral-storage`, …
    pub resource: String,
    /// What the machine has.
    pub capacity: Quantity,
    /// `systemReserved`.
    pub system_reserved: Amount,
    /// `kubeReserved`.
    pub kube_reserved: Amount,
    /// The hard threshold that is kept from pods too.
    pub hard_threshold: Amount,
    /// What is left for pods.
    pub allocatable: Amount,
    /// What the cgroup of all pods is limited to: the hard threshold is left to them there.
    pub pods_limit: Amount,
}

/// More is reserved than there is. The kubelet does not start so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid Node Allocatable configuration. Resource {resource:?} has a reservation of {reserved} but capacity of {capacity}. \
     Expected capacity >= reservation."
)]
pub struct ReservationError {
    /// The resource.
    pub resource: String,
    /// What is reserved of it.
    pub reserved: String,
    /// What there is.
    pub capacity: String,
}

/// What each resource of `capacity` leaves for pods.
///
/// # Errors
/// When more is reserved than there is.
pub fn allocatable(policy: &Policy, capacity: &[(String, Quantity)]) -> Result<Vec<Allocatable>, ReservationError> {
    capacity.iter().map(|(resource, capacity)| one(policy, resource, capacity)).collect()
}

fn one(policy: &Policy, resource: &str, capacity: &Quantity) -> Result<Allocatable, ReservationError> {
    let reserved = |list: &[(String, Quantity)]| -> Amount {
        list.iter().filter(|(name, _)| name == resource).map(|(_, quantity)| quantity.amount()).sum()
    };
    let (system_reserved, kube_reserved) = (reserved(&policy.reservations.system), reserved(&policy.reservations.kube));
    let hard_threshold = hard_threshold(policy, resource, capacity);
    let total = capacity.amount();
    let all = system_reserved + kube_reserved + hard_threshold;
    if all > total {
        return Err(ReservationError {
            resource: resource.to_owned(),
            reserved: Quantity::from_units(all.units(), true).to_string(),
            capacity: capacity.to_string(),
        });
    }
    Ok(Allocatable {
        resource: resource.to_owned(),
        capacity: capacity.clone(),
        system_reserved,
        kube_reserved,
        hard_threshold,
        allocatable: total - all,
        pods_limit: total - system_reserved - kube_reserved,
    })
}

/// The last hard threshold of the resource's signal, when thresholds are kept from pods at all.
fn hard_threshold(policy: &Policy, resource: &str, capacity: &Quantity) -> Amount {
    let signal = match resource {
        "memory" => Signal::MemoryAvailable,
        "ephemeral-storage" => Signal::NodeFsAvailable,
        _ => return Amount::ZERO,
    };
    let hard = policy.thresholds.iter().rfind(|it| it.signal == signal && it.is_hard());
    let kept = hard.filter(|_| policy.reservations.hard_thresholds);
    kept.map_or(Amount::ZERO, |it| it.value.resolve(capacity.value_bytes(), policy.quirks))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Bytes, Threshold, ThresholdValue};

    fn quantities(entries: &[(&str, &str)]) -> Vec<(String, Quantity)> {
        entries.iter().map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).unwrap())).collect()
    }

    fn policy(system: &[(&str, &str)], kube: &[(&str, &str)], hard_thresholds: bool) -> Policy {
        let mut policy = Policy::default();
        policy.reservations.system = quantities(system);
        policy.reservations.kube = quantities(kube);
        policy.reservations.hard_thresholds = hard_thresholds;
        policy
    }

    fn memory(policy: &Policy, capacity: &str) -> Result<String, String> {
        let all = allocatable(policy, &quantities(&[("memory", capacity)])).map_err(|error| error.to_string())?;
        Ok(Quantity::from_units(all[0].allocatable.units(), true).to_string())
    }

    /// The reference chapter: a tenth for the system and a tenth for the eviction threshold, both in `system-reserved`.
    #[test]
    fn ten_gi_less_two_are_eight() {
        assert_eq!(memory(&policy(&[("memory", "2Gi")], &[], false), "10Gi"), Ok("8Gi".to_owned()));
    }

    #[test]
    fn reservations_and_the_last_hard_threshold_are_subtracted() {
        let mut policy = policy(&[("memory", "1Gi"), ("cpu", "500m")], &[("memory", "512Mi")], true);
        assert_eq!(memory(&policy, "10Gi"), Ok("8604Mi".to_owned()));
        let last = Threshold {
            signal: Signal::MemoryAvailable,
            value: ThresholdValue::bytes(Bytes::from_mib(512)),
            grace_period: Duration::ZERO,
            min_reclaim: None,
        };
        let soft = Threshold { grace_period: Duration::from_secs(1), ..last.clone() };
        policy.thresholds.extend([last, soft]);
        assert_eq!(memory(&policy, "10Gi"), Ok("8Gi".to_owned()));
        let cpu = allocatable(&policy, &quantities(&[("cpu", "4")])).unwrap();
        assert_eq!(cpu[0].allocatable, Quantity::parse("3500m").unwrap().amount());
        assert_eq!(cpu[0].pods_limit, cpu[0].allocatable);
    }

    #[test]
    fn more_reserved_than_there_is() {
        let error = memory(&policy(&[("memory", "2Gi")], &[("memory", "2Gi")], false), "3Gi").unwrap_err();
        assert_eq!(
            error,
            "invalid Node Allocatable configuration. Resource \"memory\" has a reservation of 4Gi but capacity of 3Gi. \
             Expected capacity >= reservation."
        );
        assert_eq!(memory(&policy(&[("memory", "3Gi")], &[], false), "3Gi"), Ok("0".to_owned()));
    }
}
