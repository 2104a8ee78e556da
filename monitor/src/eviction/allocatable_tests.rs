use std::time::Duration;

use super::*;
use crate::config::{Quirks, Semantics, Threshold, ThresholdLists, threshold};

fn quantities(entries: &[(&str, &str)]) -> Vec<(String, Quantity)> {
    entries.iter().map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).unwrap())).collect()
}

/// Returns a policy with these reservations and hard thresholds. It subtracts the thresholds from what pods get.
fn policy(system: &[(&str, &str)], kube: &[(&str, &str)], hard: &[(Signal, &str)]) -> Policy {
    let value = |signal, text| threshold::parse_threshold_value(signal, text, Quirks::ALL).unwrap().unwrap();
    let hard = hard.iter().map(|(signal, text)| (*signal, value(*signal, text))).collect();
    let thresholds = ThresholdLists { hard, ..ThresholdLists::default() }.assemble().unwrap();
    let mut policy = Policy { thresholds, ..Policy::default() };
    policy.reservations.system = quantities(system);
    policy.reservations.kube = quantities(kube);
    policy.reservations.hard_thresholds = true;
    policy
}

/// Returns the allocatable quantities as text.
fn left_of(policy: &Policy, capacity: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let all = allocatable(policy, &quantities(capacity)).map_err(|error| error.to_string())?;
    Ok(all.iter().map(|one| one.allocatable.to_string()).collect())
}

const MEMORY: Signal = Signal::MemoryAvailable;

/// The example of the reference chapter: 1Gi for the system and 1Gi for the eviction threshold, both in `system-reserved`.
#[test]
fn reservation_and_threshold_are_subtracted() {
    let mut policy = policy(&[("memory", "2Gi")], &[], &[(MEMORY, ".5Gi")]);
    policy.reservations.hard_thresholds = false;
    assert_eq!(left_of(&policy, &[("memory", "10Gi")]), Ok(vec!["8Gi".to_owned()]));
}

#[test]
fn all_reservations_are_subtracted() {
    let policy = policy(
        &[("memory", "1Gi"), ("cpu", "500m"), ("gpu", "1")],
        &[("memory", "512Mi"), ("cpu", "250m")],
        &[(MEMORY, "512Mi"), (Signal::NodeFsAvailable, "10%"), (Signal::ImageFsAvailable, "15%")],
    );
    let capacity =
        [("cpu", "4"), ("memory", "10Gi"), ("ephemeral-storage", "100Gi"), ("pods", "1E3"), ("hugepages-1Gi", "0")];
    let left = left_of(&policy, &capacity).unwrap();
    assert_eq!(left, ["3250m", "8Gi", "90Gi", "1E3", "0"]);
    let all = allocatable(&policy, &quantities(&capacity)).unwrap();
    let limits: Vec<String> = all.iter().map(|one| one.pods_limit.to_string()).collect();
    assert_eq!(limits, ["3250m", "8704Mi", "100Gi", "1E3", "0"]);
}

#[test]
fn a_percentage_follows_the_semantics() {
    let mut policy = policy(&[], &[], &[(Signal::NodeFsAvailable, "10%")]);
    policy.quirks = crate::config::Quirks::of(Semantics::Kubelet);
    let all = allocatable(&policy, &quantities(&[("ephemeral-storage", "100Gi")])).unwrap();
    assert_eq!(all[0].hard_threshold.to_string(), "10737418400");
}

#[test]
fn only_the_last_hard_threshold_counts() {
    let mut policy = policy(&[], &[], &[(MEMORY, "1Gi"), (MEMORY, "2Gi")]);
    let soft = Threshold { grace_period: Duration::from_secs(30), ..policy.thresholds[0].clone() };
    policy.thresholds.push(soft);
    assert_eq!(left_of(&policy, &[("memory", "10Gi")]), Ok(vec!["8Gi".to_owned()]));
}

#[test]
fn huge_pages_are_subtracted_from_memory() {
    let policy = policy(&[("memory", "1Gi")], &[], &[]);
    let capacity = [("hugepages-2Mi", "512Mi"), ("memory", "4Gi"), ("hugepages-1Gi", "1Gi")];
    assert_eq!(left_of(&policy, &capacity).unwrap(), ["512Mi", "1536Mi", "1Gi"]);
    // Huge pages are not a reservation. More of them than memory leaves zero and is no error.
    let capacity = [("memory", "4Gi"), ("hugepages-1Gi", "8Gi")];
    assert_eq!(left_of(&policy, &capacity).unwrap(), ["0", "8Gi"]);
}

#[test]
fn a_reservation_above_the_capacity_is_an_error() {
    let policy = policy(&[("memory", "2Gi"), ("cpu", "1")], &[("memory", "1Gi"), ("cpu", "1500m")], &[(MEMORY, "1Gi")]);
    assert_eq!(
        left_of(&policy, &[("memory", "3Gi"), ("cpu", "2"), ("pods", "110")]).unwrap_err(),
        "invalid Node Allocatable configuration. \
         Resource \"memory\" has a reservation of 4Gi but capacity of 3Gi. Expected capacity >= reservation. \
         Resource \"cpu\" has a reservation of 2500m but capacity of 2. Expected capacity >= reservation."
    );
    // Reservations equal to the capacity are valid.
    assert_eq!(left_of(&policy, &[("memory", "4Gi")]), Ok(vec!["0".to_owned()]));
}
