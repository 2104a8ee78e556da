//! The admission policy that limits the sweeper to what agents left on nodes.

use http::Method;
use node_pressure_apiserver::stage::{AGENTS, Stage, path};
use node_pressure_manifests::{kustomize, root};
use node_pressure_monitor::cluster::Access;
use node_pressure_monitor::cluster::permissions::Component;
use node_pressure_monitor::cluster::sweeper::{Rules, Sweeper};
use serde_json::{Value, json};

use super::die_under_pressure;
use super::own_node::{Forbidden, patch, refused, replace};

/// Makes the sweeper's account with its roles; returns a token.
async fn token(stage: &Stage) -> String {
    let name = Component::Sweeper.service_account();
    for object in kustomize::build(&root().join("config/kubernetes/base")).unwrap() {
        let is_account = object["kind"] == "ServiceAccount" || object["kind"].as_str().unwrap().contains("Role");
        if is_account && object["metadata"]["name"] == name {
            stage.apply(&object).await.unwrap();
        }
    }
    let path = format!("/api/v1/namespaces/{AGENTS}/serviceaccounts/{name}/token");
    let answer = stage.create(&path, json!({"spec": {"audiences": []}})).await.unwrap();
    answer["status"]["token"].as_str().unwrap().to_owned()
}

/// Tests beside each other may not remove each other's policies.
pub(super) fn is_of_sweeper(policy: &Value) -> bool {
    policy["metadata"]["name"] == "node-pressure-monitor-sweeper"
}

/// Returns requests that the sweeper's role grants, and that remove nothing of a dead agent.
fn forbidden(node: &str) -> Vec<Forbidden> {
    let status = format!("{node}/status");
    let condition = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status, "reason": "MonitorAgentStopped"}]}});
    let taints = json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}});
    vec![
        replace("cordon", node, json!({"spec": {"unschedulable": true}}), "whether it is cordoned"),
        replace("a taint", node, taints, "only remove taints"),
        replace("a label", node, json!({"metadata": {"labels": {"a": "b"}}}), "metadata"),
        replace("capacity", &status, json!({"status": {"capacity": {"cpu": "400"}}}), "only conditions"),
        patch("a foreign condition", &status, condition("Ready", "Unknown"), "conditions of others"),
        patch("pressure", &status, condition("MonitorMemoryPressure", "True"), "set it to Unknown"),
    ]
}

#[tokio::test]
async fn the_policy_limits_the_sweeper_to_what_agents_left() {
    let stage = Stage::new().await.unwrap();
    if stage.skips_in_memory("the admission policy of the sweeper") {
        return;
    }
    die_under_pressure(&stage).await;
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
    stage.patch(&format!("{}/status", stage.node_path()), json!({"status": {"conditions": ready}})).await.unwrap();
    let token = token(&stage).await;
    let mut policies: Vec<Value> = kustomize::build(&root().join("config/kubernetes/own-node")).unwrap();
    policies.retain(is_of_sweeper);
    for object in &policies {
        stage.apply(object).await.unwrap();
    }
    let client = stage.server.client_with(&token).await.unwrap();
    for request in forbidden(&stage.node_path()) {
        refused(&stage, &client, &request).await;
    }
    let access = Access::by_kubeconfig(stage.kubeconfig_file_of("sweeper", &token).unwrap(), &stage.node);
    let rules = Rules { remove: false, keep_leases: false, dry_run: false, by_clock: true };
    let mut sweeper = Sweeper::connect(&access, rules, Some(stage.node.clone())).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    let round = sweeper.round(&mut |_| {}).await.unwrap();
    assert_eq!((round.swept, round.failed), (1, 0));
    for object in &policies {
        stage.ask(Method::DELETE, &path(object), json!({})).await.unwrap();
    }
    stage.end().await.unwrap();
}
