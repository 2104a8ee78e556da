//! The API server's own log of the requests that change something or read the node, and when each arrived.

use std::fs;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

use super::NAME;
use crate::control_plane::NODE;
use crate::units::monotonic_ns;

pub const LOG: &str = "/var/log/audit.log";
/// The kinds of requests that are logged, and what of them.
pub const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, verbs: [create, update, patch, delete]}
  - {level: Metadata, verbs: [get], resources: [{group: '', resources: [nodes]}]}
  - {level: None}
";

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
    let (now, now_ns) = (Timestamp::now(), monotonic_ns());
    let monotonic = |at: Timestamp| {
        let age = u64::try_from(now.duration_since(at).as_nanos()).unwrap_or(0);
        now_ns.saturating_sub(age)
    };
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
        })
    };
    // The last line may be incomplete.
    Ok(text.lines().filter_map(request).collect())
}

fn client(user: &str) -> Client {
    if user == format!("system:serviceaccount:{NAME}:{NAME}") {
        Client::Agent
    } else if user == format!("system:node:{NODE}") {
        Client::Kubelet
    } else {
        Client::Other
    }
}
