//! Events: their fields, no duplicates, the rate limit.

use std::time::Duration;

use http::Method;
use node_pressure_apiserver::stage::{Stage, uid};
use node_pressure_apiserver::{Fault, Record};
use node_pressure_monitor::cluster::events::InvolvedObject;
use node_pressure_monitor::cluster::{Cluster, EventRequest};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::{Value, json};

use crate::support::{SOON, cluster, degradation, end};

/// Starts a stage with a pod and an agent.
async fn begin() -> (Stage, InvolvedObject, Cluster) {
    let stage = Stage::new().await.unwrap();
    let object = pod(&stage).await;
    let cluster = start(&stage);
    (stage, object, cluster)
}

async fn pod(stage: &Stage) -> InvolvedObject {
    let pod = stage.running_pod("web", json!({}), json!({})).await.unwrap();
    InvolvedObject::Pod { namespace: stage.namespace.clone(), name: "web".to_owned(), uid: uid(&pod) }
}

fn killed(object: &InvolvedObject, message: &str) -> EventRequest {
    let (object, message) = (object.clone(), message.to_owned());
    EventRequest { object, is_warning: true, reason: "OOMKilling".to_owned(), message }
}

/// Waits until the events of the test's pods are as wanted.
async fn events(stage: &Stage, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    events_at(stage, &format!("/api/v1/namespaces/{}/events", stage.namespace), wanted).await
}

async fn events_at(stage: &Stage, path: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    let list = stage.until(path, SOON, |list| list.is_some_and(|list| wanted(&items(list)))).await.unwrap();
    items(&list)
}

fn start(stage: &Stage) -> Cluster {
    cluster(stage, KubernetesOptions::default())
}

#[tokio::test]
async fn events_have_the_fields_of_the_kubelets() {
    let (stage, object, cluster) = begin().await;
    cluster.send_event(killed(&object, "memhog (4242) of pod web killed")).unwrap();
    cluster.send_event(killed(&InvolvedObject::Node, "memhog (4242) of pod web killed")).unwrap();
    let of_pod = events(&stage, |events| events.len() == 1).await.remove(0);
    let InvolvedObject::Pod { uid, .. } = &object else { panic!("{object:?}") };
    assert_eq!(of_pod["involvedObject"]["uid"], uid.as_str());
    assert_eq!(of_pod["involvedObject"]["kind"], "Pod");
    assert_eq!((&of_pod["type"], &of_pod["reason"]), (&json!("Warning"), &json!("OOMKilling")));
    assert_eq!((&of_pod["count"], &of_pod["source"]["host"]), (&json!(1), &json!(stage.node)));
    assert_eq!(of_pod["source"]["component"], "node-pressure-monitor");
    // A controller manager tells of a new node, too.
    let is_of_agent = |event: &Value| event["source"]["component"] == "node-pressure-monitor";
    let mut of_node = events_at(&stage, &stage.node_events_path(), |events| events.iter().any(is_of_agent)).await;
    of_node.retain(is_of_agent);
    assert_eq!(of_node.len(), 1, "{of_node:?}");
    let of_node = of_node.remove(0);
    assert_eq!(
        (&of_node["involvedObject"]["kind"], &of_node["involvedObject"]["uid"]),
        (&json!("Node"), &json!(stage.node))
    );
    end(stage, cluster).await;
}

#[tokio::test]
async fn repetitions_are_counted_in_one_event() {
    let (stage, object, cluster) = begin().await;
    for _ in 0..50 {
        cluster.send_event(killed(&object, "killed")).unwrap();
    }
    events(&stage, |events| events.len() == 1).await;
    // The agent would update the event after ten seconds, but an agent that stops writes the count at once.
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.stop(SOON);
    let all = stage.events().await.unwrap();
    assert_eq!((all.len(), &all[0]["count"]), (1, &json!(50)));
    // An agent that stops before the answer retries once, and finds the event.
    let created = stage.server.log().of("POST", "/events").iter().filter(|it| it.carried_out == Some(201)).count();
    assert_eq!(created, 1);
    let all = stage.server.log().all();
    let is_count = |request: &&Record| request.method == "PATCH" && request.path.contains("/events/");
    assert_eq!(all.iter().filter(is_count).count(), 1);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_expired_event_is_created_again() {
    let (stage, object, cluster) = begin().await;
    cluster.send_event(killed(&object, "killed")).unwrap();
    let first = events(&stage, |events| events.len() == 1).await.remove(0);
    let path = format!("/api/v1/namespaces/{}/events/{}", stage.namespace, first["metadata"]["name"].as_str().unwrap());
    assert_eq!(stage.ask(Method::DELETE, &path, Value::Null).await.unwrap().0, 200);
    cluster.send_event(killed(&object, "killed")).unwrap();
    let again = events(&stage, |events| events.len() == 1).await.remove(0);
    assert_eq!(again["count"], 2);
    end(stage, cluster).await;
}

#[tokio::test]
async fn one_pod_cannot_flood_the_server() {
    let (stage, object, cluster) = begin().await;
    for process in 0..200 {
        cluster.send_event(killed(&object, &format!("process {process} killed"))).unwrap();
    }
    let all = events(&stage, |events| events.len() == 11).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let combined = |event: &&Value| event["message"].as_str().unwrap().starts_with("(combined from similar events): ");
    assert_eq!(all.iter().filter(combined).count(), 1);
    let asked = stage.server.log().all().iter().filter(|request| request.path.contains("/events")).count();
    assert!(asked <= 25, "{asked} requests");
    end(stage, cluster).await;
}

async fn is_sent_once_in_spite_of(fault: Fault) {
    let stage = Stage::new().await.unwrap();
    let object = pod(&stage).await;
    let fault = stage.server.faults().add(fault);
    let cluster = start(&stage);
    cluster.send_event(killed(&object, "killed")).unwrap();
    let struck = || stage.server.faults().struck(fault) > 0;
    events(&stage, |events| events.len() == 1 && struck()).await;
    // The wait is longer than the agent's backoff.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(stage.events().await.unwrap().len(), 1, "the event was created twice");
    stage.server.faults().clear();
    end(stage, cluster).await;
}

#[tokio::test]
async fn cut_before_the_event_was_created() {
    is_sent_once_in_spite_of(Fault::cut_before().of("POST").ending("/events").times(2)).await;
}

#[tokio::test]
async fn cut_after_the_event_was_created() {
    is_sent_once_in_spite_of(Fault::cut_after().of("POST").ending("/events").once()).await;
}

#[tokio::test]
async fn the_server_fails_at_first() {
    is_sent_once_in_spite_of(Fault::answer(500).of("POST").ending("/events").times(2)).await;
}

#[tokio::test]
async fn unknown_fields_in_answers_to_events_are_ignored() {
    let stage = Stage::new().await.unwrap();
    stage.server.faults().set_unknown_fields(true);
    let object = pod(&stage).await;
    let cluster = start(&stage);
    cluster.send_event(killed(&object, "killed")).unwrap();
    events(&stage, |events| events.len() == 1).await;
    stage.server.faults().set_unknown_fields(false);
    end(stage, cluster).await;
}

#[tokio::test]
async fn forbidden_events_are_reported_once() {
    let stage = Stage::new().await.unwrap();
    let object = pod(&stage).await;
    let fault = stage.server.faults().add(Fault::answer(403).of("POST").ending("/events"));
    let mut cluster = start(&stage);
    cluster.send_event(killed(&object, "first")).unwrap();
    let (capability, reason) = degradation(&mut cluster).await;
    assert_eq!(capability, "events");
    assert!(reason.is_some_and(|reason| reason.contains("grant create and patch on events")));
    stage.server.faults().remove(fault);
    cluster.send_event(killed(&object, "second")).unwrap();
    assert_eq!(degradation(&mut cluster).await, ("events", None));
    assert_eq!(events(&stage, |events| events.len() == 1).await[0]["message"], "second");
    end(stage, cluster).await;
}

#[tokio::test]
async fn events_during_an_outage_are_sent_later_with_their_time() {
    let (stage, object, cluster) = begin().await;
    stage.server.close().await;
    cluster.send_event(killed(&object, "killed")).unwrap();
    // The API's times are whole seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    stage.server.open().await.unwrap();
    let event = events(&stage, |events| events.len() == 1).await.remove(0);
    let [told, created] = [&event["firstTimestamp"], &event["metadata"]["creationTimestamp"]];
    assert!(told.as_str().unwrap() < created.as_str().unwrap(), "{told} {created}");
    end(stage, cluster).await;
}

#[tokio::test]
async fn no_events_are_sent_when_switched_off() {
    let stage = Stage::new().await.unwrap();
    let object = pod(&stage).await;
    let cluster = cluster(&stage, KubernetesOptions { events: false, ..KubernetesOptions::default() });
    cluster.send_event(killed(&object, "killed")).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(stage.events().await.unwrap().is_empty());
    end(stage, cluster).await;
}
