//! The history of a pod's status, recorded on a thread of its own.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use super::pki;
use crate::control_plane::Admin;
use crate::units::monotonic_ns;

/// The interval at which the pod is read.
const INTERVAL: Duration = Duration::from_millis(100);

/// Follows one pod. Dropping it ends the thread.
#[derive(Debug)]
pub struct PodHistory {
    /// The pod's name.
    pub pod: String,
    ended: Arc<AtomicBool>,
    changes: Arc<Mutex<Vec<StatusChange>>>,
    thread: Option<JoinHandle<()>>,
}

/// A status that differs from the one before.
#[derive(Debug, Clone)]
pub struct StatusChange {
    pub at_ns: u64,
    /// The pod's UID: a StatefulSet gives a new pod the old name.
    pub uid: String,
    /// The restarts of the first container.
    pub restarts: u64,
    /// Phase, reason, conditions of an ended pod, and containers; "gone" without an object.
    pub text: String,
}

impl PodHistory {
    /// Begins to follow the pod of the namespace `default` with this name.
    pub fn of(name: &str) -> Result<Self> {
        let (ended, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::<StatusChange>::new())));
        let (its_end, its_changes) = (Arc::clone(&ended), Arc::clone(&changes));
        let admin = Admin::of_kubeconfig(&pki::file("admin.conf"))?;
        let its_name = name.to_owned();
        let thread = spawn(move || {
            while !its_end.load(Ordering::Acquire) {
                // The API server may be down.
                if let Ok(found) = admin.find_pod(&its_name) {
                    let change = StatusChange::of(found.as_ref());
                    let mut changes = its_changes.lock().unwrap_or_else(PoisonError::into_inner);
                    if changes.last().is_none_or(|last| (&last.uid, &last.text) != (&change.uid, &change.text)) {
                        changes.push(change);
                    }
                }
                sleep(INTERVAL);
            }
        });
        Ok(Self { pod: name.to_owned(), ended, changes, thread: Some(thread) })
    }

    pub fn changes(&self) -> Vec<StatusChange> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl StatusChange {
    /// Returns the present status of a pod's object.
    fn of(pod: Option<&Value>) -> Self {
        let uid = pod.and_then(|pod| pod["metadata"]["uid"].as_str()).unwrap_or_default().to_owned();
        let restarts = pod.and_then(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64());
        let text = pod.map_or_else(|| "gone".to_owned(), describe);
        Self { at_ns: monotonic_ns(), uid, restarts: restarts.unwrap_or(0), text }
    }
}

impl Drop for PodHistory {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The thread has already printed its panic.
            let _panicked = thread.join();
        }
    }
}

fn describe(pod: &Value) -> String {
    let status = &pod["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut line = format!("{}/{}", text(&status["phase"]), text(&status["reason"]));
    for condition in status["conditions"].as_array().into_iter().flatten() {
        if condition["reason"] == "PodFailed" && condition["type"] == "Ready" {
            line.push_str(" Ready=PodFailed");
        }
        if condition["type"] == "DisruptionTarget" {
            let _ = write!(line, " DisruptionTarget={}", text(&condition["reason"]));
        }
    }
    for container in status["containerStatuses"].as_array().into_iter().flatten() {
        let state = container["state"].as_object().and_then(|state| state.keys().next().cloned()).unwrap_or_default();
        let _ = write!(line, " {}={state} restarts={}", text(&container["name"]), container["restartCount"]);
    }
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        line.push_str(" terminating");
    }
    line
}
