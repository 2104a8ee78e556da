//! A node's object, as much of it as is looked at.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::super::condition_names as names;

/// A `v1.Node`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    /// `metadata`.
    pub metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

/// `metadata`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Another after each change.
    pub resource_version: String,
    /// Of all the annotations the only one that is looked at.
    annotations: Option<Annotations>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    /// [`HEARTBEAT`](names::HEARTBEAT).
    #[serde(rename = "node-pressure-monitor/heartbeat-seconds")]
    heartbeat: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Spec {
    /// As they are: fields that we do not know are kept when the list is written back.
    taints: Option<Vec<Value>>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<NodeCondition>>,
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
    /// When it was confirmed last, as written.
    pub last_heartbeat_time: Option<String>,
    /// When its status changed last, as written.
    pub last_transition_time: Option<String>,
}

impl NodeCondition {
    /// Whether it is one of ours.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        names::is_our_condition(&self.kind, &self.reason)
    }

    /// Whether it says itself that its agent has died.
    #[must_use]
    pub fn is_forsaken(&self) -> bool {
        self.status == "Unknown" && self.reason == names::AGENT_STOPPED
    }
}

impl NodeObject {
    /// Its conditions, everybody's.
    #[must_use]
    pub fn conditions(&self) -> &[NodeCondition] {
        self.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
    }

    /// Those of them that are ours.
    pub fn ours(&self) -> impl Iterator<Item = &NodeCondition> {
        self.conditions().iter().filter(|condition| condition.is_ours())
    }

    /// The condition of that type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions().iter().find(|condition| condition.kind == kind)
    }

    /// How often its agent says that it confirms its conditions, as written.
    #[must_use]
    pub fn heartbeat_words(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.heartbeat.as_deref()
    }

    /// How often its agent says that it confirms its conditions; at most once a day.
    #[must_use]
    pub fn heartbeat(&self) -> Option<Duration> {
        let seconds = self.heartbeat_words()?.parse::<u64>().ok()?;
        Some(Duration::from_secs(seconds.min(86_400)))
    }

    /// Its taints, everybody's.
    #[must_use]
    pub fn taints(&self) -> &[Value] {
        self.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
    }
}

/// Key and effect of a taint; together they name it.
#[must_use]
pub fn taint_name(taint: &Value) -> (&str, &str) {
    let text = |name: &str| taint.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("key"), text("effect"))
}
