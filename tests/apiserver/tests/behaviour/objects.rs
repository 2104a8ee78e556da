//! Creating, changing and reading objects, and refusals.

use http::Method;
use serde_json::{Value, json};

use super::{ask, refusal, stage};

#[tokio::test]
async fn an_object_is_created_once() {
    let stage = stage().await;
    let path = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let map = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let created = stage.create(&path, map.clone()).await.unwrap();
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(created["metadata"]["namespace"], stage.namespace.as_str());
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(created["metadata"][field].is_string(), "{created}");
    }
    let again = ask(&stage, Method::POST, &path, map).await;
    assert_eq!(refusal(&again), (409, "AlreadyExists", "configmaps \"a\" already exists"));
    assert_eq!(again.1["details"], json!({"name": "a", "kind": "configmaps"}));
    let listed = ask(&stage, Method::GET, &path, Value::Null).await.1;
    assert_eq!(listed["kind"], "ConfigMapList");
    let item = listed["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "a").unwrap();
    assert!(item["kind"].is_null(), "items of a list have no kind: {item}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_missing_object_is_not_found() {
    let stage = stage().await;
    let answer = ask(&stage, Method::GET, &stage.pods("none"), Value::Null).await;
    assert_eq!(refusal(&answer), (404, "NotFound", "pods \"none\" not found"));
    assert_eq!(answer.1["details"], json!({"name": "none", "kind": "pods"}));
    let answer = ask(&stage, Method::GET, "/apis/policy/v1/nothings", Value::Null).await;
    assert!(matches!(answer, (404, _)), "{answer:?}");
    let answer = ask(&stage, Method::GET, "/apis/no.such.group/v1/things", Value::Null).await;
    assert_eq!(answer, (404, json!("404 page not found\n")));
    let elsewhere = ask(&stage, Method::POST, "/api/v1/namespaces/nowhere/pods", pod("a")).await;
    assert_eq!(refusal(&elsewhere), (404, "NotFound", "namespaces \"nowhere\" not found"));
    stage.end().await.unwrap();
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "example.org/none:1"}]}})
}

#[tokio::test]
async fn a_stale_update_is_a_conflict() {
    let stage = stage().await;
    // Controllers change a new node too, so the first update may need some attempts.
    let (node, changed) = loop {
        let node = stage.get(&stage.node_path()).await.unwrap().unwrap();
        let mut first = node.clone();
        first["metadata"]["labels"] = json!({"a": "1"});
        let (status, changed) = ask(&stage, Method::PUT, &stage.node_path(), first).await;
        if status == 200 {
            break (node, changed);
        }
        assert!(status == 409 && stage.has_controllers().await.unwrap(), "{status} {changed}");
    };
    assert_ne!(changed["metadata"]["resourceVersion"], node["metadata"]["resourceVersion"]);
    let stale = ask(&stage, Method::PUT, &stage.node_path(), node).await;
    let message = format!(
        "Operation cannot be fulfilled on nodes \"{}\": the object has been modified; please apply your changes to the \
         latest version and try again",
        stage.node
    );
    assert_eq!(refusal(&stale), (409, "Conflict", message.as_str()));
    let mut unconditional = changed.clone();
    unconditional["metadata"]["resourceVersion"] = Value::Null;
    let (status, _) = ask(&stage, Method::PUT, &stage.node_path(), unconditional).await;
    assert_eq!(status, 200);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_equal_object_is_no_write() {
    let stage = stage().await;
    stage.settle_node().await.unwrap();
    let patch = json!({"metadata": {"labels": {"a": "1"}}});
    let first = ask(&stage, Method::PATCH, &stage.node_path(), patch.clone()).await.1;
    let second = ask(&stage, Method::PATCH, &stage.node_path(), patch).await.1;
    assert_eq!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_status_is_changed_by_its_subresource_only() {
    let stage = stage().await;
    let condition = json!([{"type": "Mine", "status": "True", "reason": "r", "message": "m"}]);
    let both = json!({"spec": {"unschedulable": true}, "status": {"conditions": condition}});
    let node = ask(&stage, Method::PATCH, &stage.node_path(), both.clone()).await.1;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert!(node["status"]["conditions"].is_null(), "{node}");
    let other = json!({"spec": {"unschedulable": null}, "status": {"conditions": condition}});
    let node = ask(&stage, Method::PATCH, &format!("{}/status", stage.node_path()), other).await.1;
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["status"]["conditions"][0]["type"], "Mine");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_gets_defaults() {
    let stage = stage().await;
    let resources = json!({"limits": {"memory": "64Mi", "cpu": "1"}});
    let containers = json!([{"name": "main", "image": "example.org/none:1", "resources": resources}]);
    let pod = stage
        .pod("a", Value::Null, json!({"priorityClassName": "system-node-critical", "containers": containers}))
        .await
        .unwrap();
    assert_eq!(pod["spec"]["priority"], 2_000_001_000);
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(pod["spec"]["restartPolicy"], "Always");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"], json!({"memory": "64Mi", "cpu": "1"}));
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["qosClass"], "Guaranteed");
    assert_eq!(pod["metadata"]["generation"], 1);
    let plain = stage.pod("b", Value::Null, Value::Null).await.unwrap();
    assert_eq!((&plain["spec"]["priority"], &plain["status"]["qosClass"]), (&json!(0), &json!("BestEffort")));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_may_not_set_its_priority() {
    let stage = stage().await;
    let mut wanted = pod("a");
    wanted["spec"]["priority"] = json!(1000);
    let answer = ask(&stage, Method::POST, &stage.pods(""), wanted).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (403, "Forbidden"));
    assert!(message.contains("the integer value of priority (1000) must not be provided in pod spec"), "{message}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_spec_of_a_pod_is_fixed() {
    let stage = stage().await;
    stage.pod("a", Value::Null, Value::Null).await.unwrap();
    let patch = json!({"spec": {"nodeName": "elsewhere"}});
    let answer = ask(&stage, Method::PATCH, &stage.pods("a"), patch).await;
    let (code, reason, message) = refusal(&answer);
    assert_eq!((code, reason), (422, "Invalid"));
    assert!(
        message.starts_with("Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields"),
        "{message}"
    );
    assert_eq!(answer.1["details"]["kind"], "Pod");
    assert_eq!(answer.1["details"]["causes"][0]["field"], "spec");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_node_begins_with_a_taint() {
    let stage = stage().await;
    let name = format!("{}-second", stage.node);
    // A controller manager may take the taint off before a later GET.
    let node = stage.create("/api/v1/nodes", json!({"metadata": {"name": name}})).await.unwrap();
    assert_eq!(node["spec"]["taints"], json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]));
    let (status, answer) = ask(&stage, Method::DELETE, &format!("/api/v1/nodes/{name}"), Value::Null).await;
    assert_eq!(status, 200, "{answer}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_event_is_in_its_objects_namespace() {
    let stage = stage().await;
    let event = |name: &str, within: Value| {
        json!({
            "metadata": {"name": name}, "reason": "Evicted", "type": "Warning", "message": "m",
            "involvedObject": {"kind": "Pod", "name": "a", "namespace": within},
        })
    };
    let path = format!("/api/v1/namespaces/{}/events", stage.namespace);
    stage.create(&path, event("a", json!(stage.namespace))).await.unwrap();
    let wrong = ask(&stage, Method::POST, &path, event("b", json!("elsewhere"))).await;
    assert_eq!(refusal(&wrong).0, 422, "{wrong:?}");
    assert!(refusal(&wrong).2.contains("does not match event.namespace"), "{wrong:?}");
    let of_node = json!({
        "metadata": {"name": format!("{}.1", stage.node)}, "reason": "r", "type": "Normal", "message": "m",
        "involvedObject": {"kind": "Node", "name": stage.node, "uid": stage.node},
    });
    stage.create("/api/v1/namespaces/default/events", of_node.clone()).await.unwrap();
    let wrong = ask(&stage, Method::POST, &path, of_node).await;
    assert_eq!(refusal(&wrong).0, 422, "{wrong:?}");
    assert_eq!(stage.node_events().await.unwrap().len(), 1);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn lists_are_paged_and_selected() {
    let stage = stage().await;
    for (name, team) in [("a", "x"), ("b", "y"), ("c", "x")] {
        stage.pod(name, json!({"labels": {"team": team}}), Value::Null).await.unwrap();
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let get = async |query: &str| ask(&stage, Method::GET, &format!("{}?{query}", stage.pods("")), Value::Null).await.1;
    let first = get("limit=2").await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let next = first["metadata"]["continue"].as_str().unwrap();
    // An object created between two pages is not in the list.
    stage.pod("d", Value::Null, Value::Null).await.unwrap();
    let second = get(&format!("limit=2&continue={next}")).await;
    assert_eq!(names(&second), ["c"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert!(second["metadata"]["continue"].is_null());
    assert_eq!(names(&get("labelSelector=team%3Dx").await), ["a", "c"]);
    assert_eq!(names(&get("labelSelector=team+notin+(x)").await), ["b", "d"]);
    assert_eq!(names(&get("fieldSelector=metadata.name%3Db").await), ["b"]);
    assert_eq!(names(&get(&format!("fieldSelector=spec.nodeName%3D{}", stage.node)).await).len(), 4);
    assert_eq!(names(&get("fieldSelector=spec.nodeName%3Delsewhere").await), Vec::<String>::new());
    let wrong = ask(&stage, Method::GET, &format!("{}?fieldSelector=spec.x%3D1", stage.pods("")), Value::Null).await;
    assert_eq!(refusal(&wrong).0, 400);
    assert!(refusal(&wrong).2.contains("field label not supported: spec.x"), "{wrong:?}");
    stage.end().await.unwrap();
}
