//! The status of a pod that was killed waits for the node's taint, for 200 ms at most.

use std::time::{Duration, Instant};

use node_pressure_apiserver::Fault;
use node_pressure_apiserver::stage::condition;
use node_pressure_monitor::cluster::status::{Effect, WantedCondition, WantedTaint};
use node_pressure_monitor::cluster::{Intent, NodeStatus};

use super::scene::{PATIENCE, POD, Scene, begin};

const KIND: &str = "MemoryPressure";
/// How long the API server takes for the taint.
const TAINT_TAKES: Duration = Duration::from_secs(6);
/// The status waits 200 ms for the taint. The rest is for a machine that runs other tests.
const WAITS: std::ops::Range<Duration> = Duration::from_millis(200)..Duration::from_secs(2);

fn pressure(holds: bool) -> NodeStatus {
    let condition =
        WantedCondition { kind: KIND.to_owned(), status: Some(holds), reason: "r".to_owned(), message: String::new() };
    let taint = WantedTaint { kind: KIND.to_owned(), effect: Effect::PreferNoSchedule };
    NodeStatus { conditions: vec![condition], taints: holds.then_some(taint).into_iter().collect(), may_act: true }
}

#[tokio::test]
async fn a_late_taint_delays_the_status_for_a_moment() {
    let scene = Scene::new().await;
    let mut cluster = scene.cluster();
    let (node, status) = (scene.stage.node_path(), format!("/pods/{POD}/status"));
    cluster.publish(pressure(false));
    let is_told = |node: Option<&serde_json::Value>| {
        node.is_some_and(|node| condition(node, "MonitorMemoryPressure")["status"] == "False")
    };
    scene.stage.until(&node, PATIENCE, is_told).await.unwrap();
    scene.stage.server.faults().add(Fault::delay(TAINT_TAKES).of("PATCH").ending(&node).once());

    let begun = Instant::now();
    cluster.publish(pressure(true));
    let intent = Intent { condition: Some(KIND.to_owned()), ..scene.failed() };
    begin(&cluster, &intent);
    let log = scene.stage.server.log();
    let written = log.wait_for(PATIENCE, |request| request.is("PATCH", &status)).await.unwrap();
    let waited = written.at.duration_since(begun);
    assert!(WAITS.contains(&waited), "the status was sent after {waited:?}");
    let taints = log.of("PATCH", &node);
    assert!(taints[0].at < written.at && taints[0].status.is_none(), "the taint is on its way: {taints:?}");
    scene.settle(&mut cluster).await;
    scene.is_evicted_once(&intent).await;
    cluster.stop(PATIENCE);
    scene.end().await;
}
