//! Decides whether a node under pressure admits a pod (`eviction-semantics.md` §11).

use crate::config::Quirks;
use crate::workloads::pod::Toleration;
use crate::workloads::{Pod, QosClass};

use super::NodeCondition;

const MEMORY_TAINT: &str = "node.kubernetes.io/memory-pressure";
const NO_SCHEDULE: &str = "NoSchedule";

/// The decision about a pod that was assigned to this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The pod may run.
    Admit,
    /// The pod fails at once, with the reason `Evicted`.
    Reject {
        /// The text of the Warning event `Evicted`.
        event: String,
        /// The message in the pod's status.
        message: String,
    },
}

/// Decides whether a node with these conditions admits the pod. Critical pods are always admitted. If MemoryPressure is the only
/// condition, only BestEffort pods that do not tolerate its taint are rejected. Under DiskPressure or PIDPressure every other pod is
/// rejected, whatever it tolerates.
pub fn admit(conditions: &[NodeCondition], pod: &Pod, quirks: Quirks) -> Verdict {
    let is_admitted = match conditions {
        [] => true,
        _ if pod.is_critical() => true,
        [NodeCondition::MemoryPressure] => {
            pod.qos_class(quirks) != QosClass::BestEffort || pod.spec.tolerations.iter().any(tolerates_memory_pressure)
        }
        _ => false,
    };
    if is_admitted {
        return Verdict::Admit;
    }
    let names: Vec<&str> = conditions.iter().map(|condition| condition.as_str()).collect();
    let event = format!("The node had condition: [{}]. ", names.join(" "));
    Verdict::Reject { message: format!("Pod was rejected: {event}"), event }
}

fn tolerates_memory_pressure(toleration: &Toleration) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == NO_SCHEDULE;
    let key = toleration.key.is_empty() || toleration.key == MEMORY_TAINT;
    let value = match toleration.operator.as_str() {
        "Exists" => true,
        // The taint has no value.
        "" | "Equal" => toleration.value.is_empty(),
        _ => false,
    };
    effect && key && value
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeCondition::{DiskPressure, MemoryPressure, PidPressure};

    fn admitted(conditions: &[NodeCondition], json: &str) -> bool {
        let pod: Pod = serde_json::from_str(json).unwrap();
        admit(conditions, &pod, Quirks::ALL) == Verdict::Admit
    }

    const BEST_EFFORT: &str = r#"{"spec":{"containers":[{"name":"c"}]}}"#;
    const BURSTABLE: &str = r#"{"status":{"qosClass":"Burstable"}}"#;
    const CRITICAL: &str = r#"{"spec":{"priority":2000000000}}"#;

    #[test]
    fn admission_depends_on_conditions_and_qos_class() {
        for (conditions, best_effort, burstable) in [
            (&[][..], true, true),
            (&[MemoryPressure], false, true),
            (&[DiskPressure], false, false),
            (&[PidPressure], false, false),
            (&[MemoryPressure, DiskPressure], false, false),
        ] {
            assert_eq!(admitted(conditions, BEST_EFFORT), best_effort, "{conditions:?}");
            assert_eq!(admitted(conditions, BURSTABLE), burstable, "{conditions:?}");
            assert!(admitted(conditions, CRITICAL), "{conditions:?}");
        }
    }

    #[test]
    fn a_toleration_admits_under_memory_pressure_alone() {
        for (toleration, expected) in [
            (r#"{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}"#, true),
            (r#"{"operator":"Exists"}"#, true),
            (r#"{"key":"node.kubernetes.io/memory-pressure","operator":"Equal","value":""}"#, true),
            (r#"{"key":"node.kubernetes.io/memory-pressure"}"#, true),
            (r#"{"key":"node.kubernetes.io/memory-pressure","operator":"Equal","value":"x"}"#, false),
            (r#"{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoExecute"}"#, false),
            (r#"{"key":"node.kubernetes.io/disk-pressure","operator":"Exists"}"#, false),
            (r#"{"operator":"Gt"}"#, false),
        ] {
            let pod = format!(r#"{{"spec":{{"containers":[{{"name":"c"}}],"tolerations":[{toleration}]}}}}"#);
            assert_eq!(admitted(&[MemoryPressure], &pod), expected, "{toleration}");
            assert!(!admitted(&[MemoryPressure, PidPressure], &pod), "{toleration}");
        }
    }

    #[test]
    fn a_rejection_has_the_kubelets_texts() {
        let pod: Pod = serde_json::from_str(BEST_EFFORT).unwrap();
        let verdict = admit(&[MemoryPressure, PidPressure], &pod, Quirks::ALL);
        let event = "The node had condition: [MemoryPressure PIDPressure]. ".to_owned();
        let message = format!("Pod was rejected: {event}");
        assert_eq!(verdict, Verdict::Reject { event, message });
    }
}
