//! The results of strategic merges.

use node_pressure_apiserver::patch;
use serde_json::{Value, json};

fn merged(original: &Value, patch: &Value) -> Value {
    let text = patch.to_string();
    patch::apply("application/strategic-merge-patch+json", original, text.as_bytes()).unwrap()
}

#[test]
fn conditions_are_merged_by_their_type() {
    let before = json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]});
    let patch = json!({"conditions": [{"type": "Mine", "status": "True"}, {"type": "Ready", "status": "False"}]});
    let after = merged(&before, &patch);
    let types: Vec<&str> =
        after["conditions"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["Mine", "Ready", "Other"]);
    assert_eq!(after["conditions"][1]["status"], "False");
}

#[test]
fn a_directive_removes_a_condition() {
    let before = json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "Mine", "status": "False"}]});
    let after = merged(&before, &json!({"conditions": [{"$patch": "delete", "type": "Mine"}]}));
    assert_eq!(after, json!({"conditions": [{"type": "Ready", "status": "True"}]}));
}

#[test]
fn taints_are_replaced_as_a_whole() {
    let before = json!({"taints": [{"key": "a", "effect": "NoSchedule"}]});
    let after = merged(&before, &json!({"taints": [{"key": "b", "effect": "NoSchedule"}]}));
    assert_eq!(after, json!({"taints": [{"key": "b", "effect": "NoSchedule"}]}));
}

#[test]
fn null_removes_and_retained_keys_remain() {
    let before = json!({"labels": {"a": "1", "b": "2"}, "volumes": [{"name": "v", "emptyDir": {}}]});
    let patch = json!({"labels": {"a": null}, "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]});
    let after = merged(&before, &patch);
    assert_eq!(after, json!({"labels": {"b": "2"}, "volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}));
}

#[test]
fn an_order_directive_sets_the_order() {
    let before = json!({"conditions": [{"type": "A"}, {"type": "B"}, {"type": "C"}]});
    let patch = json!({"$setElementOrder/conditions": [{"type": "C"}, {"type": "A"}], "conditions": [{"type": "C", "status": "True"}]});
    let types: Vec<Value> =
        merged(&before, &patch)["conditions"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect();
    assert_eq!(types, ["B", "C", "A"]);
}

#[test]
fn finalizers_are_a_set() {
    let before = json!({"finalizers": ["a", "b"]});
    assert_eq!(merged(&before, &json!({"finalizers": ["c"]})), json!({"finalizers": ["c", "a", "b"]}));
    let patch = json!({"$deleteFromPrimitiveList/finalizers": ["a"]});
    assert_eq!(merged(&before, &patch), json!({"finalizers": ["b"]}));
}
