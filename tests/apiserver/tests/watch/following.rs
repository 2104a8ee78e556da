//! The reflectors without faults.

use std::time::{Duration, Instant};

use node_pressure_apiserver::stage::uid;
use node_pressure_monitor::cluster::Event;
use node_pressure_monitor::config::KubernetesOptions;
use node_pressure_monitor::workloads::PodUid;
use serde_json::{Value, json};

use super::{Scene, View};

#[tokio::test]
async fn pods_of_this_node_are_listed_and_watched() {
    let scene = Scene::new().await;
    scene.until_known(&[]).await;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "1", "controller": true}]);
    let resources = json!({"requests": {"memory": "64Mi"}});
    let containers = json!([{"name": "main", "image": "example.org/none:1", "resources": resources}]);
    let spec = json!({"containers": containers, "terminationGracePeriodSeconds": 7});
    let made = scene.stage.pod("a", json!({"ownerReferences": owner}), spec).await.unwrap();
    scene.stage.pod("elsewhere", Value::Null, json!({"nodeName": "another-node"})).await.unwrap();
    let view = scene.until_known(&["a"]).await;
    let pod = view.pods.find(&PodUid(uid(&made))).unwrap();
    assert_eq!(pod.full_name(), format!("{}/a", scene.stage.namespace));
    assert_eq!(pod.controller().map(|owner| owner.kind.as_str()), Some("ReplicaSet"));
    assert_eq!(pod.spec.termination_grace_period_seconds, Some(7));
    assert_eq!(pod.spec.containers[0].resources.requests.get("memory").unwrap().to_string(), "64Mi");
    scene.pod("b").await;
    scene.until_known(&["a", "b"]).await;
    scene.delete("a").await;
    let view = scene.until_known(&["b"]).await;
    assert_eq!(view.counts.lists, 1, "one list, then a watch");
    scene.end().await;
}

#[tokio::test]
async fn a_pod_replaced_under_the_same_name_is_another_pod() {
    let scene = Scene::new().await;
    let first = PodUid(uid(&scene.pod("same").await));
    scene.until("the first", |view| view.pods.find(&first).is_some()).await;
    scene.delete("same").await;
    let second = PodUid(uid(&scene.pod("same").await));
    assert_ne!(first, second);
    let view = scene.until("the second", |view| view.pods.find(&second).is_some()).await;
    let view = if view.pods.find(&first).is_none() { view } else { scene.until_known(&["same"]).await };
    assert!(view.pods.find(&first).is_none());
    scene.end().await;
}

#[tokio::test]
async fn changes_at_once_are_one_event() {
    let mut scene = Scene::new().await;
    scene.until_up().await;
    let begun = Instant::now();
    for number in 0..30 {
        scene.pod(&format!("p{number}")).await;
    }
    // The agent sends at most one event a second. A slow machine takes longer to make the changes.
    let most = 3 + begun.elapsed().as_secs();
    scene.until("all", |view| view.pods.pods().len() == 30).await;
    let mut told = 0;
    while let Some(event) = scene.cluster.try_event() {
        told += u64::from(matches!(event, Event::Pods));
    }
    assert!((1..=most).contains(&told), "{told} events; the view was not read meanwhile");
    scene.end().await;
}

#[tokio::test]
async fn a_change_that_decides_nothing_is_no_event() {
    let mut scene = Scene::with_pods(&["a"]).await;
    scene.until_up().await;
    scene.until_node_known().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    while scene.cluster.try_event().is_some() {}
    let before = scene.cluster.view();
    scene.stage.patch(&scene.stage.pods("a"), json!({"metadata": {"labels": {"x": "y"}}})).await.unwrap();
    let view = scene.until("one change more", |view| view.counts.changes > before.counts.changes).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(scene.cluster.try_event().is_none());
    assert!(view.pods_as_of > before.pods_as_of, "the change was received");
    scene.end().await;
}

#[tokio::test]
async fn annotations_of_the_configuration_are_kept() {
    let mut options = KubernetesOptions::default();
    options.protect.annotations = vec!["example.com/keep=yes".to_owned()];
    let scene = Scene::with(options.clone()).await;
    let annotations = json!({"annotations": {"example.com/keep": "yes", "example.com/other": "long"}});
    scene.stage.pod("a", annotations, Value::Null).await.unwrap();
    let view = scene.until_known(&["a"]).await;
    let of = |view: &View, key: &str| view.pods.pods()[0].annotation(key).map(str::to_owned);
    assert_eq!(of(&view, "example.com/keep").as_deref(), Some("yes"));
    assert_eq!(
        of(&view, "example.com/other").as_deref(),
        Some("long"),
        "a later configuration may name this annotation"
    );
    // This annotation affects no decision, so the loop is not woken.
    let change = |value: &str| json!({"metadata": {"annotations": {"example.com/other": value}}});
    scene.stage.patch(&scene.stage.pods("a"), change("longer")).await.unwrap();
    let heard = |now: &View| now.counts.changes > view.counts.changes;
    scene.until("the change", heard).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(of(&scene.cluster.view(), "example.com/other").as_deref(), Some("long"));
    // The configuration names another key, so the agent lists everything again.
    options.protect.annotations = vec!["example.com/other".to_owned()];
    scene.cluster.reload(options);
    scene.until("the other annotation", |view| of(view, "example.com/other").as_deref() == Some("longer")).await;
    // The annotation now affects decisions.
    scene.stage.patch(&scene.stage.pods("a"), change("longest")).await.unwrap();
    scene.until("its change", |view| of(view, "example.com/other").as_deref() == Some("longest")).await;
    scene.end().await;
}

#[tokio::test]
async fn unknown_fields_are_ignored() {
    let scene = Scene::new().await;
    scene.stage.server.faults().set_unknown_fields(true);
    scene.stage.server.cut_connections();
    scene.pod("a").await;
    scene.until_known(&["a"]).await;
    scene.stage.server.cut_connections();
    scene.pod("b").await;
    scene.until_known(&["a", "b"]).await;
    let view = scene.until_up().await;
    assert_eq!(view.node.degradation, None);
    scene.end().await;
}

#[tokio::test]
async fn requests_carry_the_user_agent() {
    let scene = Scene::new().await;
    scene.until_up().await;
    let agents: Vec<String> = scene.stage.server.log().all().into_iter().map(|record| record.user_agent).collect();
    assert!(agents.iter().all(|agent| agent.starts_with("node-pressure-monitor/")), "{agents:?}");
    scene.end().await;
}
