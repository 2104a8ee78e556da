//! Deletion: preconditions, grace periods of pods, finalizers.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use node_pressure_apiserver::Kubelet;
use serde_json::{Value, json};

use super::{ask, refusal, stage};

fn grace(seconds: u32) -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": seconds})
}

#[tokio::test]
async fn another_uid_is_not_deleted() {
    let stage = stage().await;
    let pod = stage.running_pod("a", Value::Null, Value::Null).await.unwrap();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let other = json!({"preconditions": {"uid": "another"}});
    let answer = ask(&stage, Method::DELETE, &stage.pods("a"), other).await;
    let message = format!(
        "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (another) does not match the UID in \
         record ({uid}). The object might have been deleted and then recreated"
    );
    assert_eq!(refusal(&answer), (409, "Conflict", message.as_str()));
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    let answer = ask(&stage, Method::DELETE, &stage.pods("a"), stale).await;
    assert_eq!(refusal(&answer).1, "Conflict");
    let right = json!({"preconditions": {"uid": uid}, "gracePeriodSeconds": 3});
    let (code, pod) = ask(&stage, Method::DELETE, &stage.pods("a"), right).await;
    assert_eq!((code, &pod["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(3)));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_bound_pod_waits_for_its_kubelet() {
    let stage = stage().await;
    let spec = json!({"terminationGracePeriodSeconds": 20});
    stage.running_pod("a", Value::Null, spec).await.unwrap();
    let (code, pod) = ask(&stage, Method::DELETE, &stage.pods("a"), Value::Null).await;
    assert_eq!((code, pod["kind"].as_str()), (200, Some("Pod")));
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 20);
    assert_eq!(pod["metadata"]["generation"], 2);
    let end = |pod: &Value| pod["metadata"]["deletionTimestamp"].as_str().unwrap().parse::<Timestamp>().unwrap();
    let first = end(&pod);
    // A longer grace period changes nothing, a shorter one counts from the first deletion.
    let (_, longer) = ask(&stage, Method::DELETE, &stage.pods("a"), grace(25)).await;
    assert_eq!(end(&longer), first);
    assert_eq!(longer["metadata"]["resourceVersion"], pod["metadata"]["resourceVersion"]);
    let (_, shorter) = ask(&stage, Method::DELETE, &stage.pods("a"), grace(5)).await;
    assert_eq!(first.duration_since(end(&shorter)).as_secs(), 15);
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let (code, last) = ask(&stage, Method::DELETE, &stage.pods("a"), grace(0)).await;
    assert_eq!(code, 200, "{last}");
    assert_eq!(stage.get(&stage.pods("a")).await.unwrap(), None);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_unscheduled_pod_is_deleted_at_once() {
    let stage = stage().await;
    stage.pod("unbound", Value::Null, json!({"nodeName": null})).await.unwrap();
    stage.running_pod("ended", Value::Null, Value::Null).await.unwrap();
    let ended = json!({"status": {"phase": "Succeeded"}});
    ask(&stage, Method::PATCH, &format!("{}/status", stage.pods("ended")), ended).await;
    for name in ["unbound", "ended"] {
        let (code, answer) = ask(&stage, Method::DELETE, &stage.pods(name), grace(30)).await;
        assert_eq!((code, answer["kind"].as_str()), (200, Some("Pod")), "{name}");
        assert_eq!(stage.get(&stage.pods(name)).await.unwrap(), None, "{name}");
    }
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_object_with_a_finalizer_stays() {
    let stage = stage().await;
    let finalizers = json!({"finalizers": ["example.org/wait"]});
    stage.running_pod("a", finalizers, Value::Null).await.unwrap();
    let (code, pod) = ask(&stage, Method::DELETE, &stage.pods("a"), grace(0)).await;
    assert_eq!(code, 200);
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert!(stage.get(&stage.pods("a")).await.unwrap().is_some());
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.org/wait"]}});
    ask(&stage, Method::PATCH, &stage.pods("a"), patch).await;
    assert_eq!(stage.get(&stage.pods("a")).await.unwrap(), None);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_deletion_of_other_kinds_returns_a_status() {
    let stage = stage().await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    let map = stage.create(&maps, json!({"metadata": {"name": "a"}})).await.unwrap();
    let (code, answer) = ask(&stage, Method::DELETE, &format!("{maps}/a"), Value::Null).await;
    assert_eq!((code, answer["status"].as_str()), (200, Some("Success")));
    assert_eq!(answer["details"], json!({"name": "a", "kind": "configmaps", "uid": map["metadata"]["uid"]}));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_kubelet_stand_in_deletes_pods() {
    let stage = stage().await;
    let _kubelet = Kubelet::start(stage.admin(), &stage.node, Duration::from_millis(50));
    stage.running_pod("a", Value::Null, Value::Null).await.unwrap();
    ask(&stage, Method::DELETE, &stage.pods("a"), grace(10)).await;
    stage.until(&stage.pods("a"), Duration::from_secs(60), |pod| pod.is_none()).await.unwrap();
    stage.end().await.unwrap();
}
