//! Pods that the API server lists.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::cluster_eyes::Seen;
use super::super::pressure::EVERYTHING_MIB;
use super::{Crowd, LIMIT, config};
use crate::cgroups::{Pod, PodSpec, Qos};
use crate::config::AgentConfig;
use crate::control_plane::{ControlPlane, NODE, pod_path};
use crate::evidence::meminfo;
use crate::processes;
use crate::stage::Stage;
use crate::units::MIB;

/// The agent's cache of pods.
const CACHE: &str = "/run/node-pressure-monitor/lock.pods.json";
const DEPLOYMENT: &str = "ReplicaSet";
const DAEMON_SET: &str = "DaemonSet";

/// Creates a pod at the API server, and its cgroups. A pod of a DaemonSet is critical.
pub fn listed_pod(plane: &ControlPlane, stage: &Stage<'_>, label: &str, spec: PodSpec, owner: &str) -> Result<Pod> {
    let resources = match spec.qos {
        Qos::BestEffort => json!({}),
        Qos::Burstable => json!({"requests": {"memory": format!("{}Mi", spec.request_mib)}}),
        Qos::Guaranteed => json!({"limits": {"cpu": "1", "memory": format!("{}Mi", spec.limit_mib)}}),
    };
    let owner = json!({"apiVersion": "apps/v1", "kind": owner, "name": "owner", "controller": true,
        "uid": "5d7a2f0e-1c65-4a2b-9d3f-000000000001"});
    let mut object = json!({
        "metadata": {"name": label, "ownerReferences": [owner]},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "image": "localhost/busybox:1", "resources": resources}],
        },
    });
    if owner["kind"] == DAEMON_SET {
        object["spec"]["priorityClassName"] = json!("system-node-critical");
    }
    let object = plane.create("/api/v1/namespaces/default/pods", &object)?;
    let uid = object["metadata"]["uid"].as_str().context("the API server gave no UID")?;
    plane.merge(&format!("{}/status", pod_path(label)), &json!({"status": {"phase": "Running"}}))?;
    Pod::create(stage.layout(), label, uid, spec)
}

/// Starts pods that the API server lists, and waits until they hold their memory.
fn listed_crowd(plane: &ControlPlane, stage: &mut Stage<'_>, pods: &[(&str, PodSpec, u64, &str)]) -> Result<Crowd> {
    let mut crowd = Crowd::default();
    for (label, spec, mib, owner) in pods.iter().copied() {
        let pod = listed_pod(plane, stage, label, spec, owner)?;
        let worker = crowd.pod(pod, stage, &format!("hold --name {label} --mib {mib}"))?;
        stage.wait_resident(&worker, mib)?;
    }
    Ok(crowd)
}

fn with_api(plane: &ControlPlane) -> Result<AgentConfig> {
    let kubeconfig = plane.kubeconfig()?;
    let extra = format!("kubernetes: {{kubeconfig: {}, nodeName: {NODE}, heartbeat: 10s}}\n", kubeconfig.display());
    Ok(AgentConfig { extra, ..config() })
}

/// A pod within its grace period leaks, and ignores SIGTERM.
pub fn terminating(stage: &mut Stage<'_>) -> Result<()> {
    let plane = ControlPlane::start()?;
    let mut crowd = listed_crowd(
        &plane,
        stage,
        &[
            ("ballast", PodSpec::guaranteed(450), 400, DEPLOYMENT),
            ("small-1", PodSpec::best_effort(), 30, DEPLOYMENT),
            ("small-2", PodSpec::best_effort(), 30, DEPLOYMENT),
        ],
    )?;
    let leaver = listed_pod(&plane, stage, "leaver", PodSpec::burstable(32), DEPLOYMENT)?;
    let uid = leaver.uid.clone();
    let agent = stage.agent(&with_api(&plane)?)?;
    Seen { plane: &plane, agent: &agent }.pods(stage, 4);
    plane.delete(&pod_path("leaver"), &uid, 30)?;
    let object: Value = plane.get(&pod_path("leaver"))?;
    stage.check(!object["metadata"]["deletionTimestamp"].is_null(), || "the pod is not Terminating".to_owned());
    // The watch brings the change within a second.
    stage.pause(Duration::from_secs(1));
    let work = "ramp --name leaver --ignore-term --rate 40 --to 960 --fast-until 160";
    let leaver = crowd.pod(leaver, stage, work)?;
    crowd.only_these_die(stage, &agent, &[&leaver], LIMIT)?;
    stage.stop(&agent);
    Ok(())
}

/// An agent dies, and memory runs short. Its successor knows the pods from the cache, or from the API server a moment later.
pub fn restart_protected(stage: &mut Stage<'_>) -> Result<()> {
    for has_cache in [true, false] {
        restart(stage, has_cache)?;
    }
    Ok(())
}

/// Plays one restart: with a cache and without an API server, or the other way round.
fn restart(stage: &mut Stage<'_>, has_cache: bool) -> Result<()> {
    stage.note(if has_cache { "the pods are in the cache" } else { "the API server lists the pods" });
    let plane = ControlPlane::start()?;
    let mut crowd = listed_crowd(
        &plane,
        stage,
        &[
            ("ballast", PodSpec::guaranteed(450), 400, DEPLOYMENT),
            ("daemon-1", PodSpec::best_effort(), 40, DAEMON_SET),
            ("daemon-2", PodSpec::best_effort(), 30, DAEMON_SET),
        ],
    )?;
    let leaker = listed_pod(&plane, stage, "leaker", PodSpec::burstable(32), DEPLOYMENT)?;
    let config = with_api(&plane)?;
    let first = stage.agent(&config)?;
    Seen { plane: &plane, agent: &first }.pods(stage, 4);
    // The agent writes the cache within a second of the list.
    stage.pause(Duration::from_secs(1));
    processes::signal(first.pid, libc::SIGKILL);
    let gone = stage.until(Duration::from_secs(5), |stage| stage.reaper.ended(first.pid).is_some());
    stage.check(gone, || "the first agent did not die".to_owned());
    let plane = if has_cache { None } else { Some(plane) };
    if plane.is_some() {
        fs::remove_file(CACHE).with_context(|| format!("remove {CACHE}"))?;
    }
    let work = format!("ramp --name leaker --rate 60 --to {EVERYTHING_MIB} --fast-until 150 --stop-at 85");
    let leaker = crowd.pod(leaker, stage, &work)?;
    let low = stage.until(Duration::from_secs(15), |_| meminfo("MemAvailable").is_ok_and(|bytes| bytes < 90 * MIB));
    stage.check(low, || "the guest did not come under pressure without an agent".to_owned());
    let second = stage.agent(&config)?;
    crowd.only_these_die(stage, &second, &[&leaker], Duration::from_secs(10))?;
    stage.stop(&second);
    crowd.end(stage);
    Ok(())
}
