//! The node's object: the beginning and end of maintenance.

use node_pressure_apiserver::Fault;
use serde_json::json;

use super::Scene;

#[tokio::test]
async fn a_cordoned_node_is_in_maintenance() {
    let scene = Scene::new().await;
    scene.until_node_known().await;
    assert_eq!(scene.cluster.view().node.maintenance, None);
    scene.patch_node(json!({"spec": {"unschedulable": true}})).await;
    let view = scene.until("cordoned", |view| view.node.maintenance.is_some()).await;
    assert_eq!(view.node.maintenance.as_deref(), Some("cordoned"));
    // The agent keeps the last state while the server is away.
    scene.stage.server.close().await;
    scene.until_down().await;
    assert!(scene.cluster.view().node.maintenance.is_some());
    scene.patch_node(json!({"spec": {"unschedulable": null}})).await;
    scene.stage.server.open().await.unwrap();
    scene.until("uncordoned", |view| view.node.maintenance.is_none()).await;
    scene.end().await;
}

#[tokio::test]
async fn an_update_of_the_machine_configuration_is_maintenance() {
    let scene = Scene::new().await;
    scene.until_node_known().await;
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    let annotations =
        json!({key("currentConfig"): "worker-1", key("desiredConfig"): "worker-2", key("state"): "Working"});
    scene.patch_node(json!({"metadata": {"annotations": annotations}})).await;
    let view = scene.until("updated", |view| view.node.maintenance.is_some()).await;
    assert!(view.node.maintenance.as_deref().unwrap_or_default().contains("machine configuration"));
    let annotations = json!({key("currentConfig"): "worker-2", key("state"): "Done"});
    scene.patch_node(json!({"metadata": {"annotations": annotations}})).await;
    scene.until("done", |view| view.node.maintenance.is_none()).await;
    scene.end().await;
}

#[tokio::test]
async fn a_forbidden_node_is_reported_and_pods_are_known() {
    let scene = Scene::new().await;
    scene.until_node_known().await;
    let fault = scene.stage.server.faults().add(Fault::answer(403).at("/nodes?"));
    scene.stage.server.cut_connections();
    let view = scene.until("trouble", |view| view.node.degradation.is_some()).await;
    assert!(view.node.degradation.as_deref().unwrap_or_default().contains("ClusterRole"));
    scene.pod("a").await;
    scene.until_known(&["a"]).await;
    scene.stage.server.faults().remove(fault);
    scene.until("no trouble", |view| view.node.degradation.is_none()).await;
    scene.end().await;
}
