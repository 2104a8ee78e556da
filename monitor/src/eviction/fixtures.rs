//! Policies, pods and statistics for tests, as the API writes them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::config::threshold::parse_threshold_value;
use crate::config::{Policy, Quirks, Ranking, Semantics, Threshold};
use crate::units::Signal;
use crate::workloads::{Pod, Summary};

/// Returns a policy with the kubelet's rules. Grace periods are in seconds.
pub fn kubelet(thresholds: &[(Signal, &str, u64)]) -> Policy {
    let threshold = |(signal, value, grace): &(Signal, &str, u64)| Threshold {
        signal: *signal,
        value: parse_threshold_value(*signal, value, Quirks::of(Semantics::Kubelet)).unwrap().unwrap(),
        grace_period: Duration::from_secs(*grace),
        min_reclaim: None,
    };
    Policy {
        semantics: Semantics::Kubelet,
        quirks: Quirks::of(Semantics::Kubelet),
        ranking: Ranking::Kubernetes,
        thresholds: thresholds.iter().map(threshold).collect(),
        ..Policy::default()
    }
}

/// Returns a running pod of that name in the namespace `ns`. Its UID is its name.
pub fn pod(name: &str, spec: Value) -> Pod {
    let mut pod = Pod { spec: serde_json::from_value(spec).unwrap(), ..Pod::default() };
    name.clone_into(&mut pod.metadata.name);
    name.clone_into(&mut pod.metadata.uid);
    "ns".clone_into(&mut pod.metadata.namespace);
    "Running".clone_into(&mut pod.status.phase);
    pod
}

/// Returns a pod with this priority and one container `c` that has this request.
pub fn requesting(name: &str, resource: &str, request: &str, priority: i32) -> Pod {
    let container = json!({"name": "c", "resources": {"requests": {resource: request}}});
    pod(name, json!({"containers": [container], "priority": priority}))
}

/// Returns the statistics of the node and of pods. [`stats`] makes those of a pod.
pub fn summary(node: Value, pods: &[Value]) -> Summary {
    let pods = pods.iter().map(|stats| serde_json::from_value(stats.clone()).unwrap()).collect();
    Summary { node: serde_json::from_value(node).unwrap(), pods }
}

pub fn pod_statistics(uid: &str, stats: Value) -> Value {
    let mut stats = stats;
    stats["podRef"] = json!({"uid": uid});
    stats
}

/// Returns memory statistics of a pod and of its container `c`.
pub fn memory(uid: &str, bytes: u64) -> Value {
    let memory = json!({"workingSetBytes": bytes});
    pod_statistics(uid, json!({"memory": memory, "containers": [{"name": "c", "memory": memory}]}))
}

/// Returns a node's statistics with this much memory available of 1000.
pub fn node_memory(available: u64) -> Value {
    json!({"memory": {"availableBytes": available, "workingSetBytes": 1000 - available}})
}
