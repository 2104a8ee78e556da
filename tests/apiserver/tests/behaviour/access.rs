//! Authentication and authorization: tokens, roles, reviews.

use http::Method;
use kube::Client;
use node_pressure_apiserver::Stage;
use serde_json::{Value, json};

use super::{ask, refusal, stage};

const JSON: &str = "application/json";

/// Returns a client of a new service account, and the account's user name.
async fn account(stage: &Stage, rules: Value) -> (Client, String) {
    let token = stage.account("agent").await.unwrap();
    stage.grant("agent", rules).await.unwrap();
    let client = stage.server.client_with(&token).await.unwrap();
    (client, format!("system:serviceaccount:{}:agent", stage.namespace))
}

#[tokio::test]
async fn a_bad_token_is_unauthorized_and_none_is_anonymous() {
    let stage = stage().await;
    let client = stage.server.client_with("nonsense").await.unwrap();
    let answer = stage.ask_with(&client, Method::GET, "/api/v1/nodes", JSON, "").await.unwrap();
    assert_eq!(refusal(&answer), (401, "Unauthorized", "Unauthorized"));
    let client = stage.server.client_without_token().unwrap();
    let answer = stage.ask_with(&client, Method::GET, "/api/v1/nodes", JSON, "").await.unwrap();
    let message = "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the \
                   cluster scope";
    assert_eq!(refusal(&answer), (403, "Forbidden", message));
    assert_eq!(answer.1["details"], json!({"kind": "nodes"}));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn requests_beyond_the_role_are_forbidden() {
    let stage = stage().await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    let (client, user) = account(&stage, rules).await;
    stage.running_pod("a", Value::Null, Value::Null).await.unwrap();
    let get = stage.ask_with(&client, Method::GET, &stage.pods("a"), JSON, "").await.unwrap();
    assert_eq!(get.0, 200, "{get:?}");
    let kind = "application/strategic-merge-patch+json";
    let path = format!("{}/status", stage.pods("a"));
    let patch = stage.ask_with(&client, Method::PATCH, &path, kind, "{}").await.unwrap();
    let message = format!(
        "pods \"a\" is forbidden: User \"{user}\" cannot patch resource \"pods/status\" in API group \"\" in the namespace \
         \"{}\"",
        stage.namespace
    );
    assert_eq!(refusal(&patch), (403, "Forbidden", message.as_str()));
    assert_eq!(patch.1["details"], json!({"name": "a", "kind": "pods"}));
    let watch = stage.ask_with(&client, Method::GET, "/api/v1/pods?watch=true", JSON, "").await.unwrap();
    assert_eq!(refusal(&watch).0, 403, "{watch:?}");
    assert!(refusal(&watch).2.ends_with("cannot watch resource \"pods\" in API group \"\" at the cluster scope"));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn reviews_report_what_rbac_would_grant() {
    let stage = stage().await;
    let review = json!([
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
    ]);
    let (client, user) = account(&stage, review).await;
    let post = async |path: &str, spec: Value| {
        let body = json!({"spec": spec}).to_string();
        stage.ask_with(&client, Method::POST, path, JSON, body).await.unwrap()
    };
    let attributes = json!({"verb": "get", "group": "", "resource": "pods", "namespace": stage.namespace});
    let own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = post(own, json!({"resourceAttributes": attributes})).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(false)));
    let (_, answer) = post(own, json!({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}})).await;
    assert_eq!(answer["status"]["allowed"], true, "{answer}");
    let any = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let spec = json!({"user": user, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    assert_eq!(post(any, spec).await.1["status"]["allowed"], true);
    let spec = json!({"user": "somebody", "nonResourceAttributes": {"path": "/metrics", "verb": "get"}});
    assert_eq!(post(any, spec).await.1["status"]["allowed"], false);
    let tokens = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, answer) = post(tokens, json!({"token": "nonsense"})).await;
    assert_eq!(code, 201);
    assert_ne!(answer["status"]["authenticated"], true);
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/agent/token", stage.namespace);
    let token = stage.create(&path, json!({"spec": {"audiences": []}})).await.unwrap()["status"]["token"].clone();
    let (_, answer) = post(tokens, json!({"token": token})).await;
    assert_eq!(answer["status"]["authenticated"], true, "{answer}");
    assert_eq!(answer["status"]["user"]["username"], user.as_str());
    let groups = answer["status"]["user"]["groups"].as_array().unwrap();
    assert!(groups.contains(&json!("system:serviceaccounts")), "{groups:?}");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn version_readiness_and_discovery_are_served() {
    let stage = stage().await;
    let (code, version) = ask(&stage, Method::GET, "/version", Value::Null).await;
    assert_eq!((code, version["major"].as_str()), (200, Some("1")));
    assert_eq!(ask(&stage, Method::GET, "/readyz", Value::Null).await.1, json!("ok"));
    let (_, core) = ask(&stage, Method::GET, "/api/v1", Value::Null).await;
    let names: Vec<&Value> = core["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(names.contains(&&json!("pods/eviction")), "{names:?}");
    stage.end().await.unwrap();
}
