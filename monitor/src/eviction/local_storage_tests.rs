use serde_json::{Value, json};

use super::*;
use crate::eviction::fixtures::{kubelet, pod, pod_statistics, summary};
use crate::eviction::usage::active_pods;

fn decided(policy: &Policy, layout: Layout, pods: &[Pod], stats: &[Value]) -> Vec<String> {
    let summary = summary(json!({}), stats);
    let evictions = evictions(policy, layout, &active_pods(pods, &summary));
    for eviction in &evictions {
        assert_eq!(eviction.grace_period_seconds, 1);
        assert!(eviction.annotations.is_empty());
        let quirk = policy.quirks.has(Quirk::LocalStorageWithoutDisruptionTarget);
        assert_eq!(eviction.has_disruption_target, !quirk);
    }
    let text = |it: &Eviction<'_>| format!("{} {}: {}", it.pod.metadata.name, it.cause.as_str(), it.message);
    evictions.iter().map(text).collect()
}

/// Returns the decision about one pod under the kubelet's rules.
fn decided_alone(layout: Layout, spec: Value, used: Value) -> Vec<String> {
    decided(&kubelet(&[]), layout, &[pod("p", spec)], &[pod_statistics("p", used)])
}

#[test]
fn an_empty_dir_above_its_limit_evicts_its_pod() {
    let message = |name: &str, limit: &str| {
        format!("p emptydirfs.limit: Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". ")
    };
    let volume = |name: &str, medium: &str, limit: Value| json!({"name": name, "emptyDir": {"medium": medium, "sizeLimit": limit}});
    let used = |name: &str, bytes: Value| json!({"name": name, "usedBytes": bytes});
    for (volumes, used, expected) in [
        (vec![volume("v", "", json!("1Ki"))], vec![used("v", json!(1024))], None),
        (vec![volume("v", "", json!("1Ki"))], vec![used("v", json!(1025))], Some(message("v", "1Ki"))),
        (vec![volume("v", "Memory", json!("1Ki"))], vec![used("v", json!(1025))], Some(message("v", "1Ki"))),
        (vec![volume("v", "", json!("1500m"))], vec![used("v", json!(2))], Some(message("v", "1500m"))),
        (vec![volume("v", "", json!(0))], vec![used("v", json!(2))], None),
        (vec![volume("v", "", Value::Null)], vec![used("v", json!(2))], None),
        (vec![volume("v", "", json!("1"))], vec![used("v", Value::Null)], None),
        (vec![volume("v", "", json!("1"))], vec![used("other", json!(2))], None),
        // A volume without a figure is passed over.
        (vec![volume("v", "", json!("1"))], vec![used("v", json!(2)), used("v", Value::Null)], Some(message("v", "1"))),
        // Volumes are checked in the order of the pod. If a name occurs twice in the statistics, the last figure counts.
        (
            vec![volume("a", "", json!("9")), volume("c", "", json!("1")), volume("b", "", json!("1"))],
            vec![used("a", json!(50)), used("b", json!(2)), used("c", json!(2)), used("a", json!(5))],
            Some(message("c", "1")),
        ),
    ] {
        let case = format!("{volumes:?} {used:?}");
        let decided = decided_alone(Layout::Single, json!({"volumes": volumes}), json!({"volume": used}));
        assert_eq!(decided, Vec::from_iter(expected), "{case}");
    }
}

fn limited(limit: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": limit}}}]})
}

#[test]
fn a_pod_above_the_limits_of_its_containers_is_evicted() {
    let message = |limit: &str| {
        format!(
            "p ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        )
    };
    for (limit, used, expected) in [
        ("2Ki", json!(2048), None),
        ("2Ki", json!(2049), Some(message("2Ki"))),
        // A limit of zero is a limit for the pod.
        ("0", json!(1), Some(message("0"))),
        ("0", json!(0), None),
        ("1", Value::Null, None),
    ] {
        let decided = decided_alone(Layout::Single, limited(limit), json!({"ephemeral-storage": {"usedBytes": used}}));
        assert_eq!(decided, Vec::from_iter(expected), "{limit} {used}");
    }
    // One container with a limit limits the whole pod. A pod whose containers have no limit has none.
    let mut two = limited("1");
    two["containers"].as_array_mut().unwrap().push(json!({"name": "free"}));
    let used = json!({"ephemeral-storage": {"usedBytes": 2}});
    assert_eq!(decided_alone(Layout::Single, two, used.clone()), [message("1")]);
    assert!(decided_alone(Layout::Single, json!({"containers": [{"name": "c"}]}), used).is_empty());
}

#[test]
fn a_container_above_its_limit_evicts_its_pod() {
    let message = "p ephemeralcontainerfs.limit: Container c exceeded its local ephemeral storage limit \"10\". ";
    let used = |logs: Value, rootfs: Value| json!({"containers": [{"name": "c", "logs": logs, "rootfs": rootfs}]});
    let bytes = |bytes: u64| json!({"usedBytes": bytes});
    for (logs, rootfs, single, dedicated) in [
        (bytes(5), bytes(5), false, false),
        (bytes(5), bytes(6), true, false),
        (bytes(11), Value::Null, true, true),
        (Value::Null, bytes(11), true, false),
        (Value::Null, Value::Null, false, false),
    ] {
        for (layout, expected) in
            [(Layout::Single, single), (Layout::DedicatedImageFs, dedicated), (Layout::SplitImageFs, dedicated)]
        {
            let decided = decided_alone(layout, limited("10"), used(logs.clone(), rootfs.clone()));
            assert_eq!(decided, Vec::from_iter(expected.then_some(message)), "{logs} {rootfs} {layout:?}");
        }
    }
    // A limit of zero is no limit for a container. Limits of init containers are not checked one by one.
    assert!(decided_alone(Layout::Single, limited("0"), used(bytes(5), bytes(5))).is_empty());
    let init = json!({"initContainers": limited("10")["containers"]});
    assert!(decided_alone(Layout::Single, init, used(bytes(50), bytes(5))).is_empty());
}

#[test]
fn one_pass_evicts_all_but_critical_pods() {
    let mut critical = limited("1");
    critical["priority"] = json!(2_000_000_000);
    let mut ended = pod("ended", limited("1"));
    "Succeeded".clone_into(&mut ended.status.phase);
    let pods = [
        pod("b", limited("1")),
        pod("critical", critical),
        ended,
        pod("unknown", limited("1")),
        pod("a", limited("1")),
    ];
    let used = |name| {
        pod_statistics(
            name,
            json!({"ephemeral-storage": {"usedBytes": 2}, "containers": [{"name": "c", "logs": {"usedBytes": 9}}]}),
        )
    };
    let stats = ["b", "critical", "ended", "a"].map(used);
    let mut policy = kubelet(&[]);
    let names = |policy: &Policy| -> Vec<String> {
        let decided = decided(policy, Layout::Single, &pods, &stats);
        decided.iter().map(|text| text.split_once(": ").unwrap().0.to_owned()).collect()
    };
    let expected = ["b ephemeralpodfs.limit", "a ephemeralpodfs.limit"];
    assert_eq!(names(&policy), expected);
    policy.quirks.set(Quirk::LocalStorageWithoutDisruptionTarget, false);
    assert_eq!(names(&policy), expected);
    policy.local_storage_isolation = false;
    assert!(names(&policy).is_empty());
}
