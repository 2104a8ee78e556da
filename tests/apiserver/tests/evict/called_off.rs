//! The operator switches to observe mode while the API server is away.

use std::time::Duration;

use node_pressure_apiserver::Fault;

use super::scene::{PATIENCE, Scene, begin};

#[tokio::test]
async fn a_called_off_eviction_is_not_requested_later() {
    let scene = Scene::new().await;
    let away = scene.stage.server.faults().add(Fault::answer(503).at(&scene.stage.namespace));
    let cluster = scene.cluster();
    let intent = scene.certain();
    begin(&cluster, &intent);
    scene.stage.server.log().wait_for(PATIENCE, |record| record.is("PATCH", "/pods/web/status")).await.unwrap();
    cluster.ledger().end(&intent);
    // The pause lets the request in progress get its answer.
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.stage.server.faults().remove(away);
    let before = scene.requests().len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(scene.requests().len(), before, "{:?}", scene.steps());
    scene.is_untouched().await;
    cluster.stop(PATIENCE);
    scene.end().await;
}
