use super::*;

fn pod(json: &str) -> Pod {
    serde_json::from_str(json).unwrap()
}

fn request(json: &str, resource: Resource, quirks: Quirks) -> i64 {
    pod(json).request(resource, quirks).units()
}

/// Makes a container with this memory. A leading `s` makes it a sidecar.
fn container(memory: &str) -> String {
    let (policy, memory) = match memory.strip_prefix('s') {
        Some(memory) => (r#""restartPolicy":"Always","#, memory),
        None => ("", memory),
    };
    let requests = format!(r#"{{"memory":"{memory}"}}"#);
    let limits = format!(r#"{{"ephemeral-storage":"{memory}"}}"#);
    format!(r#"{{{policy}"name":"c","resources":{{"requests":{requests},"limits":{limits}}}}}"#)
}

fn containers(init: &[&str], regular: &[&str], rest: &str) -> String {
    let list = |memory: &[&str]| memory.iter().map(|memory| container(memory)).collect::<Vec<_>>().join(",");
    format!(r#"{{"spec":{{"initContainers":[{}],"containers":[{}]{rest}}}}}"#, list(init), list(regular))
}

#[test]
fn containers_run_together_after_their_init_containers() {
    for (init, regular, expected) in [
        (&[][..], &["1", "2"][..], 3),
        (&["5"], &["1", "2"], 5),
        (&["2", "2"], &["1", "2"], 3),
        (&["s1"], &["1", "2"], 4),
        // The sidecar runs while the second init container starts.
        (&["s4", "5"], &["1", "2"], 9),
        (&["5", "s4"], &["1", "2"], 7),
        (&["s1", "s2", "9"], &["1"], 12),
    ] {
        let json = containers(init, regular, "");
        assert_eq!(request(&json, Resource::Memory, Quirks::ALL), expected, "{json}");
    }
}

#[test]
fn overhead_counts_where_something_is_requested() {
    let overhead = r#","overhead":{"memory":"10","ephemeral-storage":"10"}"#;
    assert_eq!(request(&containers(&[], &["1"], overhead), Resource::Memory, Quirks::ALL), 11);
    assert_eq!(request(&containers(&[], &["1"], overhead), Resource::EphemeralStorage, Quirks::ALL), 0);
}

#[test]
fn pod_level_resources_hide_those_of_the_containers() {
    for (resources, expected) in [
        (r#"{"requests":{"memory":"7"}}"#, 7),
        (r#"{"requests":{"cpu":"7"}}"#, 0),
        (r#"{"limits":{"memory":"7"}}"#, 0),
        (r#"{"limits":{"hugepages-2Mi":"0"}}"#, 0),
        // The resource cannot be requested for the pod as a whole.
        ("{}", 1),
        (r#"{"requests":{"ephemeral-storage":"7"}}"#, 1),
        ("null", 1),
    ] {
        let json = containers(&[], &["1"], &format!(r#","resources":{resources}"#));
        assert_eq!(request(&json, Resource::Memory, Quirks::ALL), expected, "{resources}");
    }
}

#[test]
fn without_the_quirk_pod_level_requests_keep_storage() {
    let json = r#"{"spec":{"resources":{"requests":{"memory":"7"}},
        "containers":[{"resources":{"requests":{"ephemeral-storage":"3"}}}]}}"#;
    assert_eq!(request(json, Resource::EphemeralStorage, Quirks::ALL), 0);
    assert_eq!(request(json, Resource::EphemeralStorage, Quirks::NONE), 3);
}

#[test]
fn the_scheduler_counts_pod_level_requests_and_overhead() {
    let overhead = r#","overhead":{"memory":"10"}"#;
    for (init, regular, rest, expected) in [
        (&[][..], &["1", "2"][..], "", "3"),
        (&["s4", "5"], &["1", "2"], "", "9"),
        (&[], &["1"], overhead, "11"),
        (&[], &[], overhead, "10"),
        (&[], &["1"], r#","resources":{"requests":{"memory":"7"}}"#, "7"),
        (&[], &["1"], r#","resources":{"requests":{"cpu":"7"}}"#, "1"),
        (&[], &["1"], r#","resources":{"requests":{"memory":"7"}},"overhead":{"memory":"10"}"#, "17"),
        (&[], &[], "", "0"),
    ] {
        let json = containers(init, regular, rest);
        assert_eq!(pod(&json).scheduled_request("memory").canonical(), expected, "{json}");
    }
}

#[test]
fn inodes_and_pids_cannot_be_requested() {
    let json = r#"{"spec":{"containers":[{"resources":{"requests":{"inodes":"3","pids":"4"}}}]}}"#;
    assert_eq!(request(json, Resource::Inodes, Quirks::ALL), 0);
    assert_eq!(request(json, Resource::Pids, Quirks::ALL), 0);
}

#[test]
fn fractions_are_exact() {
    let json = containers(&[], &["100m", "200m"], "");
    assert_eq!(pod(&json).request(Resource::Memory, Quirks::ALL), Amount::from_billionths(300_000_000));
}

#[test]
fn the_limit_of_local_storage_keeps_its_text() {
    let overhead = r#","overhead":{"ephemeral-storage":"1Ki"}"#;
    for (json, expected) in [
        (containers(&[], &[], ""), None),
        // With one contributing container the text is kept. With several the text is canonical, in the unit family of the first.
        (containers(&[], &["1E3"], ""), Some("1E3")),
        (containers(&[], &["1Ki", "1Ki"], ""), Some("2Ki")),
        (containers(&["5Ki"], &["1Ki"], ""), Some("5Ki")),
        (containers(&["s1Ki"], &["1Ki"], ""), Some("2Ki")),
        (containers(&[], &["1Ki"], overhead), Some("2Ki")),
        (containers(&[], &["0"], overhead), Some("0")),
    ] {
        let limit = pod(&json).ephemeral_storage_limit().map(|limit| limit.to_string());
        assert_eq!(limit.as_deref(), expected, "{json}");
    }
}
