//! Pods that the API server lists.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::cluster_eyes::Seen;
use super::{Crowd, LIMIT, config};
use crate::cgroups::{Pod, PodSpec, Qos};
use crate::config::AgentConfig;
use crate::control_plane::{ControlPlane, NODE};
use crate::stage::Stage;

/// Creates a pod at the API server, and its cgroups. `further` is merged into the object.
fn listed_pod(plane: &ControlPlane, stage: &Stage<'_>, label: &str, spec: PodSpec, owner: &str) -> Result<Pod> {
    let resources = match spec.qos {
        Qos::BestEffort => json!({}),
        Qos::Burstable => json!({"requests": {"memory": format!("{}Mi", spec.request_mib)}}),
        Qos::Guaranteed => json!({"limits": {"cpu": "1", "memory": format!("{}Mi", spec.limit_mib)}}),
    };
    let owner = json!({"apiVersion": "apps/v1", "kind": owner, "name": "owner", "controller": true,
        "uid": "5d7a2f0e-1c65-4a2b-9d3f-000000000001"});
    let object = json!({
        "metadata": {"name": label, "ownerReferences": [owner]},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "image": "localhost/busybox:1", "resources": resources}],
        },
    });
    let object = plane.create("/api/v1/namespaces/default/pods", &object)?;
    let uid = object["metadata"]["uid"].as_str().context("the API server gave no UID")?;
    plane.merge(&format!("{}/status", path(label)), &json!({"status": {"phase": "Running"}}))?;
    Pod::create(stage.layout(), label, uid, spec)
}

fn path(label: &str) -> String {
    format!("/api/v1/namespaces/default/pods/{label}")
}

fn with_api(plane: &ControlPlane) -> Result<AgentConfig> {
    let kubeconfig = plane.kubeconfig()?;
    let extra = format!("kubernetes: {{kubeconfig: {}, nodeName: {NODE}, heartbeat: 10s}}\n", kubeconfig.display());
    Ok(AgentConfig { extra, ..config() })
}

/// A pod within its grace period leaks, and ignores SIGTERM.
pub fn terminating(stage: &mut Stage<'_>) -> Result<()> {
    let plane = ControlPlane::start()?;
    let mut crowd = Crowd::default();
    for (label, spec, mib) in [
        ("ballast", PodSpec::guaranteed(450), 400),
        ("small-1", PodSpec::best_effort(), 30),
        ("small-2", PodSpec::best_effort(), 30),
    ] {
        let pod = listed_pod(&plane, stage, label, spec, "ReplicaSet")?;
        let worker = crowd.pod(pod, stage, &format!("hold --name {label} --mib {mib}"))?;
        stage.wait_resident(&worker, mib)?;
    }
    let leaver = listed_pod(&plane, stage, "leaver", PodSpec::burstable(32), "ReplicaSet")?;
    let uid = leaver.uid.clone();
    let agent = stage.agent(&with_api(&plane)?)?;
    Seen { plane: &plane, agent: &agent }.pods(stage, 4);
    plane.delete(&path("leaver"), &uid, 30)?;
    let object: Value = plane.get(&path("leaver"))?;
    stage.check(!object["metadata"]["deletionTimestamp"].is_null(), || "the pod is not Terminating".to_owned());
    // The watch brings the change within a second.
    stage.pause(Duration::from_secs(1));
    let work = "ramp --name leaver --ignore-term --rate 40 --to 960 --fast-until 160";
    let leaver = crowd.pod(leaver, stage, work)?;
    crowd.only_these_die(stage, &agent, &[&leaver], LIMIT)?;
    stage.stop(&agent);
    Ok(())
}
