//! The operator has switched to observe mode while the API server was away.

use std::time::Duration;

use node_pressure_apiserver::Fault;

use super::scene::{Scene, begin};

#[tokio::test]
async fn what_is_called_off_is_not_asked_for_when_the_server_is_back() {
    let scene = Scene::new().await;
    let away = scene.stage.server.faults().add(Fault::answer(503).at(&scene.stage.namespace));
    let cluster = scene.cluster();
    let intent = scene.certain();
    begin(&cluster, &intent);
    let asked = |record: &node_pressure_apiserver::Record| record.path.ends_with("/pods/web/status");
    assert!(scene.stage.server.log().wait_for(Duration::from_secs(20), asked).await.is_some(), "{:?}", scene.steps());
    cluster.ledger().end(&intent);
    // What was under way at that moment has its answer.
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.stage.server.faults().remove(away);
    let before = scene.requests().len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.requests().len(), before, "{:?}", scene.steps());
    scene.is_untouched().await;
    cluster.stop(Duration::from_secs(5));
    scene.end().await;
}
