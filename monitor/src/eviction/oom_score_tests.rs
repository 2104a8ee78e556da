use super::*;

const MIB: u64 = 1 << 20;
const GIB: i64 = 1 << 30;

#[test]
fn burstable_examples_of_the_kubelet() {
    let (small, large) = (Bytes(4096 * MIB), Bytes(16384 * MIB));
    for (request, capacity, adj) in [
        (0, small, 999),
        (5 * MIB, small, 999),
        (100 * MIB, small, 976),
        (1024 * MIB, small, 750),
        (3072 * MIB, small, 250),
        (4096 * MIB, small, 3),
        (100 * MIB, large, 994),
        (1024 * MIB, large, 938),
        (4090 * MIB, large, 751),
        (u64::MAX, small, 3),
        (1, Bytes(0), 3),
    ] {
        let value = oom_score_adj(QosClass::Burstable, Bytes(request), capacity, OomScores::KUBERNETES);
        assert_eq!(value, adj, "{request} of {capacity}");
    }
}

#[test]
fn other_classes_have_fixed_values() {
    let adj = |qos, request, scores| oom_score_adj(qos, Bytes(request), Bytes(1), scores);
    assert_eq!(adj(QosClass::Guaranteed, 1, OomScores::KUBERNETES), -997);
    assert_eq!(adj(QosClass::Guaranteed, 1, OomScores::OPENSHIFT3), -998);
    assert_eq!(adj(QosClass::BestEffort, 0, OomScores::KUBERNETES), 1000);
    assert_eq!(adj(QosClass::Burstable, 1, OomScores::OPENSHIFT3), 2);
}

fn values(json: &str, quirks: Quirks) -> Vec<i64> {
    let pod: Pod = serde_json::from_str(json).unwrap();
    container_adjustments(&pod, 4 * GIB, &OomScores::KUBERNETES, quirks).into_iter().map(|(_, adj)| adj).collect()
}

#[test]
fn a_containers_value_follows_its_own_request() {
    let of = |memory: &str| format!(r#"{{"name":"c","resources":{{"requests":{{"memory":"{memory}"}}}}}}"#);
    let pod = |init: &str, containers: &str, rest: &str| {
        format!(r#"{{"spec":{{"initContainers":[{init}],"containers":[{containers}]{rest}}}}}"#)
    };
    let sidecar = of("100Mi").replace(r#""name""#, r#""restartPolicy":"Always","name""#);
    let both = [of("1Gi"), of("3Gi")].join(",");
    for (json, expected) in [
        (pod("", &both, ""), &[750, 250][..]),
        // The value of a plain init container follows its own request. The value of a sidecar is at most that of the regular container
        // with the smallest request.
        (pod(&of("100Mi"), &both, ""), &[750, 250, 976]),
        (pod(&sidecar, &both, ""), &[750, 250, 750]),
        // The containers share what the pod requests beyond them: (4Gi - 2Gi) / 2 each.
        (pod("", &[of("1Gi"), of("1Gi")].join(","), r#","resources":{"requests":{"memory":"4Gi"}}"#), &[500, 500]),
        // Pod-level limits without requests do not count as requests.
        (pod("", &of("1Gi"), r#","resources":{"limits":{"memory":"4Gi"}}"#), &[750]),
        // A pod-level request for CPU alone has no memory to share.
        (pod("", &of("1Gi"), r#","resources":{"requests":{"cpu":"1"}}"#), &[750]),
        // Plain init containers share too, and their request counts towards that of the pod: (4Gi - 2Gi) / 2.
        (pod(&of("2Gi"), &of("1Gi"), r#","resources":{"requests":{"memory":"4Gi"}}"#), &[500, 250]),
        (pod("", r#"{"name":"c"}"#, ""), &[1000]),
        (pod("", r#"{"name":"c"}"#, r#","priority":2000001000,"priorityClassName":"system-node-critical""#), &[-997]),
        // A pod that is critical by another priority class has the value of its QoS class.
        (
            pod("", r#"{"name":"c"}"#, r#","priority":2000000000,"priorityClassName":"system-cluster-critical""#),
            &[1000],
        ),
        (pod("", &of("8Gi"), ""), &[3]),
        ("{}".to_owned(), &[]),
    ] {
        assert_eq!(values(&json, Quirks::ALL), expected, "{json}");
        assert_eq!(values(&json, Quirks::NONE), expected, "{json}");
    }
}

#[test]
fn the_qos_class_in_the_status_decides() {
    for (class, expected) in [("Guaranteed", -997), ("Burstable", 999), ("BestEffort", 1000)] {
        let json = format!(r#"{{"spec":{{"containers":[{{"name":"c"}}]}},"status":{{"qosClass":"{class}"}}}}"#);
        assert_eq!(values(&json, Quirks::ALL), [expected], "{class}");
    }
}

/// The pod requests 1.5Gi less than its containers. Two containers share the difference.
#[test]
fn a_pod_may_request_less_than_its_containers() {
    let json = r#"{"spec":{"resources":{"requests":{"memory":"512Mi"}},
        "containers":[{"name":"large","resources":{"requests":{"memory":"2Gi"}}},{"name":"none"}]}}"#;
    assert_eq!(values(json, Quirks::ALL), [688, 1187]);
    assert_eq!(values(json, Quirks::NONE), [688, 999]);
}

#[test]
fn containers_for_debugging_request_nothing() {
    for (json, expected) in [
        (r#"{"status":{"qosClass":"Guaranteed"}}"#, -997),
        (r#"{"status":{"qosClass":"Burstable"}}"#, 999),
        (r#"{"status":{"qosClass":"BestEffort"}}"#, 1000),
        // A container for debugging gets a share of what the pod requests beyond its containers, but does not count as one that shares.
        (r#"{"spec":{"resources":{"requests":{"memory":"2Gi"}},"containers":[{"name":"c"}]}}"#, 500),
    ] {
        let pod: Pod = serde_json::from_str(json).unwrap();
        let scores = PodScores::of(&pod, 4 * GIB, OomScores::KUBERNETES, Quirks::ALL);
        assert_eq!(scores.of_container(&Container::default()), expected, "{json}");
    }
}

/// A thousand times 10Pi overflows 64 bits. The kubelet lets the product wrap.
#[test]
fn only_the_kubelet_lets_a_huge_request_wrap() {
    let json = r#"{"spec":{"containers":[{"name":"c","resources":{"requests":{"memory":"10Pi"}}}]}}"#;
    assert_eq!(values(json, Quirks::ALL), [1_673_528_296]);
    assert_eq!(values(json, Quirks::NONE), [3]);
}
