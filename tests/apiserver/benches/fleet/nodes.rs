//! The nodes and their pods at the API server, with objects of realistic size.

use anyhow::{Context as _, Result};
use http::Method;
use node_pressure_apiserver::Stage;
use node_pressure_apiserver::stage::{lease_path, uid};
use serde_json::{Value, json};

/// The kubelet's `nodeStatusMaxImages`.
const IMAGES: usize = 50;

/// A node and the pod that is evicted from it.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub namespace: String,
    pub pod: String,
    pub pod_uid: String,
}

/// Creates nodes with two running pods each.
pub async fn create(stage: &Stage, count: u32) -> Result<Vec<Node>> {
    let images = images();
    let mut nodes = Vec::new();
    for number in 0..count {
        let name = format!("{}-{number:04}", stage.node);
        stage.create("/api/v1/nodes", json!({"metadata": {"name": name}})).await?;
        stage.patch(&format!("/api/v1/nodes/{name}/status"), json!({"status": {"images": images}})).await?;
        let pod = format!("shop-{number:04}");
        let made = stage.running_pod(&pod, Value::Null, spec(&name)).await?;
        stage.running_pod(&format!("search-{number:04}"), Value::Null, spec(&name)).await?;
        nodes.push(Node { name, namespace: stage.namespace.clone(), pod, pod_uid: uid(&made) });
    }
    Ok(nodes)
}

/// Removes the nodes and their Leases, because the server may be a real cluster's. The pods end with the namespace.
pub async fn remove(stage: &Stage, nodes: &[Node]) -> Result<()> {
    for Node { name, .. } in nodes {
        for path in [lease_path(name), format!("/api/v1/nodes/{name}")] {
            let removed = stage.ask(Method::DELETE, &path, json!({"gracePeriodSeconds": 0})).await;
            removed.with_context(|| format!("removing {path}"))?;
        }
    }
    Ok(())
}

fn images() -> Value {
    let image = |number| {
        let name = format!("registry.example/team/service-{number}");
        json!({"names": [format!("{name}@sha256:{number:064x}"), format!("{name}:1.42.0")], "sizeBytes": 150_000_000 + number})
    };
    (0..IMAGES).map(image).collect()
}

fn spec(node: &str) -> Value {
    let variable =
        |number| json!({"name": format!("SETTING_{number}"), "value": "a value of usual length for a setting"});
    let environment: Vec<Value> = (0..20).map(variable).collect();
    json!({
        "nodeName": node,
        "containers": [{
            "name": "app", "image": "registry.example/team/service-7:1.42.0", "env": environment,
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        }],
    })
}
