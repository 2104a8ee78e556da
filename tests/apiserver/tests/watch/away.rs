//! The server is away, or returns with another store.

use std::time::Duration;

use node_pressure_apiserver::Stage;
use node_pressure_apiserver::stage::uid;
use node_pressure_monitor::cluster::{State, Timeouts};
use node_pressure_monitor::config::KubernetesOptions;
use node_pressure_monitor::workloads::PodUid;

use super::{LATE, Scene, TIMEOUTS, names};

#[tokio::test]
async fn a_restarted_server_is_watched_from_the_same_version() {
    let scene = Scene::new().await;
    scene.pod("a").await;
    let before = scene.until_known(&["a"]).await;
    scene.stage.server.close().await;
    scene.until_down_for(&["refused"]).await;
    let view = scene.cluster.view();
    assert_eq!(names(&view), ["a"], "the last known pods stay");
    assert!(view.pods_as_of >= before.pods_as_of, "the age of the pods counts from the last contact");
    scene.pod("b").await;
    scene.stage.server.open().await.unwrap();
    scene.until_up().await;
    let view = scene.until_known(&["a", "b"]).await;
    assert_eq!(view.counts.lists, 1);
    scene.end().await;
}

#[tokio::test]
async fn a_server_with_a_lost_store_is_listed_again() {
    let scene = Scene::new().await;
    let Some(api) = scene.stage.server.memory().cloned() else {
        assert!(scene.stage.skips("losing the store"));
        return scene.end().await;
    };
    for name in ["a", "b", "c"] {
        scene.pod(name).await;
    }
    scene.until_known(&["a", "b", "c"]).await;
    scene.stage.server.close().await;
    api.forget_everything();
    scene.stage.server.open().await.unwrap();
    // A watch from the old version would get nothing until the new store reaches it: the agent has to compare the versions.
    let view = scene.until_known(&[]).await;
    assert_eq!(view.counts.lists, 2);
    scene.stage.make_namespace().await.unwrap();
    scene.pod("new").await;
    scene.until_known(&["new"]).await;
    scene.end().await;
}

#[tokio::test]
async fn a_store_lost_in_an_outage_is_noticed_before_a_silence() {
    let stage = Stage::new().await.unwrap();
    let Some(api) = stage.server.memory().cloned() else {
        assert!(stage.skips("losing the store"));
        return stage.end().await.unwrap();
    };
    let scene = Scene::with_timeouts(stage, Timeouts { silence: 2 * LATE, ..TIMEOUTS });
    for name in ["a", "b", "c"] {
        scene.pod(name).await;
    }
    scene.until_known(&["a", "b", "c"]).await;
    scene.until_node_known().await;
    scene.stage.server.close().await;
    scene.until_down().await;
    api.forget_everything();
    scene.stage.server.open().await.unwrap();
    scene.until_known(&[]).await;
    scene.until("no node", |view| view.node.degradation.is_some()).await;
    scene.stage.make_namespace().await.unwrap();
    scene.end().await;
}

#[tokio::test]
async fn an_agent_started_without_the_server_reads_the_pod_cache() {
    let mut scene = Scene::new().await;
    let made = scene.pod("a").await;
    let uid = PodUid(uid(&made));
    scene.until_known(&["a"]).await;
    scene.until_cached(1).await;
    // Changes are written to the cache at most every ten seconds.
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    scene.pod("b").await;
    scene.until_known(&["a", "b"]).await;
    scene.until_cached(2).await;
    scene.stage.server.close().await;
    scene.until_down().await;
    scene.start_anew();
    scene.until_down().await;
    let view = scene.until_known(&["a", "b"]).await;
    let pod = view.pods.find(&uid).unwrap();
    assert_eq!(pod.full_name(), format!("{}/a", scene.stage.namespace));
    let now = node_pressure_monitor::units::Monotonic::now();
    let age = now.since(view.pods_as_of.unwrap());
    assert!(age > Duration::ZERO && age < 2 * LATE, "{age:?}");
    // The server is back, and one pod was deleted.
    scene.delete("a").await;
    scene.stage.server.open().await.unwrap();
    scene.until_known(&["b"]).await;
    scene.end().await;
}

#[tokio::test]
async fn an_agent_started_without_the_server_finds_it_later() {
    let stage = Stage::new().await.unwrap();
    stage.server.close().await;
    let scene = Scene::on(stage, KubernetesOptions::default());
    scene.until_down().await;
    let view = scene.cluster.view();
    assert_eq!((names(&view).len(), view.pods_as_of), (0, None), "no pods were ever known");
    scene.pod("a").await;
    scene.stage.server.open().await.unwrap();
    scene.until_known(&["a"]).await;
    assert_eq!(scene.until_up().await.state, State::Up);
    scene.end().await;
}

#[tokio::test]
async fn a_repaired_kubeconfig_is_used() {
    let mut scene = Scene::new().await;
    scene.pod("a").await;
    let good = std::fs::read_to_string(&scene.kubeconfig).unwrap();
    std::fs::write(&scene.kubeconfig, "kind: Config\nclusters: 7\n").unwrap();
    scene.start_anew();
    scene.until_down().await;
    std::fs::write(&scene.kubeconfig, good).unwrap();
    scene.until_known(&["a"]).await;
    scene.end().await;
}
