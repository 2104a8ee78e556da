//! Reads the agent's requests from the API server's log, and its objects from the API server.

use std::time::Duration;

use anyhow::Result;
use node_pressure_apiserver::Record;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::control_plane::{ControlPlane, NODE};
use crate::stage::Stage;

/// The time limit for effects that follow within a second on a machine of usual speed.
const LIMIT: Duration = Duration::from_secs(20);

/// The API server, and the agent that is its client.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    pub plane: &'a ControlPlane,
    pub agent: &'a Agent,
}

impl Seen<'_> {
    /// Asserts that the condition holds within [`LIMIT`].
    pub fn eventually(&self, stage: &mut Stage<'_>, what: &str, is_so: impl Fn(&ControlPlane) -> Result<bool>) {
        let mut trouble = None;
        let came = stage.until(LIMIT, |_| match is_so(self.plane) {
            Ok(is_so) => is_so,
            Err(error) => {
                trouble = Some(error);
                false
            }
        });
        let trouble = trouble.map(|error| format!(": {error:#}")).unwrap_or_default();
        stage.check(came, || format!("not within {LIMIT:?}: {what}{trouble}"));
    }

    /// Waits until the agent knows this many pods from the API server.
    pub fn pods(&self, stage: &mut Stage<'_>, count: u32) {
        let mut known = None;
        let came = stage.until(LIMIT, |_| {
            known = self.agent.metrics().ok().and_then(|metrics| metrics.sum("pods_known", &[]));
            known == Some(f64::from(count))
        });
        stage.check(came, || format!("the agent knows {known:?} pods, not {count}"));
    }

    /// Returns the time of the first matching request that was carried out.
    fn first(&self, is_it: impl Fn(&Record) -> bool) -> Option<u64> {
        let is_done = |record: &Record| record.carried_out.is_some_and(|code| code < 300);
        self.plane.requests().into_iter().find(|(_, record)| is_done(record) && is_it(record)).map(|(at, _)| at)
    }

    pub fn condition(&self, status: &str) -> Option<u64> {
        self.first(|record| {
            record.is("PATCH", &format!("/nodes/{NODE}/status"))
                && condition(&record.body, "MonitorMemoryPressure") == Some(status)
        })
    }

    pub fn taint(&self) -> Option<u64> {
        self.first(|record| record.is("PATCH", &format!("/nodes/{NODE}")) && sets_taint(&record.body))
    }

    /// Returns when the pod's status was set to Failed and Evicted, with the mark in it.
    pub fn failed(&self, pod: &str) -> Option<u64> {
        self.first(|record| {
            record.is("PATCH", &format!("/pods/{pod}/status"))
                && is_evicted(&record.body)
                && condition(&record.body, "DisruptionTarget") == Some("True")
        })
    }

    pub fn event(&self, reason: &str) -> Option<u64> {
        self.first(|record| record.is("POST", "/events") && record.body["reason"] == reason)
    }

    /// Returns the events with this reason about this pod.
    pub fn events_of(&self, pod: &str, reason: &str) -> Result<Vec<Value>> {
        let list = self.plane.get("/api/v1/events")?;
        let events = list["items"].as_array().cloned().unwrap_or_default().into_iter();
        let is_it = |event: &Value| event["reason"] == reason && event["involvedObject"]["name"] == pod;
        Ok(events.filter(is_it).collect())
    }
}

/// Returns whether a pod, or a patch of one, has the status of an eviction by the kubelet.
pub fn is_evicted(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" && pod["status"]["reason"] == "Evicted"
}

/// Returns the status of a condition of an object or of a patch.
pub fn condition<'o>(object: &'o Value, kind: &str) -> Option<&'o str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)?["status"].as_str()
}

/// Returns whether a JSON Patch, or a merge patch, of the node sets the agent's taint.
pub fn sets_taint(patch: &Value) -> bool {
    let sets = |operation: &Value| {
        operation["op"] != "test"
            && operation["path"] == "/spec/taints"
            && taint(&json!({"spec": {"taints": operation["value"]}}), "memory").is_some()
    };
    patch.as_array().map_or_else(|| taint(patch, "memory").is_some(), |operations| operations.iter().any(sets))
}

/// Returns the agent's taint of an object.
pub fn taint<'o>(node: &'o Value, resource: &str) -> Option<&'o Value> {
    taints(node, resource).next()
}

/// Returns the agent's taint with this effect.
pub fn taint_with<'o>(node: &'o Value, resource: &str, effect: &str) -> Option<&'o Value> {
    taints(node, resource).find(|taint| taint["effect"] == effect)
}

fn taints<'o>(node: &'o Value, resource: &str) -> impl Iterator<Item = &'o Value> {
    let key = format!("node-pressure-monitor/{resource}-pressure");
    node["spec"]["taints"].as_array().into_iter().flatten().filter(move |taint| taint["key"] == key.as_str())
}
