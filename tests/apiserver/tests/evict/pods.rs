//! The pod is not what it was when its eviction was decided.

use http::Method;
use node_pressure_apiserver::stage::condition;
use node_pressure_monitor::cluster::Verdict;
use serde_json::{Value, json};

use super::scene::{POD, Scene, begin, has};

async fn remove(scene: &Scene, grace: u32) {
    let options = json!({"gracePeriodSeconds": grace});
    let (code, answer) = scene.stage.ask(Method::DELETE, &scene.stage.pods(POD), options).await.unwrap();
    assert!(matches!(code, 200 | 202), "{answer}");
}

#[tokio::test]
async fn the_pod_is_gone() {
    let scene = Scene::new().await;
    remove(&scene, 0).await;
    let heard = scene.evict(&scene.certain()).await;
    assert!(has(&heard, |it| *it == Verdict::Gone), "{heard:?}");
    // The agent has killed it.
    scene.is_told_once().await;
    scene.end().await;

    let scene = Scene::new().await;
    remove(&scene, 0).await;
    assert_eq!(scene.evict(&scene.asked()).await, [Verdict::Gone]);
    assert_eq!(scene.evicted_events().await, [] as [Value; 0], "it was not the agent");
    scene.end().await;
}

#[tokio::test]
async fn a_pod_of_the_same_name_with_another_uid_is_never_touched() {
    for is_certain in [true, false] {
        let scene = Scene::new().await;
        remove(&scene, 0).await;
        let another = scene.stage.running_pod(POD, Value::Null, Value::Null).await.unwrap();
        let intent = if is_certain { scene.certain() } else { scene.asked() };
        let heard = scene.evict(&intent).await;
        assert!(has(&heard, |it| *it == Verdict::Gone), "{heard:?}");
        let pod = scene.pod().await.unwrap();
        assert_eq!(pod["metadata"]["uid"], another["metadata"]["uid"]);
        assert_eq!(pod["metadata"]["deletionTimestamp"], Value::Null);
        assert_eq!(*condition(&pod, "DisruptionTarget"), Value::Null);
        scene.names_its_uid();
        if is_certain {
            scene.is_told_once().await;
        } else {
            assert_eq!(scene.evicted_events().await, [] as [Value; 0]);
        }
        scene.end().await;
    }
}

#[tokio::test]
async fn the_pod_is_being_deleted_already() {
    for is_certain in [true, false] {
        let scene = Scene::new().await;
        remove(&scene, 600).await;
        let intent = if is_certain { scene.certain() } else { scene.asked() };
        scene.evict(&intent).await;
        // Its grace period is cut short.
        scene.is_evicted_once(&intent).await;
        scene.end().await;
    }
}

#[tokio::test]
async fn what_was_asked_for_is_ended_for_sure_when_a_hard_threshold_follows() {
    let scene = Scene::new().await;
    let faults = scene.stage.server.faults();
    faults.add(node_pressure_apiserver::Fault::new(node_pressure_apiserver::What::NeverAnswer).ending("/eviction"));
    let mut cluster = scene.cluster();
    begin(&cluster, &scene.asked());
    let log = scene.stage.server.log();
    assert!(log.wait_for(super::scene::PATIENCE, |it| it.is("POST", "/eviction")).await.is_some());
    let intent = scene.certain();
    begin(&cluster, &intent);
    scene.settle(&mut cluster).await;
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn the_kubelet_ends_it_before_the_agent_is_done() {
    let scene = Scene::new().await;
    let pods_take = std::time::Duration::from_millis(1);
    let kubelet = node_pressure_apiserver::Kubelet::start(scene.stage.admin(), &scene.stage.node, pods_take);
    let faults = scene.stage.server.faults();
    // The answer is lost, and the pod gone when it is asked again.
    faults.add(node_pressure_apiserver::Fault::cut_after().of("DELETE").ending("/pods/web").once());
    scene.evict(&scene.certain()).await;
    scene.is_told_once().await;
    scene.stage.until(&scene.stage.pods(POD), super::scene::PATIENCE, |pod| pod.is_none()).await.unwrap();
    drop(kubelet);
    scene.end().await;
}
