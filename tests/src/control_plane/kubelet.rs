//! The part of the kubelet that an eviction depends on: it restarts exited containers, ends failed and deleted pods, and removes the objects of
//! deleted ones at the API server. This kubelet does not watch for pressure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Admin, ControlPlane, NODE, pod_path};
use crate::cgroups::Qos;
use crate::containers::{Node, NodePod, cri};
use crate::stage::Stage;

/// The interval at which the kubelet lists its containers (pkg/kubelet/pleg/generic.go).
const RELIST_PERIOD: Duration = Duration::from_secs(1);
const CONTAINER: &str = "main";

/// A pod of one container, in the kubelet's records.
#[derive(Debug)]
struct Kept {
    pod: Arc<NodePod>,
    script: String,
    restarts: u32,
    is_over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    ended: AtomicBool,
    pods: Mutex<Vec<Kept>>,
    troubles: Mutex<Vec<String>>,
}

/// A running kubelet. Dropping it stops the kubelet; the containers continue to run.
#[derive(Debug)]
pub struct Kubelet {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    pub fn start(plane: &ControlPlane) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let (admin, its) = (plane.admin()?, Arc::clone(&shared));
        let work = move || {
            while !its.ended.load(Ordering::Acquire) {
                if let Err(error) = its.sync_pods(&admin) {
                    its.troubles.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{error:#}"));
                }
                sleep(RELIST_PERIOD);
            }
        };
        Ok(Self { shared, thread: Some(spawn(work)) })
    }

    /// Runs a pod of a Deployment on this node. The API server knows the pod first, and its UID is used. Returns the pod and
    /// its container's id.
    pub fn run(
        &self,
        (plane, node, stage): (&ControlPlane, &Node, &Stage<'_>),
        name: &str,
        resources: &Value,
        script: &str,
    ) -> Result<(Arc<NodePod>, String)> {
        let object = plane.create("/api/v1/namespaces/default/pods", &object(name, resources))?;
        let uid = object["metadata"]["uid"].as_str().context("the API server gave no UID")?;
        let qos = match object["status"]["qosClass"].as_str() {
            Some("Guaranteed") => Qos::Guaranteed,
            Some("Burstable") => Qos::Burstable,
            _ => Qos::BestEffort,
        };
        let pod = Arc::new(node.pod_of(stage, name, uid, qos, &[])?);
        let id = pod.run(CONTAINER, script)?;
        plane.merge(&format!("{}/status", pod_path(name)), &running(&id, 0))?;
        let kept = Kept { pod: Arc::clone(&pod), script: script.to_owned(), restarts: 0, is_over: false };
        self.shared.pods.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        Ok((pod, id))
    }

    /// Returns the number of restarts of a pod's container.
    pub fn restarts(&self, pod: &NodePod) -> u32 {
        let pods = self.shared.pods.lock().unwrap_or_else(PoisonError::into_inner);
        pods.iter().find(|kept| kept.pod.uid == pod.uid).map_or(0, |kept| kept.restarts)
    }

    /// Returns the errors so far, for output.
    pub fn troubles(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.troubles.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic.
            let _panicked = thread.join();
        }
    }
}

impl Shared {
    fn sync_pods(&self, admin: &Admin) -> Result<()> {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        for kept in pods.iter_mut().filter(|kept| !kept.is_over) {
            kept.sync(admin).with_context(|| format!("pod {}", kept.pod.name))?;
        }
        Ok(())
    }
}

impl Kept {
    fn sync(&mut self, admin: &Admin) -> Result<()> {
        let pod = &self.pod;
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let object = admin.find(&path)?.filter(|object| object["metadata"]["uid"] == pod.uid.as_str());
        match object {
            // The kubelet ends a pod whose phase another client has set, and keeps the phase.
            Some(object) if object["status"]["phase"] == "Failed" => {
                self.end(object["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30))?;
                admin.merge(&format!("{path}/status"), &failed(&object, self.restarts))
            }
            Some(object) if object["metadata"]["deletionTimestamp"].is_null() => self.keep_running(admin, &path),
            Some(object) => {
                let grace = object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(30);
                self.end(grace)?;
                admin.delete(&path, &self.pod.uid, 0)
            }
            None => self.end(0),
        }
    }

    fn end(&mut self, grace: u64) -> Result<()> {
        for id in self.pod.running()? {
            cri::stop_container(&id, grace)?;
        }
        cri::stop_sandbox(&self.pod.sandbox)?;
        cri::remove_sandbox(&self.pod.sandbox)?;
        self.is_over = true;
        Ok(())
    }

    fn keep_running(&mut self, admin: &Admin, path: &str) -> Result<()> {
        if self.pod.is_running()? {
            return Ok(());
        }
        self.restarts += 1;
        let id = self.pod.run(CONTAINER, &self.script)?;
        admin.merge(&format!("{path}/status"), &running(&id, self.restarts))
    }
}

fn object(name: &str, resources: &Value) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-7d4b9c6f5", "controller": true,
        "uid": "5d7a2f0e-1c65-4a2b-9d3f-000000000001"});
    json!({
        "metadata": {"name": name, "labels": {"app": name}, "ownerReferences": [owner]},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 2,
            "containers": [{"name": CONTAINER, "image": "localhost/busybox:1", "resources": resources}],
        },
    })
}

/// Returns the status of a pod whose phase is Failed, with the kubelet's own reason that the pod is not ready.
fn failed(object: &Value, restarts: u32) -> Value {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let others = conditions.filter(|condition| condition["type"] != "Ready").cloned();
    let ready = json!({"type": "Ready", "status": "False", "reason": "PodFailed"});
    json!({"status": {
        "conditions": others.chain([ready]).collect::<Vec<_>>(),
        "containerStatuses": [{
            "name": CONTAINER, "ready": false, "restartCount": restarts, "image": "localhost/busybox:1", "imageID": "sha256:0",
            "state": {"terminated": {"exitCode": 137, "reason": "Error"}},
        }],
    }})
}

fn running(id: &str, restarts: u32) -> Value {
    let ready = |kind: &str| json!({"type": kind, "status": "True"});
    json!({"status": {
        "phase": "Running",
        "conditions": [ready("PodScheduled"), ready("Initialized"), ready("ContainersReady"), ready("Ready")],
        "containerStatuses": [{
            "name": CONTAINER, "ready": true, "restartCount": restarts, "image": "localhost/busybox:1", "imageID": "sha256:0",
            "containerID": format!("containerd://{id}"), "state": {"running": {}},
        }],
    }})
}
