//! The Eviction API and disruption budgets.

use http::Method;
use node_pressure_apiserver::Stage;
use node_pressure_apiserver::stage::condition;
use serde_json::{Value, json};

use super::{ask, refusal, stage};

const MESSAGE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

async fn evict(stage: &Stage, name: &str, options: Value) -> (u16, Value) {
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": stage.namespace}, "deleteOptions": options,
    });
    ask(stage, Method::POST, &format!("{}/eviction", stage.pods(name)), eviction).await
}

fn team() -> Value {
    json!({"labels": {"team": "x"}})
}

/// Makes the pods a and b, and a budget that allows one disruption.
async fn budget_of_two(stage: &Stage) -> String {
    for name in ["a", "b"] {
        stage.running_pod(name, team(), Value::Null).await.unwrap();
    }
    let budget = stage.budget("b", "x").await.unwrap();
    stage.allow(&budget, 1).await.unwrap();
    budget
}

#[tokio::test]
async fn an_eviction_without_a_budget_deletes_the_pod() {
    let stage = stage().await;
    stage.running_pod("a", Value::Null, Value::Null).await.unwrap();
    let (code, answer) = evict(&stage, "a", json!({"gracePeriodSeconds": 7})).await;
    assert_eq!((code, answer["kind"].as_str(), answer["status"].as_str()), (201, Some("Status"), Some("Success")));
    let pod = stage.get(&stage.pods("a")).await.unwrap().unwrap();
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 7);
    let why = condition(&pod, "DisruptionTarget");
    assert_eq!((&why["status"], &why["reason"]), (&json!("True"), &json!("EvictionByEvictionAPI")));
    // The pod is already terminating.
    assert_eq!(evict(&stage, "a", Value::Null).await.0, 201);
    assert_eq!(refusal(&evict(&stage, "none", Value::Null).await).0, 404);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn another_uid_is_not_evicted() {
    let stage = stage().await;
    stage.running_pod("a", Value::Null, Value::Null).await.unwrap();
    let answer = evict(&stage, "a", json!({"preconditions": {"uid": "another"}})).await;
    assert_eq!(refusal(&answer).0, 409, "{answer:?}");
    let pod = stage.get(&stage.pods("a")).await.unwrap().unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_null());
    assert!(condition(&pod, "DisruptionTarget").is_null(), "{pod}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_budget_that_allows_none_refuses_with_429() {
    let stage = stage().await;
    let budget = stage.budget("b", "x").await.unwrap();
    stage.running_pod("a", team(), Value::Null).await.unwrap();
    if !stage.has_controllers().await.unwrap() {
        let uncounted = evict(&stage, "a", Value::Null).await;
        assert_eq!(refusal(&uncounted), (429, "TooManyRequests", MESSAGE));
        let cause = json!([{"reason": "DisruptionBudget",
            "message": "The disruption budget b is still being processed by the server."}]);
        assert_eq!(uncounted.1["details"], json!({"causes": cause, "retryAfterSeconds": 10}));
    }
    stage.allow(&budget, 0).await.unwrap();
    let refused = evict(&stage, "a", Value::Null).await;
    assert_eq!(refusal(&refused), (429, "TooManyRequests", MESSAGE));
    let cause = json!([{"reason": "DisruptionBudget",
        "message": "The disruption budget b needs 1 healthy pods and has 1 currently"}]);
    assert_eq!(refused.1["details"], json!({"causes": cause}));
    // A deletion ignores the budget.
    assert_eq!(ask(&stage, Method::DELETE, &stage.pods("a"), Value::Null).await.0, 200);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn each_eviction_uses_up_the_budget() {
    let stage = stage().await;
    let budget = budget_of_two(&stage).await;
    assert_eq!(evict(&stage, "a", Value::Null).await.0, 201);
    let status = stage.get(&budget).await.unwrap().unwrap()["status"].clone();
    assert_eq!(status["disruptionsAllowed"], 0);
    // A controller takes the pod out as soon as it sees it terminating.
    assert!(status["disruptedPods"]["a"].is_string() || stage.has_controllers().await.unwrap(), "{status}");
    assert_eq!(evict(&stage, "b", Value::Null).await.0, 429);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_does_not_run_disrupts_nothing() {
    let stage = stage().await;
    let budget = stage.budget("b", "x").await.unwrap();
    stage.running_pod("healthy", team(), Value::Null).await.unwrap();
    stage.allow(&budget, 0).await.unwrap();
    stage.pod("pending", team(), Value::Null).await.unwrap();
    assert_eq!(evict(&stage, "pending", Value::Null).await.0, 201);
    // A pod that runs and is not ready may go while the desired number of pods is healthy.
    stage.running_pod("unready", team(), Value::Null).await.unwrap();
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    ask(&stage, Method::PATCH, &format!("{}/status", stage.pods("unready")), unready).await;
    assert_eq!(evict(&stage, "unready", Value::Null).await.0, 201);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn two_budgets_for_one_pod_are_an_error() {
    let stage = stage().await;
    for name in ["b", "c"] {
        stage.budget(name, "x").await.unwrap();
    }
    stage.running_pod("a", team(), Value::Null).await.unwrap();
    let answer = evict(&stage, "a", Value::Null).await;
    assert_eq!(answer.0, 500, "{answer:?}");
    assert!(answer.1["message"].as_str().unwrap().contains("more than one PodDisruptionBudget"), "{answer:?}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_budget_is_checked_before_the_uid() {
    let stage = stage().await;
    let budget = budget_of_two(&stage).await;
    let answer = evict(&stage, "a", json!({"preconditions": {"uid": "another"}})).await;
    assert_eq!((refusal(&answer).0, refusal(&answer).1), (409, "Conflict"), "{answer:?}");
    let status = stage.get(&budget).await.unwrap().unwrap()["status"].clone();
    // A controller counts again.
    assert!(status["disruptionsAllowed"] == 0 || stage.has_controllers().await.unwrap(), "{status}");
    stage.end().await.unwrap();
}
