//! Each fault of the listener, before either server.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use http::Method;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, WatchParams};
use node_pressure_apiserver::front::End;
use node_pressure_apiserver::{Fault, Settings, Stage, TestServer, What};
use serde_json::{Value, json};

use super::stage;

const JSON: &str = "application/json";

/// Sends a request through the listener; returns status and answer, or the connection's error.
async fn through(stage: &Stage, method: Method, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
    let client = stage.server.client().await?;
    let body = if body.is_null() { String::new() } else { body.to_string() };
    stage.ask_with(&client, method, path, JSON, body).await
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test]
async fn a_connection_is_cut_before_or_after_the_request() {
    let stage = stage().await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", stage.namespace);
    for (fault, name, there) in [(Fault::cut_before(), "before", false), (Fault::cut_after(), "after", true)] {
        let fault = stage.server.faults().add(fault.of("POST").ending("/configmaps").once());
        through(&stage, Method::POST, &maps, &map(name)).await.unwrap_err();
        assert_eq!(stage.server.faults().struck(fault), 1);
        assert_eq!(stage.get(&format!("{maps}/{name}")).await.unwrap().is_some(), there, "{name}");
        // The fault does not affect the next request.
        let code = through(&stage, Method::POST, &maps, &map(name)).await.unwrap().0;
        assert_eq!(code, if there { 409 } else { 201 });
    }
    let cut = &stage.server.log().of("POST", "/configmaps")[2];
    assert_eq!((cut.carried_out, cut.status, &cut.fault), (Some(201), None, &Some(What::CutAfter)));
    stage.end().await.unwrap();
}

#[tokio::test]
async fn a_body_breaks_off_and_a_watch_falls_silent() {
    let stage = stage().await;
    let faults = stage.server.faults();
    faults.add(Fault::cut_in_body(100).of("GET").at("/nodes/").once());
    through(&stage, Method::GET, &stage.node_path(), &Value::Null).await.unwrap_err();
    stage.pod("a", Value::Null, Value::Null).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(stage.server.client().await.unwrap(), &stage.namespace);
    for end in [End::Cut, End::Finish, End::Stall] {
        faults.clear();
        faults.add(Fault::new(What::Body { after: 20, end }).at("watch=true").once());
        let watch = pods.watch(&WatchParams::default(), "0").await.unwrap();
        // A body that ends must end within this limit on any machine.
        let within = if end == End::Stall { Duration::from_millis(500) } else { Duration::from_secs(60) };
        let all = tokio::time::timeout(within, watch.collect::<Vec<_>>()).await;
        assert_eq!(all.is_err(), end == End::Stall, "{end:?}: {all:?}");
    }
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_answer_is_late_or_never_comes() {
    let stage = stage().await;
    let faults = stage.server.faults();
    faults.add(Fault::delay(Duration::from_millis(200)).once());
    let start = Instant::now();
    assert_eq!(through(&stage, Method::GET, &stage.node_path(), &Value::Null).await.unwrap().0, 200);
    assert!(start.elapsed() >= Duration::from_millis(200));
    faults.add(Fault::new(What::NeverAnswer).once());
    let path = stage.node_path();
    let never = through(&stage, Method::GET, &path, &Value::Null);
    tokio::time::timeout(Duration::from_millis(200), never).await.unwrap_err();
    stage.end().await.unwrap();
}

#[tokio::test]
async fn refusals_are_ordered_and_counted() {
    let stage = stage().await;
    let faults = stage.server.faults();
    let second = faults.add(Fault::answer(429).of("GET").after(1).once());
    let codes = async |count: usize| {
        let mut codes = Vec::new();
        for _ in 0..count {
            codes.push(through(&stage, Method::GET, &stage.node_path(), &Value::Null).await.unwrap().0);
        }
        codes
    };
    assert_eq!(codes(3).await, [200, 429, 200]);
    assert_eq!(faults.struck(second), 1);
    faults.clear();
    faults.add(Fault::answer(403));
    assert_eq!(codes(2).await, [403, 403]);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_server_is_away_and_comes_back() {
    let stage = stage().await;
    stage.server.close().await;
    through(&stage, Method::GET, &stage.node_path(), &Value::Null).await.unwrap_err();
    stage.server.open().await.unwrap();
    assert_eq!(through(&stage, Method::GET, &stage.node_path(), &Value::Null).await.unwrap().0, 200);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn answers_have_unknown_fields() {
    let stage = stage().await;
    stage.running_pod("a", json!({"labels": {"a": "1"}}), Value::Null).await.unwrap();
    stage.server.faults().set_unknown_fields(true);
    let (_, node) = through(&stage, Method::GET, &stage.node_path(), &Value::Null).await.unwrap();
    assert_eq!(node["metadata"]["zFieldOfTheFuture"], "text");
    let pods: Api<Pod> = Api::namespaced(stage.server.client().await.unwrap(), &stage.namespace);
    let list = pods.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].metadata.labels.as_ref().unwrap().len(), 1);
    let mut watch = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    watch.next().await.unwrap().unwrap();
    stage.end().await.unwrap();
}

#[tokio::test]
async fn the_listener_speaks_tls() {
    let server = TestServer::with(Settings { tls: true, ..Settings::default() }).await.unwrap();
    let nodes: Api<Node> = Api::all(server.client().await.unwrap());
    assert!(nodes.list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(server.log().wait_for(Duration::from_secs(60), |request| request.is("GET", "/nodes")).await.is_some());
}
