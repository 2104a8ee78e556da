//! A Kubernetes event to send, and its JSON.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::api_time;

const COMPONENT: &str = "node-pressure-monitor";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventRequest {
    pub object: InvolvedObject,
    /// The type is `Warning`, not `Normal`.
    pub is_warning: bool,
    /// One CamelCase word.
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum InvolvedObject {
    Node,
    Pod { namespace: String, name: String, uid: String },
}

impl EventRequest {
    /// Returns the namespace of the event; events of nodes are in `default`.
    pub(in crate::cluster) fn namespace(&self) -> &str {
        match &self.object {
            InvolvedObject::Node => "default",
            InvolvedObject::Pod { namespace, .. } => namespace,
        }
    }

    /// Returns a `v1.Event` as kubelets write it, which happened `count` times between `first` and `last`.
    pub(in crate::cluster) fn to_json(
        &self,
        name: &str,
        node: &str,
        count: u32,
        [first, last]: [Timestamp; 2],
    ) -> Value {
        let involved = match &self.object {
            // The kubelet refers to its node by name, too.
            InvolvedObject::Node => json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node}),
            InvolvedObject::Pod { namespace, name, uid } => {
                json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid})
            }
        };
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace()},
            "involvedObject": involved,
            "type": if self.is_warning { "Warning" } else { "Normal" },
            "reason": self.reason,
            "message": self.message,
            "source": {"component": COMPONENT, "host": node},
            "reportingComponent": COMPONENT,
            "reportingInstance": node,
            "firstTimestamp": api_time::format(first),
            "lastTimestamp": api_time::format(last),
            "count": count,
        })
    }
}
