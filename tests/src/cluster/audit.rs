//! The API server's audit log of the requests that write, or that read the node, with the time at which each arrived.

use std::fs;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::NAME;
use crate::control_plane::NODE;
use crate::units::monotonic_ns;

pub const LOG: &str = "/var/log/audit.log";

/// Returns the audit policy: requests that write or that read the node are logged, the agent's events and changes of the node with their bodies.
pub fn policy() -> String {
    let agent = agent();
    format!(
        "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Request
    users: ['{agent}']
    verbs: [create, patch]
    resources: [{{group: '', resources: [events, nodes, nodes/status]}}]
  - {{level: Metadata, verbs: [create, update, patch, delete]}}
  - {{level: Metadata, verbs: [get], resources: [{{group: '', resources: [nodes]}}]}}
  - {{level: None}}
"
    )
}

/// An answered request.
#[derive(Debug, Clone)]
pub struct Request {
    pub by: Client,
    pub verb: String,
    /// Resource, subresource, namespace and name.
    pub object: String,
    pub code: u16,
    pub arrived_ns: u64,
    pub answered_ns: u64,
    /// The body of a request whose body is logged.
    pub body: Value,
}

impl Request {
    /// Returns whether the agent sent this request and the API server carried it out.
    pub fn is_done_by_agent(&self) -> bool {
        self.by == Client::Agent && (200..300).contains(&self.code)
    }

    /// Returns whether this request sets the status of the pod with this name in the namespace `default`.
    pub fn is_status_of(&self, pod: &str) -> bool {
        self.object == format!("pods/status/default/{pod}")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    Agent,
    Kubelet,
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Status,
    #[serde(default)]
    request_object: Value,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Debug, Deserialize)]
struct User {
    username: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
}

/// Returns the requests so far.
pub fn requests() -> Result<Vec<Request>> {
    let text = fs::read_to_string(LOG).with_context(|| format!("read {LOG}"))?;
    let now = (Timestamp::now(), monotonic_ns());
    let monotonic = |at: Timestamp| monotonic_at(at, now);
    let request = |line: &str| {
        let line: Line = serde_json::from_str(line).ok()?;
        let Object { resource, subresource, namespace, name } = line.object_ref;
        let parts = [resource, subresource, namespace, name];
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        Some(Request {
            by: client(&line.user.username),
            verb: line.verb,
            object: parts.join("/"),
            code: line.response_status.code,
            arrived_ns: monotonic(line.request_received_timestamp),
            answered_ns: monotonic(line.stage_timestamp),
            body: line.request_object,
        })
    };
    // The last line may be incomplete.
    Ok(text.lines().filter_map(request).collect())
}

/// Returns the monotonic time of a past time of the wall clock. `now` is the present time on both clocks.
pub fn monotonic_at(at: Timestamp, (now, now_ns): (Timestamp, u64)) -> u64 {
    let age = u64::try_from(now.duration_since(at).as_nanos()).unwrap_or(0);
    now_ns.saturating_sub(age)
}

/// Returns the agent's user name.
fn agent() -> String {
    format!("system:serviceaccount:{NAME}:{NAME}")
}

fn client(user: &str) -> Client {
    if user == agent() {
        Client::Agent
    } else if user == format!("system:node:{NODE}") {
        Client::Kubelet
    } else {
        Client::Other
    }
}
