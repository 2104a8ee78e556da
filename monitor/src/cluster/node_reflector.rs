//! Watches the node's own object: whether it is cordoned, drained or updated.

use std::sync::Arc;

use crate::units::Monotonic;

use super::api_answer::Refusal;
use super::api_client::Context;
use super::api_state::{Event, NodeFacts};
use super::maintenance::{Metadata, NodeMarks};
use super::reflector::{self, Reflector};

pub(super) async fn watch(context: &Context) {
    let mut node = NodeReflector { context: context.clone(), listed: None, facts: NodeFacts::default() };
    reflector::run(context, &mut node).await;
}

struct NodeReflector {
    context: Context,
    /// While a list is read: the node, once the list has named it.
    listed: Option<Option<(NodeFacts, String)>>,
    facts: NodeFacts,
}

impl NodeReflector {
    fn take(&mut self, (facts, version): (NodeFacts, String)) {
        self.set(facts);
        self.context.node_version.send_replace(version);
    }

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
        self.listed = Some(read(object));
    }

    fn end(&mut self) {
        match self.listed.take().flatten() {
            Some(node) => self.take(node),
            None => {
                let name = &self.context.node_name;
                let reason =
                    format!("the API server has no node {name}; set its name by kubernetes.nodeName or --node-name");
                self.set(NodeFacts { degradation: Some(reason), ..NodeFacts::default() });
            }
        }
    }

    fn put(&mut self, object: &str) -> Option<String> {
        let node = read(object.as_bytes())?;
        let version = node.1.clone();
        self.take(node);
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
}

/// Returns the needed fields of a node and its resource version.
fn read(object: &[u8]) -> Option<(NodeFacts, String)> {
    let node: NodeMarks = serde_json::from_slice(object).ok()?;
    let maintenance = node.maintenance();
    let Metadata { uid, resource_version, labels, .. } = node.metadata;
    Some((NodeFacts { uid, labels, maintenance, degradation: None }, resource_version))
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
