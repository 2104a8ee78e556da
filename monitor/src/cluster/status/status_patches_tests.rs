use super::*;
use crate::cluster::status::wanted::{Effect, WantedTaint};

const NOW: &str = "2026-11-21T12:00:00Z";
const BEFORE: &str = "2026-11-21T11:00:00Z";

fn condition(kind: &str, status: Option<bool>) -> WantedCondition {
    let reason = if status == Some(true) { "NodeHasInsufficientMemory" } else { "NodeHasSufficientMemory" };
    WantedCondition { kind: kind.to_owned(), status, reason: reason.to_owned(), message: "words".to_owned() }
}

fn status(holds: bool, taints: &[Effect]) -> NodeStatus {
    let taint = |effect: &Effect| WantedTaint { kind: "MemoryPressure".to_owned(), effect: *effect };
    NodeStatus {
        conditions: vec![condition("MemoryPressure", Some(holds))],
        taints: taints.iter().map(taint).collect(),
        may_act: true,
    }
}

fn node(conditions: impl Into<Value>, taints: impl Into<Value>) -> NodeObject {
    let (conditions, taints): (Value, Value) = (conditions.into(), taints.into());
    let node = json!({
        "metadata": {"name": "n", "resourceVersion": "7", "unknown": 1},
        "spec": {"taints": taints, "podCIDR": "10.0.0.0/24"},
        "status": {"conditions": conditions},
    });
    serde_json::from_value(node).unwrap()
}

fn ours(kind: &str, status: &str) -> Value {
    let reason = if status == "True" { "NodeHasInsufficientMemory" } else { "NodeHasSufficientMemory" };
    json!({"type": kind, "status": status, "reason": reason, "message": "words",
        "lastHeartbeatTime": BEFORE, "lastTransitionTime": BEFORE})
}

fn kubelets() -> Value {
    json!({"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"})
}

#[test]
fn a_condition_is_written_when_it_changes() {
    let seen = node(json!([kubelets(), ours("MonitorMemoryPressure", "False")]), Value::Null);
    let plan = |holds| conditions(&status(holds, &[]), Authority::Own, &seen, NOW);
    assert_eq!(plan(false), None, "as it is");
    let item = |plan: Option<Value>| plan.unwrap()["status"]["conditions"].clone();
    let flip = item(plan(true));
    assert_eq!(flip.as_array().unwrap().len(), 1, "the kubelet's is not in it");
    assert_eq!((&flip[0]["status"], &flip[0]["lastTransitionTime"]), (&json!("True"), &json!(NOW)));
    assert_eq!(flip[0]["type"], "MonitorMemoryPressure");
    // Another writer removed it.
    let bare = node(Value::Null, Value::Null);
    assert!(conditions(&status(false, &[]), Authority::Own, &bare, NOW).is_some());
}

#[test]
fn the_authority_writes_standard_names_but_not_in_observe_mode() {
    let seen = node(json!([kubelets(), ours("MonitorMemoryPressure", "False")]), Value::Null);
    let standard = authority(Authority::Standard, true);
    let plan = conditions(&status(true, &[]), standard, &seen, NOW).unwrap();
    let items = plan["status"]["conditions"].as_array().unwrap();
    assert_eq!(items[0]["type"], "MemoryPressure");
    assert_eq!(items[1], json!({"$patch": "delete", "type": "MonitorMemoryPressure"}), "those of before go");
    assert_eq!(authority(Authority::Standard, false), Authority::Own);
    assert_eq!(authority(Authority::Off, false), Authority::Off);
}

#[test]
fn conditions_of_other_writers_stay() {
    let others = json!([kubelets(), {"type": "Ready", "status": "True", "reason": "KubeletReady"},
        {"type": "KernelDeadlock", "status": "False", "reason": "KernelHasNoDeadlock"},
        {"type": "IOPressure", "status": "False", "reason": "NoPressure"}]);
    assert_eq!(no_conditions(&node(others.clone(), Value::Null)), None);
    let mut with_ours = others.as_array().unwrap().clone();
    with_ours.push(json!({"type": "MonitorConfigurationAccepted", "status": "True", "reason": "InForce"}));
    with_ours.push(json!({"type": "SystemIoPressure", "status": "False", "reason": "MonitorNoPressure"}));
    let plan = no_conditions(&node(json!(with_ours), Value::Null)).unwrap();
    assert_eq!(
        plan["status"]["conditions"],
        json!([{"$patch": "delete", "type": "MonitorConfigurationAccepted"},
            {"$patch": "delete", "type": "SystemIoPressure"}])
    );
}

#[test]
fn of_two_conditions_of_one_type_the_first_counts() {
    let mut wanted = status(true, &[]);
    wanted.conditions.push(condition("MonitorMemoryPressure", Some(false)));
    let plan = conditions(&wanted, Authority::Own, &NodeObject::default(), NOW).unwrap();
    assert_eq!(plan["status"]["conditions"].as_array().unwrap().len(), 1);
}

const OTHERS: &str = r#"{"key": "dedicated", "value": "gpu", "effect": "NoSchedule", "unknown": {"a": 1}}"#;

#[test]
fn taints_are_set_and_removed_between_others() {
    let others: Value = serde_json::from_str(OTHERS).unwrap();
    let own = json!({"key": "node-pressure-monitor/memory-pressure", "effect": "NoSchedule", "timeAdded": NOW});
    let bare = node(Value::Null, json!([others]));
    let set = |seen: &NodeObject, wanted: &NodeStatus| taints(wanted, Authority::Own, false, seen, NOW);
    assert_eq!(set(&bare, &status(true, &[Effect::NoSchedule])), Some(vec![others.clone(), own.clone()]));
    let tainted = node(Value::Null, json!([own, others]));
    assert_eq!(set(&tainted, &status(true, &[Effect::NoSchedule])), None, "as it is");
    assert_eq!(set(&tainted, &status(false, &[])), Some(vec![others.clone()]));
    let two = set(&tainted, &status(true, &[Effect::NoSchedule, Effect::NoExecute])).unwrap();
    assert_eq!((two.len(), &two[2]["effect"]), (3, &json!("NoExecute")));
    let observing = NodeStatus { may_act: false, ..status(true, &[Effect::NoSchedule]) };
    assert_eq!(set(&bare, &observing), None);
    assert_eq!(set(&tainted, &observing), Some(vec![others.clone()]), "observe mode takes away what enforcing left");
    assert_eq!(no_taints(&tainted), Some(vec![others]));
    let patch = taints_patch(&[], &tainted);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
}

#[test]
fn a_patch_of_own_taints_compares_the_list_alone() {
    let others: Value = serde_json::from_str(OTHERS).unwrap();
    let own = json!({"key": "node-pressure-monitor/memory-pressure", "effect": "NoSchedule", "timeAdded": NOW});
    let standard = json!({"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"});
    let add = |list: &Value| Some(json!({"op": "add", "path": "/spec/taints", "value": list}));
    let remove = Some(json!({"op": "remove", "path": "/spec/taints"}));
    for (name, before, after, expected) in [
        ("no list before", Value::Null, json!([own]), add(&json!([own]))),
        ("an empty list before", json!([]), json!([own]), add(&json!([own]))),
        ("beside another", json!([others]), json!([others, own]), add(&json!([others, own]))),
        (
            "from between others",
            json!([others, own, standard]),
            json!([others, standard]),
            add(&json!([others, standard])),
        ),
        ("the last", json!([own]), json!([]), remove),
        ("a standard taint", json!([]), json!([standard]), None),
        ("a standard taint for an own one", json!([standard, own]), json!([]), None),
        ("the others in another order", json!([others, standard]), json!([standard, others, own]), None),
    ] {
        let seen: NodeObject =
            serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {"taints": before}})).unwrap();
        let patch = taint_list_patch(after.as_array().unwrap(), &seen);
        let tests = |write: Value| {
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": "/spec/taints", "value": before},
                write,
            ])
        };
        assert_eq!(patch, expected.map(tests), "{name}");
    }
}

#[test]
fn a_standard_taint_is_the_control_planes_too() {
    let standard = json!({"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"});
    let kubelets_true = json!([{"type": "MemoryPressure", "status": "True", "reason": "KubeletHasInsufficientMemory"}]);
    let beside = node(kubelets_true, json!([standard]));
    assert_eq!(
        taints(&status(false, &[]), Authority::Own, false, &beside, NOW),
        None,
        "beside a kubelet it is not ours"
    );
    assert_eq!(no_taints(&beside), None);
    let alone = node(json!([ours("MemoryPressure", "True")]), json!([standard]));
    let set = |wanted: &NodeStatus, seen: &NodeObject| taints(wanted, Authority::Standard, false, seen, NOW);
    assert_eq!(set(&status(true, &[]), &alone), None, "the control plane wants it while the condition holds");
    let over = node(json!([ours("MemoryPressure", "False")]), json!([standard]));
    assert_eq!(set(&status(false, &[]), &over), Some(Vec::new()));
    assert_eq!(no_taints(&alone), Some(Vec::new()));
    assert!(was_authority(&alone) && was_authority(&over) && !was_authority(&beside));
    // After a time as the authority.
    let own = node(json!([ours("MonitorMemoryPressure", "True")]), json!([standard]));
    let after = taints(&status(true, &[Effect::NoSchedule]), Authority::Own, true, &own, NOW).unwrap();
    assert_eq!(after[0]["key"], "node-pressure-monitor/memory-pressure");
    assert_eq!(after.len(), 1);
}

#[test]
fn conditions_of_a_dead_agent_become_unknown_once() {
    let seen = node(json!([kubelets(), ours("MonitorMemoryPressure", "True")]), Value::Null);
    let plan = abandoned_conditions(&seen, "no heartbeat", NOW).unwrap();
    assert_eq!(plan["metadata"]["resourceVersion"], "7", "an agent that comes back in between wins");
    let items = plan["status"]["conditions"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!((&items[0]["status"], &items[0]["reason"]), (&json!("Unknown"), &json!("MonitorAgentStopped")));
    assert_eq!(items[0].get("lastHeartbeatTime"), None);
    let unknown = json!([{"type": "MonitorMemoryPressure", "status": "Unknown", "reason": "MonitorAgentStopped"}]);
    assert_eq!(abandoned_conditions(&node(unknown, Value::Null), "", NOW), None);
}
