use super::*;

fn class(json: &str, quirks: Quirks) -> QosClass {
    serde_json::from_str::<Pod>(json).unwrap().qos_class(quirks)
}

#[test]
fn the_class_follows_from_the_resources() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let both = r#"{"requests":{"cpu":"1","memory":"1Gi"},"limits":{"cpu":"1000m","memory":"1024Mi"}}"#;
    for (containers, expected) in [
        (vec![], BestEffort),
        (vec!["{}"], BestEffort),
        (vec![r#"{"requests":{"memory":"0"},"limits":{"cpu":"0"}}"#], BestEffort),
        (vec![r#"{"requests":{"ephemeral-storage":"1Gi"}}"#], BestEffort),
        (vec![r#"{"requests":{"memory":"1"}}"#], Burstable),
        (vec![r#"{"limits":{"memory":"1"}}"#], Burstable),
        (vec![both], Guaranteed),
        (vec![both, both], Guaranteed),
        (vec![both, "{}"], Burstable),
        // The sums are equal, but one container has no limit for memory.
        (
            vec![
                r#"{"requests":{"cpu":"1","memory":"1"},"limits":{"cpu":"1","memory":"2"}}"#,
                r#"{"requests":{"cpu":"1","memory":"1"},"limits":{"cpu":"1"}}"#,
            ],
            Burstable,
        ),
        // Only the sums are compared.
        (
            vec![
                r#"{"requests":{"cpu":"1","memory":"1"},"limits":{"cpu":"1","memory":"2"}}"#,
                r#"{"requests":{"cpu":"1","memory":"2"},"limits":{"cpu":"1","memory":"1"}}"#,
            ],
            Guaranteed,
        ),
        // The limits have no requests. The API server would have set the requests.
        (vec![r#"{"limits":{"cpu":"1","memory":"1"}}"#], Burstable),
    ] {
        let list: Vec<String> = containers.iter().map(|resources| format!(r#"{{"resources":{resources}}}"#)).collect();
        for place in ["containers", "initContainers"] {
            let json = format!(r#"{{"spec":{{"{place}":[{}]}}}}"#, list.join(","));
            assert_eq!(class(&json, Quirks::ALL), expected, "{json}");
        }
        let ephemeral = format!(r#"{{"spec":{{"ephemeralContainers":[{}]}}}}"#, list.join(","));
        assert_eq!(class(&ephemeral, Quirks::ALL), BestEffort, "{ephemeral}");
    }
}

#[test]
fn pod_level_resources_decide_the_class() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    for (resources, with_quirks, without) in [
        (r#"{"requests":{"cpu":"1","memory":"1"},"limits":{"cpu":"1","memory":"1"}}"#, Guaranteed, Guaranteed),
        (r#"{"requests":{"memory":"1"}}"#, Burstable, Burstable),
        (r#"{"requests":{"memory":"1"},"limits":{"memory":"1"}}"#, Burstable, Burstable),
        (r#"{"requests":{"hugepages-2Mi":"2Mi"}}"#, BestEffort, Burstable),
        ("{}", BestEffort, Burstable),
        ("null", Burstable, Burstable),
    ] {
        let json = format!(
            r#"{{"spec":{{"resources":{resources},"containers":[{{"resources":{{"requests":{{"memory":"1"}}}}}}]}}}}"#
        );
        assert_eq!(class(&json, Quirks::ALL), with_quirks, "{resources}");
        assert_eq!(class(&json, Quirks::NONE), without, "{resources}");
    }
}

#[test]
fn the_reported_class_wins() {
    let json = r#"{"spec":{"containers":[{}]},"status":{"qosClass":"Guaranteed"}}"#;
    assert_eq!(class(json, Quirks::ALL), QosClass::Guaranteed);
    // An unknown class is ignored.
    let json = r#"{"spec":{"containers":[{}]},"status":{"qosClass":"Silver"}}"#;
    assert_eq!(class(json, Quirks::ALL), QosClass::BestEffort);
}
