use serde_json::{Value, json};

use super::*;
use crate::eviction::fixtures::{kubelet, pod, pod_statistics, requesting, summary};
use crate::eviction::{SignalValue, State, arm, assess};
use crate::units::Signal;

const GI: u64 = 1 << 30;

/// Signal, threshold and what is left of how much; the pod's statistics, if any.
fn composed(low: (Signal, &str, i64, i64), pod: &Pod, used: Option<Value>) -> (String, Vec<(&'static str, String)>) {
    let (signal, threshold, available, capacity) = low;
    let policy = kubelet(&[(signal, threshold, 0)]);
    let observation =
        crate::eviction::Observation { signals: vec![SignalValue { signal, available, capacity, at: None }] };
    let armed = arm(&policy, crate::eviction::Layout::Single);
    let (_, assessment) = assess(&policy, &armed, &State::default(), &observation, crate::units::Moment(0));
    let summary = used.map(|used| summary(json!({}), &[pod_statistics(&pod.metadata.uid, used)]));
    compose(
        &policy,
        Layout::Single,
        assessment.to_act_on()[0],
        pod,
        summary.as_ref().and_then(|summary| summary.pods.first()),
    )
}

const MEMORY: (Signal, &str, i64, i64) = (Signal::MemoryAvailable, "1Gi", (1 << 30) - 1, 4 << 30);
const LOW_MEMORY: &str = "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1073741823. ";

fn working_set(name: &str, bytes: u64) -> Value {
    json!({"name": name, "memory": {"workingSetBytes": bytes}})
}

#[test]
fn the_message_names_a_container_above_its_request() {
    let (message, annotations) =
        composed(MEMORY, &requesting("p", "memory", "1Gi", 0), Some(json!({"containers": [working_set("c", 2 * GI)]})));
    let expected =
        LOW_MEMORY.to_owned() + "Container c was using 2Gi, request is 1Gi, has larger consumption of memory. ";
    assert_eq!(message, expected);
    let expected =
        [("offending_containers", "c"), ("offending_containers_usage", "2Gi"), ("starved_resource", "memory")];
    assert_eq!(annotations, expected.map(|(key, value)| (key, value.to_owned())));
}

#[test]
fn without_statistics_only_the_threshold_is_named() {
    let (message, annotations) = composed(MEMORY, &requesting("p", "memory", "1Gi", 0), None);
    assert_eq!(message, LOW_MEMORY);
    assert!(annotations.is_empty());
}

#[test]
fn containers_are_named_in_the_order_of_statistics() {
    let pod = pod(
        "p",
        json!({
            "containers": [{"name": "a", "resources": {"requests": {"memory": "1124Mi"}}}, {"name": "b"}],
            "initContainers": [{"name": "init", "resources": {"requests": {"memory": "1"}}}],
            "ephemeralContainers": [{"name": "debug"}],
        }),
    );
    let containers = [
        working_set("init", 2),
        working_set("debug", GI),
        working_set("stranger", GI),
        working_set("b", 1000),
        json!({"name": "a"}),
        working_set("a", 1124 << 20),
        working_set("b", 0),
    ];
    let (message, annotations) = composed(MEMORY, &pod, Some(json!({"containers": containers})));
    let expected = LOW_MEMORY.to_owned()
        + "Container init was using 2, request is 1, has larger consumption of memory. \
           Container b was using 1k, request is 0, has larger consumption of memory. ";
    assert_eq!(message, expected);
    assert_eq!(
        annotations[..2],
        [("offending_containers", "init,b".to_owned()), ("offending_containers_usage", "2,1k".to_owned()),]
    );
}

#[test]
fn a_pod_level_request_is_always_named() {
    let pod = pod("p", json!({"containers": [{"name": "c"}], "resources": {"requests": {"memory": "2Gi"}}}));
    let said = |usage: &str| {
        format!("{LOW_MEMORY}Pod p was using {usage}, request is 2Gi, has larger consumption of memory. ")
    };
    for (used, expected) in [
        (json!({"memory": {"workingSetBytes": GI}}), said("1Gi")),
        (json!({"memory": {"workingSetBytes": 3 * GI}}), said("3Gi")),
        (json!({"memory": {}}), said("0")),
        (json!({}), LOW_MEMORY.to_owned()),
    ] {
        let (message, annotations) = composed(MEMORY, &pod, Some(used.clone()));
        assert_eq!(message, expected, "{used}");
        assert_eq!(annotations.len(), if used == json!({}) { 3 } else { 5 });
    }
    // A pod-level request exists for memory, not for ephemeral storage.
    let disk = (Signal::NodeFsAvailable, "1Ki", 10, 100);
    let (message, annotations) = composed(disk, &pod, Some(json!({"memory": {}})));
    assert!(!message.contains("Pod p"), "{message}");
    assert_eq!(annotations.len(), 3);
}

#[test]
fn only_usage_of_memory_and_disk_is_named() {
    let pod = requesting("p", "ephemeral-storage", "1Ki", 0);
    let container = |rootfs: Value, logs: Value| json!({"containers": [{"name": "c", "rootfs": rootfs, "logs": logs}]});
    let bytes = |bytes: u64| json!({"usedBytes": bytes, "inodesUsed": 5000});
    let low = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Mi, available: 1000Ki. ";
    let said = "Container c was using 1028, request is 1Ki, has larger consumption of ephemeral-storage. ";
    for (rootfs, logs, expected) in [
        (bytes(1024), bytes(4), said),
        (bytes(1024), bytes(0), ""),
        (bytes(9999), Value::Null, ""),
        (json!({}), bytes(9999), ""),
    ] {
        let disk = (Signal::ImageFsAvailable, "1Mi", 1000 << 10, 1 << 30);
        let (message, _) = composed(disk, &pod, Some(container(rootfs.clone(), logs)));
        assert_eq!(message, format!("{low}{expected}"), "{rootfs}");
    }
    for (low, expected) in [
        // A percentage is printed with binary suffixes for any resource. The available amount has decimal suffixes here.
        ((Signal::NodeFsInodesFree, "50%", 2000, 4096), "inodes. Threshold quantity: 2Ki, available: 2k. "),
        ((Signal::PidAvailable, "3000", 2048, 4096), "pids. Threshold quantity: 3k, available: 2048. "),
        ((Signal::PidAvailable, "10", -2, 4096), "pids. Threshold quantity: 10, available: -2. "),
    ] {
        let (message, annotations) = composed(low, &pod, Some(container(bytes(9999), bytes(9999))));
        assert_eq!(message, format!("The node was low on resource: {expected}"));
        assert_eq!(annotations[0], ("offending_containers", String::new()));
    }
}
