//! The node and its pods at the API server, with objects of realistic size, and changes of them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The node's name.
pub const NODE: &str = "npm-bench-node";
const NAMESPACE: &str = "default";
/// The number of concurrent requests, as from the kubelet and the controllers of a busy node.
const AT_ONCE: usize = 8;

/// A pod as the API server knows it.
#[derive(Debug, Clone)]
pub struct Known {
    pub name: String,
    pub uid: String,
}

/// A client that acts as the kubelet, controllers and users of the node.
#[derive(Clone)]
pub struct Cluster {
    pods: Api<Pod>,
    nodes: Api<Node>,
}

impl Cluster {
    /// Registers the bench's node.
    pub async fn new(client: kube::Client) -> Result<Self> {
        let cluster = Self { pods: Api::namespaced(client.clone(), NAMESPACE), nodes: Api::all(client) };
        let node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
        cluster.nodes.create(&PostParams::default(), &node).await.context("cannot create the node")?;
        Ok(cluster)
    }

    /// Creates running pods with these numbers.
    pub async fn create(&self, numbers: std::ops::Range<usize>) -> Result<Vec<Known>> {
        let mut known = Vec::with_capacity(numbers.len());
        let mut under_way = JoinSet::new();
        for number in numbers {
            if under_way.len() >= AT_ONCE
                && let Some(done) = under_way.join_next().await
            {
                known.push(done??);
            }
            let cluster = self.clone();
            under_way.spawn(async move { cluster.create_one(number).await });
        }
        while let Some(done) = under_way.join_next().await {
            known.push(done??);
        }
        Ok(known)
    }

    /// Creates one running pod, which takes two writes.
    pub async fn create_one(&self, number: usize) -> Result<Known> {
        let name = format!("service-7d4b9c6f5-{number:05}");
        let pod: Pod = serde_json::from_value(pod(&name, number))?;
        let made = self.pods.create(&PostParams::default(), &pod).await.with_context(|| format!("creating {name}"))?;
        let uid = made.metadata.uid.with_context(|| format!("{name} has no UID"))?;
        let known = Known { name, uid };
        self.patch_status(&known, status(&known.name, 0)).await?;
        Ok(known)
    }

    /// Writes a pod's status, as the kubelet does regularly.
    pub async fn change_status(&self, pod: &Known, count: usize) -> Result<()> {
        self.patch_status(pod, status(&pod.name, count)).await
    }

    /// Annotates a pod, as controllers and users do.
    pub async fn annotate(&self, pod: &Known, count: usize) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"example.org/checked": count.to_string()}}});
        self.pods
            .patch(&pod.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .with_context(|| format!("annotating {}", pod.name))?;
        Ok(())
    }

    /// Deletes a pod at once, as the kubelet does for a pod whose containers have exited.
    pub async fn delete(&self, pod: &Known) -> Result<()> {
        let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.pods.delete(&pod.name, &at_once).await.with_context(|| format!("deleting {}", pod.name))?;
        Ok(())
    }

    /// Removes every object of the bench, because the server may be a real cluster's.
    pub async fn remove(&self, pods: &[Known]) -> Result<()> {
        for pod in pods {
            self.delete(pod).await?;
        }
        self.nodes.delete(NODE, &DeleteParams::default()).await.context("cannot delete the node")?;
        Ok(())
    }

    async fn patch_status(&self, pod: &Known, status: Value) -> Result<()> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": pod.uid}, "status": status}));
        self.pods
            .patch_status(&pod.name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("changing the status of {}", pod.name))?;
        Ok(())
    }
}

fn pod(name: &str, number: usize) -> Value {
    let request = 64 + number % 8 * 32;
    let variables: Vec<Value> = (0..20)
        .map(|index| json!({"name": format!("SETTING_{index}"), "value": format!("a value of usual length for {index}")}))
        .collect();
    json!({
        "metadata": {
            "name": name,
            "generateName": "service-7d4b9c6f5-",
            "labels": {"app.kubernetes.io/name": "service", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7d4b9c6f5"},
            "annotations": {"prometheus.io/scrape": "true", "checksum/config": "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "service-7d4b9c6f5",
                "uid": "5d7a2f0e-1c65-4a2b-9d3f-000000000001", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "nodeName": NODE,
            "priority": 0,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "app", "image": "registry.example/shop/service:1.42.0", "env": variables,
                "ports": [{"name": "http", "containerPort": 8080}],
                "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}, "periodSeconds": 10},
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 10},
                "resources": {"requests": {"cpu": "100m", "memory": format!("{request}Mi")}, "limits": {"memory": "512Mi"}},
                "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "config", "mountPath": "/etc/service"}],
            }],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "config", "configMap": {"name": "service"}}],
        },
    })
}

/// Returns a status that differs for each count.
fn status(name: &str, count: usize) -> Value {
    let ready = if count.is_multiple_of(2) { "True" } else { "False" };
    let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", count / 3600 % 24, count / 60 % 60, count % 60);
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": time});
    json!({
        "phase": "Running",
        "qosClass": "Burstable",
        "hostIP": "192.0.2.7",
        "podIP": "198.51.100.9",
        "startTime": "2026-01-01T00:00:00Z",
        "conditions": [
            condition("PodScheduled", "True"), condition("Initialized", "True"), condition("Ready", ready), condition("ContainersReady", ready)],
        "containerStatuses": [{
            "name": "app", "ready": ready == "True", "started": true, "restartCount": count,
            "image": "registry.example/shop/service:1.42.0",
            "imageID": "registry.example/shop/service@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "containerID": format!("containerd://{name:0>64}"),
            "state": {"running": {"startedAt": time}},
        }],
    })
}
