//! Computes by how much system daemons exceed the memory reserved for them. That is the second reason for which OpenShift 3 evicts a
//! Guaranteed pod.

use crate::config::Policy;
use crate::units::{Amount, Quantity, signed};
use crate::workloads::Summary;

/// Returns the memory in `systemReserved` plus `kubeReserved`, or `None` if none is reserved.
pub fn reserved_memory(policy: &Policy) -> Option<Amount> {
    let reservations = &policy.reservations;
    let of_memory = reservations.system.iter().chain(&reservations.kube).filter(|(name, _)| name == "memory");
    let reserved: Vec<Amount> = of_memory.map(|(_, quantity): &(String, Quantity)| quantity.amount()).collect();
    (!reserved.is_empty()).then(|| reserved.iter().copied().sum())
}

/// Returns by how much the memory outside of pods exceeds `systemReserved` plus `kubeReserved`. Returns `None` if it does not exceed
/// them, if no memory is reserved, or if the statistics lack a figure.
pub fn above_reservation(policy: &Policy, summary: &Summary) -> Option<Amount> {
    let working_set = |bytes: u64| Amount::from_units(signed(bytes));
    let node = working_set(summary.node.memory?.working_set_bytes?);
    let all_pods = summary.node.system_containers.iter().find(|container| container.name == "pods");
    let pods = match all_pods.and_then(|container| container.memory?.working_set_bytes) {
        Some(bytes) => working_set(bytes),
        None => summary.pods.iter().filter_map(|pod| pod.memory?.working_set_bytes).map(working_set).sum(),
    };
    let excess = node - pods - reserved_memory(policy)?;
    (excess > Amount::ZERO).then_some(excess)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(system: &str, kube: &str) -> Policy {
        let mut policy = Policy::default();
        policy.reservations.system = vec![("cpu".to_owned(), Quantity::parse("1").unwrap())];
        for (list, text) in [(&mut policy.reservations.system, system), (&mut policy.reservations.kube, kube)] {
            if !text.is_empty() {
                list.push(("memory".to_owned(), Quantity::parse(text).unwrap()));
            }
        }
        policy
    }

    fn summary(json: &str) -> Summary {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn daemons_use_what_the_pods_do_not() {
        let known = summary(
            r#"{"node": {"memory": {"workingSetBytes": 1000}, "systemContainers": [{"name": "pods", "memory": {"workingSetBytes": 700}}]}}"#,
        );
        for (system, kube, excess) in
            [("100", "100", Some(100)), ("300", "", None), ("299", "", Some(1)), ("", "200", Some(100)), ("", "", None)]
        {
            let excess = excess.map(Amount::from_units);
            assert_eq!(above_reservation(&policy(system, kube), &known), excess, "{system} {kube}");
        }
    }

    #[test]
    fn pods_are_summed_where_the_statistics_have_no_total() {
        let pods = r#"[{"memory": {"workingSetBytes": 400}}, {"memory": null}, {"memory": {"workingSetBytes": 200}}]"#;
        let summed = summary(&format!(r#"{{"node": {{"memory": {{"workingSetBytes": 1000}}}}, "pods": {pods}}}"#));
        assert_eq!(above_reservation(&policy("100", ""), &summed), Some(Amount::from_units(300)));
        assert_eq!(above_reservation(&policy("100", ""), &summary(r#"{"node": {"memory": {}}}"#)), None);
    }
}
