//! Watches: their beginning, events and end.

use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use node_pressure_apiserver::Stage;
use serde_json::{Value, json};

use super::{ask, refusal, stage};

/// A watch, line by line.
struct Watch {
    body: Body,
    text: Vec<u8>,
}

impl Watch {
    /// Opens a watch on a collection. If it is refused, the error is the status and the first line.
    async fn open(stage: &Stage, path: &str) -> Self {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = stage.admin().send(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        Self { body: answer.into_body(), text: Vec::new() }
    }

    /// Returns the next event, or `None` after the end of the watch.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(Duration::from_secs(60), self.body.frame()).await.unwrap()?.unwrap();
            self.text.extend_from_slice(&frame.into_data().unwrap());
        }
    }

    /// Returns kind and name of the next event.
    async fn told(&mut self) -> String {
        let event = self.next().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!("{} {}", text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

async fn version(stage: &Stage) -> String {
    let list = ask(stage, Method::GET, &stage.pods(""), Value::Null).await.1;
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_watch_resumes_at_a_version() {
    let stage = stage().await;
    stage.pod("before", Value::Null, Value::Null).await.unwrap();
    let from = version(&stage).await;
    stage.pod("a", Value::Null, Value::Null).await.unwrap();
    let mut watch = Watch::open(&stage, &format!("{}?watch=true&resourceVersion={from}", stage.pods(""))).await;
    assert_eq!(watch.told().await, "ADDED a");
    let patch = json!({"metadata": {"labels": {"a": "1"}}});
    let patched = ask(&stage, Method::PATCH, &stage.pods("a"), patch).await.1;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "MODIFIED");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], patched["metadata"]["resourceVersion"]);
    assert_eq!((&event["object"]["kind"], &event["object"]["apiVersion"]), (&json!("Pod"), &json!("v1")));
    stage.delete_pod("a", 0).await.unwrap();
    let marked = watch.next().await.unwrap();
    assert_eq!(
        (&marked["type"], &marked["object"]["metadata"]["deletionGracePeriodSeconds"]),
        (&json!("MODIFIED"), &json!(0))
    );
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    let last = event["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let patched = patched["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(last > patched, "a deletion has a version of its own");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_watch_without_a_version_begins_with_existing_objects() {
    let stage = stage().await;
    stage.pod("a", Value::Null, Value::Null).await.unwrap();
    for start in ["", "&resourceVersion=0"] {
        let mut watch = Watch::open(&stage, &format!("{}?watch=true{start}", stage.pods(""))).await;
        assert_eq!(watch.told().await, "ADDED a");
    }
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_selector_turns_changes_into_additions_and_deletions() {
    let stage = stage().await;
    let from = version(&stage).await;
    let query = format!("watch=true&resourceVersion={from}&labelSelector=in%3Dyes");
    let mut watch = Watch::open(&stage, &format!("{}?{query}", stage.pods(""))).await;
    stage.pod("a", Value::Null, Value::Null).await.unwrap();
    for label in ["yes", "no", "yes"] {
        let patch = json!({"metadata": {"labels": {"in": label}}});
        ask(&stage, Method::PATCH, &stage.pods("a"), patch).await;
    }
    assert_eq!(watch.told().await, "ADDED a");
    let gone = watch.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["labels"]["in"], "yes", "the event has the labels that last matched");
    assert_eq!(watch.told().await, "ADDED a");
    let node = format!("/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D{}", stage.node);
    assert_eq!(Watch::open(&stage, &node).await.told().await, "ADDED a");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_watch_ends_when_its_time_is_over() {
    let stage = stage().await;
    let from = version(&stage).await;
    let query = format!("watch=true&resourceVersion={from}&timeoutSeconds=1");
    let mut watch = Watch::open(&stage, &format!("{}?{query}", stage.pods(""))).await;
    assert_eq!(watch.next().await, None);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_forgotten_version_is_gone() {
    let stage = stage().await;
    if let Some(api) = stage.server.memory() {
        api.compact();
    }
    let path = format!("{}?watch=true&resourceVersion=1&timeoutSeconds=1", stage.pods(""));
    let mut watch = Watch::open(&stage, &path).await;
    let Some(event) = watch.next().await else {
        assert!(stage.skips("forgetting versions, which it does every five minutes and has not done yet"));
        return stage.end().await.unwrap();
    };
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert!(event["object"]["message"].as_str().unwrap().starts_with("too old resource version: 1 ("), "{event}");
    assert_eq!(watch.next().await, None);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_future_version_is_too_large() {
    let stage = stage().await;
    let path = format!("{}?resourceVersion=900000000&resourceVersionMatch=NotOlderThan", stage.pods(""));
    let answer = ask(&stage, Method::GET, &path, Value::Null).await;
    assert_eq!(refusal(&answer).0, 504, "{answer:?}");
    assert!(refusal(&answer).2.contains("Too large resource version: 900000000, current:"), "{answer:?}");
    assert_eq!(answer.1["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_list_may_come_as_a_watch() {
    let stage = stage().await;
    stage.pod("a", Value::Null, Value::Null).await.unwrap();
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watch::open(&stage, &format!("{}?{query}", stage.pods(""))).await;
    let first = watch.next().await.unwrap();
    if first["object"]["message"].as_str().is_some_and(|message| message.contains("RequestWatchProgress is disabled")) {
        assert!(stage.skips("a list that comes as a watch, for which its etcd is too old"));
        return stage.end().await.unwrap();
    }
    assert_eq!(first["type"], "ADDED");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(bookmark["object"]["kind"], "Pod");
    let wrong = format!("{}?watch=true&sendInitialEvents=true", stage.pods(""));
    assert_eq!(ask(&stage, Method::GET, &wrong, Value::Null).await.0, 422);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn bookmarks_carry_the_version_of_a_silent_watch() {
    let stage = stage().await;
    if stage.skips("bookmarks on demand") {
        return;
    }
    let Some(api) = stage.server.memory() else { return };
    let path = format!("{}?watch=true&resourceVersion={}", stage.pods(""), version(&stage).await);
    let mut without = Watch::open(&stage, &path).await;
    let mut with = Watch::open(&stage, &format!("{path}&allowWatchBookmarks=true")).await;
    ask(&stage, Method::PATCH, &stage.node_path(), json!({"metadata": {"labels": {"a": "1"}}})).await;
    let newest = version(&stage).await;
    api.bookmark();
    let bookmark = with.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], newest.as_str());
    stage.pod("a", Value::Null, Value::Null).await.unwrap();
    assert_eq!(without.told().await, "ADDED a");
    api.expire_watches();
    assert_eq!(without.next().await.unwrap()["object"]["code"], 410);
    assert_eq!(without.next().await, None);
}
