use serde_json::json;

use super::*;
use crate::config::Semantics;
use crate::eviction::fixtures::summary;
use crate::units::Moment;

fn observed(node: serde_json::Value, semantics: Semantics) -> Vec<(&'static str, i64, i64)> {
    let observation = observe(&summary(node, &[]), Quirks::of(semantics));
    observation.signals.iter().map(|value| (value.signal.as_str(), value.available, value.capacity)).collect()
}

#[test]
fn each_signal_is_read_from_its_statistics() {
    let fs = |by: u64| {
        json!({"availableBytes": 10 + by, "capacityBytes": 100 + by, "inodesFree": 20 + by, "inodes": 200 + by,
               "usedBytes": 1, "inodesUsed": 2})
    };
    let node = json!({
        "memory": {"availableBytes": 40, "workingSetBytes": 60, "usageBytes": 70},
        "systemContainers": [
            {"name": "kubelet", "memory": {"availableBytes": 1, "workingSetBytes": 1}},
            {"name": "pods", "memory": {"availableBytes": 30, "workingSetBytes": 20}},
        ],
        "fs": fs(0), "runtime": {"imageFs": fs(1), "containerFs": fs(2)},
        "rlimit": {"maxpid": 1000, "curproc": 100},
    });
    let expected = [
        ("memory.available", 40, 100),
        ("allocatableMemory.available", 30, 50),
        ("nodefs.available", 10, 100),
        ("nodefs.inodesFree", 20, 200),
        ("imagefs.available", 11, 101),
        ("imagefs.inodesFree", 21, 201),
        ("containerfs.available", 12, 102),
        ("containerfs.inodesFree", 22, 202),
        ("pid.available", 900, 1000),
    ];
    assert_eq!(observed(node, Semantics::Kubelet), expected);
}

#[test]
fn a_signal_needs_available_amount_and_capacity() {
    for node in [
        json!({}),
        json!({"memory": null, "fs": null, "runtime": null, "rlimit": null, "systemContainers": null}),
        json!({"memory": {"availableBytes": 1}, "systemContainers": [{"name": "pods", "memory": {"workingSetBytes": 1}}]}),
        json!({"memory": {"availableBytes": null, "workingSetBytes": 1}, "systemContainers": [{"name": "pods"}, null]}),
        json!({"fs": {"availableBytes": 1, "inodes": 1}, "runtime": {"imageFs": {"capacityBytes": 1, "inodesFree": 1}}}),
        json!({"rlimit": {"maxpid": 1}}),
        json!({"rlimit": {"curproc": 1}}),
        json!({"systemContainers": [{"name": "runtime", "memory": {"availableBytes": 1, "workingSetBytes": 1}}]}),
    ] {
        assert_eq!(observed(node.clone(), Semantics::Kubelet), [], "{node}");
    }
}

#[test]
fn usage_above_capacity_is_negative_for_the_kubelet() {
    let node = json!({
        "memory": {"availableBytes": u64::MAX - 4, "workingSetBytes": 105},
        "rlimit": {"maxpid": 10, "curproc": 12},
    });
    let kubelet = [("memory.available", -5, 100), ("pid.available", -2, 10)];
    assert_eq!(observed(node.clone(), Semantics::Kubelet), kubelet);
    let corrected = [("memory.available", 0, 100), ("pid.available", 0, 10)];
    assert_eq!(observed(node, Semantics::Corrected), corrected);
}

#[test]
fn each_signal_has_the_time_of_its_own_statistics() {
    let node = json!({
        "memory": {"time": "1970-01-01T00:00:07Z", "availableBytes": 1, "workingSetBytes": 1},
        "fs": {"time": "1970-01-01T00:00:08.5Z", "availableBytes": 1, "capacityBytes": 1},
        "rlimit": {"time": null, "maxpid": 1, "curproc": 1},
    });
    let observation = observe(&summary(node, &[]), Quirks::of(Semantics::Kubelet));
    let times: Vec<Option<Moment>> = observation.signals.iter().map(|value| value.at).collect();
    assert_eq!(times, [Some(Moment(7_000_000_000)), Some(Moment(8_500_000_000)), None]);
}
