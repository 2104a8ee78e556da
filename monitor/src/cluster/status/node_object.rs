//! The fields of a `v1.Node` that conditions and taints need.

use serde::Deserialize;
use serde_json::Value;

use super::super::condition_names;

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct NodeObject {
    pub metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Spec {
    /// Untyped: unknown fields are kept when the list is written back.
    taints: Option<Vec<Value>>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Option<Vec<NodeCondition>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeCondition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<String>,
}

impl NodeCondition {
    pub fn is_ours(&self) -> bool {
        condition_names::is_our_condition(&self.kind, &self.reason)
    }

    /// Returns whether a sweeper has marked the condition as that of a dead agent.
    pub fn is_abandoned(&self) -> bool {
        self.status == "Unknown" && self.reason == condition_names::AGENT_STOPPED
    }
}

impl NodeObject {
    pub fn conditions(&self) -> &[NodeCondition] {
        self.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
    }

    pub fn ours(&self) -> impl Iterator<Item = &NodeCondition> {
        self.conditions().iter().filter(|condition| condition.is_ours())
    }

    pub fn condition(&self, kind: &str) -> Option<&NodeCondition> {
        self.conditions().iter().find(|condition| condition.kind == kind)
    }

    pub fn taints(&self) -> &[Value] {
        self.taint_list().unwrap_or_default()
    }

    /// Returns the list of taints; none: the object has no such field.
    pub fn taint_list(&self) -> Option<&[Value]> {
        self.spec.as_ref()?.taints.as_deref()
    }
}

/// Returns key and effect of a taint, which together identify it.
pub fn taint_name(taint: &Value) -> (&str, &str) {
    let text = |name: &str| taint.get(name).and_then(Value::as_str).unwrap_or_default();
    (text("key"), text("effect"))
}
