//! The first look: objects come and go, watches see it, faults strike.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use node_pressure_apiserver::{Fault, TestServer};
use serde_json::json;

fn pod(name: &str, node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }))
    .unwrap()
}

#[tokio::test]
async fn pods_come_and_go() {
    for server in [TestServer::start().await.unwrap(), TestServer::start_tls().await.unwrap()] {
        let pods: Api<Pod> = Api::namespaced(server.client().await.unwrap(), "default");
        let listed = pods.list(&ListParams::default().fields("spec.nodeName=n1")).await.unwrap();
        let version = listed.metadata.resource_version.unwrap();
        let mut watch = pods.watch(&WatchParams::default().fields("spec.nodeName=n1"), &version).await.unwrap().boxed();
        pods.create(&PostParams::default(), &pod("a", "n1")).await.unwrap();
        pods.create(&PostParams::default(), &pod("b", "n2")).await.unwrap();
        let patch = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
        pods.patch_status("a", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
        let deleted = pods.delete("a", &DeleteParams::default().grace_period(5)).await.unwrap().left().unwrap();
        assert!(deleted.metadata.deletion_timestamp.is_some());
        pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
        let mut kinds = Vec::new();
        for _ in 0..4 {
            kinds.push(match watch.next().await.unwrap().unwrap() {
                WatchEvent::Added(pod) => format!("ADDED {}", pod.metadata.name.unwrap()),
                WatchEvent::Modified(pod) => format!("MODIFIED {}", pod.metadata.name.unwrap()),
                WatchEvent::Deleted(pod) => format!("DELETED {}", pod.metadata.name.unwrap()),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(kinds, ["ADDED a", "MODIFIED a", "MODIFIED a", "DELETED a"]);
    }
}

#[tokio::test]
async fn a_fault_strikes_once_and_the_server_restarts() {
    let server = TestServer::start().await.unwrap();
    let nodes: Api<Node> = Api::all(server.client().await.unwrap());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    let fault = server.faults().add(Fault::cut_after().of("POST").ending("/nodes").once());
    nodes.create(&PostParams::default(), &node).await.unwrap_err();
    assert_eq!(server.faults().struck(fault), 1);
    let conflict = nodes.create(&PostParams::default(), &node).await.unwrap_err();
    assert!(matches!(conflict, kube::Error::Api(status) if status.reason == "AlreadyExists"));
    server.close().await;
    nodes.get("n1").await.unwrap_err();
    server.open().await.unwrap();
    server.faults().set_unknown_fields(true);
    nodes.get("n1").await.unwrap();
    server.log().wait_for(Duration::from_secs(1), |request| request.is("GET", "/nodes/n1")).await.unwrap();
}
