//! The pod changes after the decision to evict it.

use std::time::Duration;

use node_pressure_apiserver::stage::uid;
use node_pressure_apiserver::{Fault, Kubelet, What};
use node_pressure_monitor::cluster::Verdict;
use serde_json::Value;

use super::scene::{PATIENCE, POD, Scene, Way, begin, has};

async fn remove(scene: &Scene, grace: u32) {
    scene.stage.delete_pod(POD, grace).await.unwrap();
}

#[tokio::test]
async fn a_deleted_pod_ends_the_eviction() {
    let scene = Scene::new().await;
    remove(&scene, 0).await;
    let heard = scene.evict(&scene.certain()).await;
    assert!(has(&heard, |it| *it == Verdict::Gone), "{heard:?}");
    // The agent has killed the pod.
    scene.has_one_event().await;
    scene.end().await;

    let scene = Scene::new().await;
    remove(&scene, 0).await;
    assert_eq!(scene.evict(&scene.asked()).await, [Verdict::Gone]);
    // The agent has not killed the pod.
    scene.has_no_event().await;
    scene.end().await;
}

#[tokio::test]
async fn a_pod_with_another_uid_is_never_touched() {
    for way in Way::BOTH {
        let scene = Scene::new().await;
        remove(&scene, 0).await;
        let another = scene.stage.running_pod(POD, Value::Null, Value::Null).await.unwrap();
        let heard = scene.evict(&scene.intent(way)).await;
        assert!(has(&heard, |it| *it == Verdict::Gone), "{heard:?}");
        scene.stays(&uid(&another)).await;
        match way {
            Way::Certain => scene.has_one_event().await,
            Way::Asked => scene.has_no_event().await,
        }
        scene.end().await;
    }
}

#[tokio::test]
async fn the_pod_is_terminating_already() {
    for way in Way::BOTH {
        let scene = Scene::new().await;
        remove(&scene, 600).await;
        let intent = scene.intent(way);
        scene.evict(&intent).await;
        // The eviction shortens the pod's grace period.
        scene.is_evicted_once(&intent).await;
        scene.end().await;
    }
}

#[tokio::test]
async fn a_hard_threshold_replaces_an_asked_eviction() {
    let scene = Scene::new().await;
    scene.stage.server.faults().add(Fault::new(What::NeverAnswer).ending("/eviction"));
    let mut cluster = scene.cluster();
    begin(&cluster, &scene.asked());
    scene.stage.server.log().wait_for(PATIENCE, |it| it.is("POST", "/eviction")).await.unwrap();
    let intent = scene.certain();
    begin(&cluster, &intent);
    scene.settle(&mut cluster).await;
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn the_kubelet_deletes_the_pod_first() {
    let scene = Scene::new().await;
    let kubelet = Kubelet::start(scene.stage.admin(), &scene.stage.node, Duration::from_millis(1));
    // The answer is lost, and the pod is deleted before the retry.
    scene.stage.server.faults().add(Fault::cut_after().of("DELETE").ending("/pods/web").once());
    scene.evict(&scene.certain()).await;
    scene.has_one_event().await;
    scene.stage.until(&scene.stage.pods(POD), PATIENCE, |pod| pod.is_none()).await.unwrap();
    drop(kubelet);
    scene.end().await;
}
