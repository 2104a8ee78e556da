//! Events: what they look like, that none is there twice, and that nobody is flooded.

use std::time::Duration;

use http::Method;
use node_pressure_apiserver::Fault;
use node_pressure_apiserver::stage::{Stage, uid};
use node_pressure_monitor::cluster::events::InvolvedObject;
use node_pressure_monitor::cluster::{Cluster, EventRequest};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::{Value, json};

use crate::support::{SOON, cluster, end, trouble};

/// A stage, a pod on it, and the agent's end.
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

/// The events of the test's pods, once they are as wanted.
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
async fn events_on_a_pod_and_on_the_node_look_as_the_kubelets_do() {
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
    let of_node = events_at(&stage, &stage.node_events_path(), |events| events.len() == 1).await.remove(0);
    assert_eq!(
        (&of_node["involvedObject"]["kind"], &of_node["involvedObject"]["uid"]),
        (&json!("Node"), &json!(stage.node))
    );
    end(stage, cluster).await;
}

#[tokio::test]
async fn the_same_again_is_one_event_that_counts_and_the_rest_is_told_at_the_end() {
    let (stage, object, cluster) = begin().await;
    for _ in 0..50 {
        cluster.send_event(killed(&object, "killed")).unwrap();
    }
    events(&stage, |events| events.len() == 1).await;
    // Nothing more for ten seconds; but an agent that stops tells what it has counted.
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.stop(SOON);
    let all = stage.events().await.unwrap();
    assert_eq!((all.len(), &all[0]["count"]), (1, &json!(50)));
    // An agent that stops before the answer has come tries once more, and is told that the event is there.
    let created = stage.server.log().of("POST", "/events").iter().filter(|it| it.carried_out == Some(201)).count();
    assert_eq!(created, 1);
    assert_eq!(stage.server.log().all().iter().filter(|request| request.method == "PATCH").count(), 1);
    stage.end().await.unwrap();
}

#[tokio::test]
async fn an_event_that_has_expired_is_written_anew() {
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

async fn there_is_one_in_spite_of(fault: Fault) {
    let stage = Stage::new().await.unwrap();
    let object = pod(&stage).await;
    let fault = stage.server.faults().add(fault);
    let cluster = start(&stage);
    cluster.send_event(killed(&object, "killed")).unwrap();
    let struck = || stage.server.faults().struck(fault) > 0;
    events(&stage, |events| events.len() == 1 && struck()).await;
    // Longer than the agent waits before it tries again.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(stage.events().await.unwrap().len(), 1, "never twice");
    stage.server.faults().clear();
    end(stage, cluster).await;
}

#[tokio::test]
async fn cut_before_the_event_was_created() {
    there_is_one_in_spite_of(Fault::cut_before().of("POST").ending("/events").times(2)).await;
}

#[tokio::test]
async fn cut_after_the_event_was_created() {
    there_is_one_in_spite_of(Fault::cut_after().of("POST").ending("/events").once()).await;
}

#[tokio::test]
async fn the_server_fails_at_first() {
    there_is_one_in_spite_of(Fault::answer(500).of("POST").ending("/events").times(2)).await;
}

#[tokio::test]
async fn answers_to_events_are_full_of_unknown_fields() {
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
async fn events_that_are_forbidden_are_said_once_and_do_not_hold_up_others() {
    let stage = Stage::new().await.unwrap();
    let object = pod(&stage).await;
    let fault = stage.server.faults().add(Fault::answer(403).of("POST").ending("/events"));
    let mut cluster = start(&stage);
    cluster.send_event(killed(&object, "first")).unwrap();
    let (capability, reason) = trouble(&mut cluster).await;
    assert_eq!(capability, "events");
    assert!(reason.is_some_and(|reason| reason.contains("grant create and patch on events")));
    stage.server.faults().remove(fault);
    cluster.send_event(killed(&object, "second")).unwrap();
    assert_eq!(trouble(&mut cluster).await, ("events", None));
    assert_eq!(events(&stage, |events| events.len() == 1).await[0]["message"], "second");
    end(stage, cluster).await;
}

#[tokio::test]
async fn what_happens_while_the_server_is_away_is_told_later_with_its_own_time() {
    let (stage, object, cluster) = begin().await;
    stage.server.close().await;
    cluster.send_event(killed(&object, "killed")).unwrap();
    // The API tells seconds apart.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    stage.server.open().await.unwrap();
    let event = events(&stage, |events| events.len() == 1).await.remove(0);
    let [told, created] = [&event["firstTimestamp"], &event["metadata"]["creationTimestamp"]];
    assert!(told.as_str().unwrap() < created.as_str().unwrap(), "{told} {created}");
    end(stage, cluster).await;
}

#[tokio::test]
async fn no_events_where_none_are_wanted() {
    let stage = Stage::new().await.unwrap();
    let object = pod(&stage).await;
    let cluster = cluster(&stage, KubernetesOptions { events: false, ..KubernetesOptions::default() });
    cluster.send_event(killed(&object, "killed")).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(stage.events().await.unwrap().is_empty());
    end(stage, cluster).await;
}
