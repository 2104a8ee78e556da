//! The pod changes after the decision to evict it.

use std::time::{Duration, Instant};

use node_pressure_apiserver::stage::uid;
use node_pressure_apiserver::{Fault, Kubelet, What};
use node_pressure_monitor::cluster::Verdict;
use serde_json::{Value, json};

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
    for way in Way::ALL {
        let scene = Scene::new().await;
        remove(&scene, 0).await;
        let another = scene.stage.running_pod(POD, Value::Null, Value::Null).await.unwrap();
        let heard = scene.evict(&scene.intent(way)).await;
        assert!(has(&heard, |it| *it == Verdict::Gone), "{heard:?}");
        scene.stays(&uid(&another)).await;
        match way {
            Way::Certain | Way::Failed => scene.has_one_event().await,
            Way::Asked => scene.has_no_event().await,
        }
        scene.end().await;
    }
}

#[tokio::test]
async fn the_pod_is_terminating_already() {
    for way in [Way::Certain, Way::Asked] {
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

/// Sets the status of the pod as the kubelet does; returns the patched pod.
async fn set_status(scene: &Scene, status: Value) -> Value {
    scene.stage.patch(&format!("{}/status", scene.stage.pods(POD)), json!({"status": status})).await.unwrap()
}

#[tokio::test]
async fn a_status_that_does_not_last_is_written_again() {
    let scene = Scene::new().await;
    let mut cluster = scene.cluster();
    let intent = scene.failed();
    begin(&cluster, &intent);
    scene.stage.server.log().wait_for(PATIENCE, |it| it.is("GET", "/pods/web")).await.unwrap();
    set_status(&scene, json!({"phase": "Running", "reason": ""})).await;
    scene.settle(&mut cluster).await;
    scene.is_evicted_once(&intent).await;
    assert_eq!(scene.stage.server.log().of("PATCH", "/pods/web/status").len(), 2, "{:?}", scene.steps());
    scene.end().await;
}

/// The agent looks at the status at times, and learns from its watch when the kubelet writes over it.
#[tokio::test]
async fn a_status_is_written_again_before_the_next_look() {
    const BEFORE_LAST_LOOK: Duration = Duration::from_secs(12);
    let scene = Scene::new().await;
    let mut cluster = scene.cluster();
    let log = scene.stage.server.log();
    log.wait_for(PATIENCE, |it| it.is("GET", "/pods") && it.is_watch() && it.status == Some(200)).await.unwrap();
    let intent = scene.failed();
    begin(&cluster, &intent);
    let overwrite = async || {
        set_status(&scene, json!({"phase": "Running", "reason": ""})).await;
        let is_evicted = |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["reason"] == "Evicted");
        scene.stage.until(&scene.stage.pods(POD), PATIENCE, is_evicted).await.unwrap();
    };
    log.wait_for(PATIENCE, |it| it.is("GET", "/pods/web")).await.unwrap();
    overwrite().await;
    // After three more looks the agent waits for long.
    let looks = || log.of("GET", "/pods/web").len();
    let before = looks();
    let three_more = async {
        while looks() < before + 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, three_more).await.unwrap();
    let begun = Instant::now();
    overwrite().await;
    assert!(begun.elapsed() < BEFORE_LAST_LOOK * 3 / 4, "{:?}", begun.elapsed());
    scene.settle(&mut cluster).await;
    scene.is_evicted_once(&intent).await;
    scene.end().await;
}

#[tokio::test]
async fn a_late_eviction_leaves_alone_what_the_kubelet_has_restarted() {
    for way in [Way::Certain, Way::Failed] {
        let scene = Scene::new().await;
        let running = json!({"startedAt": jiff::Timestamp::now().to_string()});
        let container = json!({"name": "main", "state": {"running": running}, "ready": true, "restartCount": 1,
            "image": "example.org/none:1", "imageID": "sha256:0"});
        set_status(&scene, json!({"containerStatuses": [container]})).await;
        let age = Duration::from_secs(30);
        let mut intent = scene.intent(way);
        intent.decided_at -= jiff::SignedDuration::from_secs(30);
        intent.decided_mono_ns -= u64::try_from(age.as_nanos()).unwrap();
        assert_eq!(scene.evict(&intent).await, [Verdict::Restarted]);
        assert_eq!(scene.steps(), [""; 0], "nothing was changed");
        scene.is_untouched().await;
        scene.end().await;
    }
}
