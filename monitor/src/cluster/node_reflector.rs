//! Watches the node's own object: whether it is cordoned, drained or updated.

use std::sync::Arc;

use serde::Deserialize;
use tokio::time::Instant;

use crate::units::Monotonic;
use crate::workloads::json_defaults::{entries_of, is_present, list, or_default};

use super::api_answer::Refusal;
use super::api_state::{Event, NodeFacts};
use super::context::Context;
use super::maintenance::{self, Marks, Taint};
use super::reflector::{self, Reflector};

/// Watches for ever.
pub(super) async fn watch(context: &Context) {
    let mut node = NodeReflector { context: context.clone(), listed: None, facts: NodeFacts::default() };
    reflector::run(context, &mut node).await;
}

struct NodeReflector {
    context: Context,
    /// While a list is read: the node, once the list has named it.
    listed: Option<Option<NodeFacts>>,
    facts: NodeFacts,
}

impl NodeReflector {
    fn set(&mut self, facts: NodeFacts) {
        if facts != self.facts {
            self.facts = facts.clone();
            self.context.reporter.with(|view| view.node = Arc::new(facts));
            self.context.reporter.report(Event::Node);
        }
    }
}

impl Reflector for NodeReflector {
    const PATH: &'static str = "/api/v1/nodes";
    const IS_SMALL: bool = true;

    fn field_selector(&self) -> String {
        format!("metadata.name={}", self.context.node_name)
    }

    fn begin(&mut self) {
        self.listed = Some(None);
    }

    fn listed(&mut self, object: &[u8]) {
        self.listed = Some(read(object).map(|(facts, _)| facts));
    }

    fn end(&mut self) {
        match self.listed.take().flatten() {
            Some(facts) => self.set(facts),
            None => {
                let name = &self.context.node_name;
                let reason =
                    format!("the API server has no node {name}; set its name by kubernetes.nodeName or --node-name");
                self.set(NodeFacts { degradation: Some(reason), ..NodeFacts::default() });
            }
        }
    }

    fn put(&mut self, object: &str) -> Option<String> {
        let (facts, version) = read(object.as_bytes())?;
        self.set(facts);
        Some(version)
    }

    fn remove(&mut self, object: &str) -> Option<String> {
        let (_, version) = read(object.as_bytes())?;
        let maintenance = Some("its object was deleted".to_owned());
        self.set(NodeFacts { maintenance, ..self.facts.clone() });
        Some(version)
    }

    fn answered(&mut self) {
        // An incomplete list confirms nothing.
        if self.listed.is_none() {
            let now = Monotonic::now();
            self.context.reporter.with(|view| view.node_as_of = Some(now));
        }
    }

    fn failed(&mut self, refusal: &Refusal, times: u32) {
        // The pods' reflector reports a server that does not answer.
        if refusal.status.is_some_and(|status| status.is_client_error()) && times > 1 {
            let degradation = Some(refusal.reason.clone());
            self.set(NodeFacts { degradation, ..self.facts.clone() });
        }
    }

    fn due(&self) -> Option<Instant> {
        None
    }

    fn publish(&mut self) {}

    async fn outdated(&mut self) {
        std::future::pending::<()>().await;
    }
}

/// Returns the needed fields of a node and its resource version.
fn read(object: &[u8]) -> Option<(NodeFacts, String)> {
    let Wire { metadata, spec } = serde_json::from_slice(object).ok()?;
    let marks = Marks {
        is_being_deleted: metadata.deletion_timestamp,
        is_unschedulable: spec.unschedulable,
        taints: spec.taints,
        annotations: metadata.annotations,
    };
    let facts = NodeFacts { uid: metadata.uid, maintenance: maintenance::reason(&marks), degradation: None };
    Some((facts, metadata.resource_version))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    #[serde(deserialize_with = "or_default")]
    uid: String,
    #[serde(deserialize_with = "or_default")]
    resource_version: String,
    #[serde(deserialize_with = "is_present")]
    deletion_timestamp: bool,
    #[serde(deserialize_with = "annotations")]
    annotations: Vec<(String, String)>,
}

fn annotations<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    entries_of(deserializer, |key: &String| maintenance::ANNOTATIONS.contains(&key.as_str()))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    unschedulable: bool,
    #[serde(deserialize_with = "list")]
    taints: Vec<Taint>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_without_unneeded_fields() {
        let json = |spec: &str| {
            format!(
                r#"{{"metadata": {{"name": "n", "uid": "u", "resourceVersion": "5", "labels": {{"a": "b"}}}}, "spec": {spec},
                    "status": {{"images": [{{"names": ["x"]}}]}}}}"#
            )
        };
        let (facts, version) = read(json("null").as_bytes()).unwrap();
        assert_eq!((facts.uid.as_str(), version.as_str(), facts.maintenance), ("u", "5", None));
        let (facts, _) = read(json(r#"{"unschedulable": true, "taints": null}"#).as_bytes()).unwrap();
        assert!(facts.maintenance.is_some());
    }
}
