//! Watches that are renewed after a broken connection.

use std::time::{Duration, Instant};

use node_pressure_apiserver::{Record, Stage};
use node_pressure_monitor::cluster::{Access, Cluster, State, Timeouts};
use node_pressure_monitor::config::KubernetesOptions;
use serde_json::json;

use super::{LATE, Scene, TIMEOUTS};

#[tokio::test]
async fn cut_watches_are_renewed_by_one_request_each() {
    let scene = Scene::with_pods(&["a"]).await;
    scene.until_node_known().await;
    scene.stage.server.log().clear();
    scene.stage.server.cut_connections();
    scene.pod("b").await;
    scene.patch_node(json!({"spec": {"unschedulable": true}})).await;
    scene.until_known(&["a", "b"]).await;
    scene.until("cordoned", |view| view.node.maintenance.is_some()).await;
    let requests = scene.stage.server.log().all();
    let of_agent = |it: &&Record| it.method == "GET" && it.user_agent.starts_with("node-pressure-monitor/");
    let requests: Vec<&Record> = requests.iter().filter(of_agent).collect();
    let versioned = |it: &Record| it.query.contains("resourceVersion=") && !it.query.contains("resourceVersion=0&");
    assert!(requests.iter().all(|it| it.is_watch() && versioned(it)), "watches from known versions: {requests:?}");
    assert!(requests.len() >= 2, "{requests:?}");
    scene.end().await;
}

#[tokio::test]
async fn agents_renew_their_watches_at_different_times() {
    const AGENTS: usize = 16;
    let renewal = Duration::from_secs(4);
    let stage = Stage::new().await.unwrap();
    let kubeconfig = stage.kubeconfig_file().unwrap();
    let start = |number: usize| {
        let access = Access::by_kubeconfig(kubeconfig.clone(), &format!("{}-{number}", stage.node));
        let access = access.with_timeouts(Timeouts { renewal, ..TIMEOUTS });
        Cluster::start_with(KubernetesOptions::default(), Some(access)).unwrap()
    };
    let agents: Vec<Cluster> = (0..AGENTS).map(start).collect();
    let log = stage.server.log();
    let watches = || log.all().into_iter().filter(Record::is_watch).filter(|it| it.status == Some(200));
    let begun = Instant::now();
    while watches().count() < 2 * AGENTS || agents.iter().any(|agent| agent.view().state != State::Up) {
        assert!(begun.elapsed() < LATE, "{} watches", watches().count());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    log.clear();
    let cut = Instant::now();
    stage.server.cut_connections();
    while watches().count() < 2 * AGENTS {
        assert!(cut.elapsed() < LATE, "{} watches renewed", watches().count());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let waits: Vec<Duration> = watches().map(|it| it.at.duration_since(cut)).collect();
    let early = waits.iter().filter(|wait| **wait < renewal / 4).count();
    let late = waits.iter().filter(|wait| **wait > renewal / 2).count();
    assert!(early < AGENTS && late > AGENTS / 4, "{early} early, {late} late: {waits:?}");
    agents.into_iter().for_each(|agent| agent.stop(LATE));
    stage.end().await.unwrap();
}
