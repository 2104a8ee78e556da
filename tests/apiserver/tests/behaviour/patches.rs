//! PATCH with each kind of patch.

use http::Method;
use node_pressure_apiserver::Stage;
use serde_json::{Value, json};

use super::{refusal, stage};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json-patch+json";

async fn patch(stage: &Stage, part: &str, kind: &str, patch: &Value) -> (u16, Value) {
    let path = format!("{}{part}", stage.node_path());
    stage.ask_with(&stage.admin(), Method::PATCH, &path, kind, patch.to_string()).await.unwrap()
}

fn types(node: &Value) -> Vec<&str> {
    node["status"]["conditions"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn conditions_are_merged_by_their_type() {
    let stage = stage().await;
    let one = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "r", "message": "m"});
    let first = json!({"status": {"conditions": [one("A", "True"), one("B", "True")]}});
    patch(&stage, "/status", STRATEGIC, &first).await;
    let second = json!({"status": {"conditions": [one("C", "True"), {"type": "A", "status": "False"}]}});
    let (_, node) = patch(&stage, "/status", STRATEGIC, &second).await;
    assert_eq!(types(&node), ["C", "A", "B"]);
    assert_eq!(node["status"]["conditions"][1]["status"], "False");
    assert_eq!(node["status"]["conditions"][1]["reason"], "r");
    let ordered = json!({"status": {
        "$setElementOrder/conditions": [{"type": "A"}, {"type": "B"}, {"type": "C"}],
        "conditions": [{"type": "B", "status": "False"}],
    }});
    let (_, node) = patch(&stage, "/status", STRATEGIC, &ordered).await;
    assert_eq!(types(&node), ["A", "B", "C"]);
    let partly = json!({"status": {
        "$setElementOrder/conditions": [{"type": "C"}, {"type": "A"}],
        "conditions": [{"type": "C", "status": "False"}],
    }});
    let (_, node) = patch(&stage, "/status", STRATEGIC, &partly).await;
    assert_eq!(types(&node), ["B", "C", "A"]);
    let gone = json!({"status": {"conditions": [{"$patch": "delete", "type": "B"}]}});
    let (_, node) = patch(&stage, "/status", STRATEGIC, &gone).await;
    assert_eq!(types(&node), ["C", "A"]);
    let nameless = json!({"status": {"conditions": [{"status": "False"}]}});
    let (code, answer) = patch(&stage, "/status", STRATEGIC, &nameless).await;
    assert_eq!(code, 500, "{answer}");
    assert_eq!(answer["message"], "map: map[status:False] does not contain declared merge key: type");
    let all = json!({"status": {"conditions": [{"$patch": "replace"}, one("D", "True")]}});
    let (_, node) = patch(&stage, "/status", STRATEGIC, &all).await;
    assert_eq!(types(&node), ["D"]);
    let merged = json!({"status": {"conditions": [one("E", "True")]}});
    let (_, node) = patch(&stage, "/status", MERGE, &merged).await;
    assert_eq!(types(&node), ["E"], "a merge patch replaces lists");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn taints_are_replaced_with_conflicts() {
    let stage = stage().await;
    stage.settle_node().await.unwrap();
    let version = stage.get(&stage.node_path()).await.unwrap().unwrap()["metadata"]["resourceVersion"].clone();
    let taints = json!([{"key": "example.org/a", "value": "1", "effect": "NoSchedule"}]);
    let conditional = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
    for kind in [STRATEGIC, MERGE] {
        let (code, node) = patch(&stage, "", kind, &conditional).await;
        if kind == STRATEGIC {
            assert_eq!((code, &node["spec"]["taints"]), (200, &taints));
        } else {
            assert_eq!(refusal(&(code, node)).1, "Conflict", "the patch has an old version");
        }
    }
    let test = json!([
        {"op": "test", "path": "/spec/taints/0/key", "value": "example.org/a"},
        {"op": "add", "path": "/spec/taints/-", "value": {"key": "example.org/b", "effect": "NoExecute"}},
    ]);
    let (code, node) = patch(&stage, "", JSON, &test).await;
    assert_eq!((code, &node["spec"]["taints"][1]["key"]), (200, &json!("example.org/b")));
    let wrong = json!([{"op": "test", "path": "/spec/taints/0/key", "value": "other"}]);
    let (code, answer) = patch(&stage, "", JSON, &wrong).await;
    assert_eq!(code, 422, "{answer}");
    let none = json!({"spec": {"taints": null}});
    let (_, node) = patch(&stage, "", STRATEGIC, &none).await;
    assert!(node["spec"]["taints"].is_null(), "{node}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_list_of_taints_is_replaced_if_it_is_as_known() {
    let stage = stage().await;
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    // A controller manager takes its own taint off at any time.
    stage.settle_node().await.unwrap();
    let node = stage.patch(&stage.node_path(), json!({"spec": {"taints": [taint("example.org/c")]}})).await.unwrap();
    let (uid, known) = (&node["metadata"]["uid"], &node["spec"]["taints"]);
    let if_known = |uid: &Value, known: &Value, write: Value| {
        json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": "/spec/taints", "value": known},
            write,
        ])
    };
    let (remove, add) = (
        || json!({"op": "remove", "path": "/spec/taints"}),
        |key: &str| json!({"op": "add", "path": "/spec/taints", "value": [taint(key)]}),
    );
    // The status changes meanwhile.
    let condition = json!({"type": "A", "status": "True", "reason": "r", "message": "m"});
    patch(&stage, "/status", STRATEGIC, &json!({"status": {"conditions": [condition]}})).await;
    for (name, uid, known, write, expected) in [
        ("another node", &json!("x"), known, remove(), None),
        ("no list was known", uid, &Value::Null, add("example.org/a"), None),
        ("an empty list was known", uid, &json!([]), add("example.org/a"), None),
        ("as known", uid, known, remove(), Some(Value::Null)),
        ("no list, as known", uid, &Value::Null, add("example.org/a"), Some(json!([taint("example.org/a")]))),
        ("another list was known", uid, &json!([taint("example.org/b")]), remove(), None),
        (
            "the other",
            uid,
            &json!([taint("example.org/a")]),
            add("example.org/b"),
            Some(json!([taint("example.org/b")])),
        ),
    ] {
        let answer = patch(&stage, "", JSON, &if_known(uid, known, write)).await;
        match expected {
            Some(expected) => assert_eq!((answer.0, &answer.1["spec"]["taints"]), (200, &expected), "{name}"),
            None => {
                let message = "the server rejected our request due to an error in our request";
                assert_eq!(refusal(&answer), (422, "Invalid", message), "{name}");
                assert!(answer.1["details"]["causes"].is_null(), "{name}: {answer:?}");
            }
        }
    }
    let nowhere = json!([{"op": "test", "path": "/spec/none/none", "value": null}]);
    assert_eq!(patch(&stage, "", JSON, &nowhere).await.0, 422, "the object has no such parent");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn another_uid_is_invalid_in_a_patch_and_a_conflict_in_an_update() {
    let stage = stage().await;
    let pod = stage.running_pod("a", Value::Null, Value::Null).await.unwrap();
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "r", "message": "m"});
    for (uid, expected) in [(pod["metadata"]["uid"].clone(), 200), (json!("another"), 422)] {
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        let path = format!("{}/status", stage.pods("a"));
        let answer = stage.ask(Method::PATCH, &path, patch).await.unwrap();
        assert_eq!(answer.0, expected, "{answer:?}");
        if expected == 422 {
            let message = "Pod \"a\" is invalid: metadata.uid: Invalid value: \"another\": field is immutable";
            assert_eq!(refusal(&answer), (422, "Invalid", message));
        }
    }
    let mut other = pod;
    other["metadata"]["uid"] = json!("another");
    other["metadata"]["resourceVersion"] = Value::Null;
    let answer = stage.ask(Method::PUT, &stage.pods("a"), other).await.unwrap();
    assert_eq!((refusal(&answer).0, refusal(&answer).1), (409, "Conflict"));
    assert!(refusal(&answer).2.contains("Precondition failed: UID in precondition: another, UID in object meta: "));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn labels_may_be_changed_beside_the_status() {
    let stage = stage().await;
    stage.running_pod("a", Value::Null, Value::Null).await.unwrap();
    let patch = json!({"metadata": {"labels": {"a": "1"}}, "status": {"reason": "x"}});
    let (code, pod) = stage.ask(Method::PATCH, &format!("{}/status", stage.pods("a")), patch).await.unwrap();
    assert_eq!((code, &pod["metadata"]["labels"]["a"], &pod["status"]["reason"]), (200, &json!("1"), &json!("x")));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn other_kinds_of_patch_are_refused() {
    let stage = stage().await;
    let (code, answer) = patch(&stage, "", "application/json", &json!({})).await;
    assert_eq!((code, answer["reason"].as_str()), (415, Some("UnsupportedMediaType")));
    let (code, answer) =
        stage.ask_with(&stage.admin(), Method::PATCH, &stage.node_path(), STRATEGIC, "{not json").await.unwrap();
    assert_eq!(code, 400, "{answer}");
    stage.end().await.unwrap();
}
