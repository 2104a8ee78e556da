//! The most series that each family may have. The bound protects the agent's memory and the Prometheus that scrapes it.

/// Workloads with series of their own, and one more for the rest.
const WORKLOADS: usize = 1001;
/// Local filesystems of a node, as many as are measured.
const DEVICES: usize = 256;
/// Devices on which a workload makes inodes, on average.
const DEVICES_OF_A_WORKLOAD: usize = 4;

/// Labels whose value follows from that of another label.
const DEPENDENT: [(&str, &[&str]); 4] = [
    ("workload", &["namespace", "pod", "uid", "node", "qos_class", "owner_kind", "owner_name"]),
    ("device", &["mountpoint", "type"]),
    ("role", &["device", "mountpoint", "type"]),
    ("version", &["commit", "kernel"]),
];

/// Returns the most values of a label; `None` for a label without a bound.
fn most_values(label: &str) -> Option<usize> {
    Some(match label {
        "workload" => WORKLOADS,
        "device" => DEVICES,
        "capability" | "probe" | "condition" => 64,
        "cause" | "signal" => 24,
        "constraint" | "correction" | "event" | "killer" | "outcome" | "source" | "what" => 8,
        "kind" | "state" => 4,
        "qos_class" | "resource" | "role" | "window" => 3,
        "mode" | "scope" | "semantics" | "used" | "way" => 2,
        "pool" | "version" => 1,
        _ => return None,
    })
}

/// Returns the most combinations of label values that a family has, or the label without a bound.
pub(super) fn most_combinations(labels: &[String]) -> Result<usize, &str> {
    let has = |name: &str| labels.iter().any(|label| label == name);
    let follows = |label: &str| DEPENDENT.iter().any(|(from, labels)| has(from) && labels.contains(&label));
    labels.iter().filter(|label| !follows(label)).try_fold(1, |product: usize, label| {
        let most = match label.as_str() {
            "device" if has("workload") => DEVICES_OF_A_WORKLOAD,
            label => most_values(label).ok_or(label)?,
        };
        Ok(product.saturating_mul(most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_multiply_unless_they_follow_from_another() {
        let most = |labels: &[&str]| {
            let labels: Vec<String> = labels.iter().map(|label| (*label).to_owned()).collect();
            most_combinations(&labels).map_err(str::to_owned)
        };
        assert_eq!(most(&[]), Ok(1));
        assert_eq!(most(&["workload", "namespace", "pod", "uid", "node", "qos_class"]), Ok(WORKLOADS));
        assert_eq!(most(&["qos_class"]), Ok(3));
        assert_eq!(most(&["workload", "device"]), Ok(WORKLOADS * DEVICES_OF_A_WORKLOAD));
        assert_eq!(most(&["device", "mountpoint"]), Ok(DEVICES));
        assert_eq!(most(&["role", "device", "mountpoint", "type"]), Ok(3));
        assert_eq!(most(&["signal", "user"]), Err("user".to_owned()));
    }
}
