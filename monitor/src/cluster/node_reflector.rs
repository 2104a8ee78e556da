//! Watches the node's own object: whether it is cordoned, drained or updated.

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::KubeletVersion;
use crate::units::Monotonic;

use super::api_answer::Refusal;
use super::api_client::Context;
use super::api_state::{Event, NodeFacts};
use super::maintenance::{Metadata, NodeMarks};
use super::reflector::{self, Reflector};
use super::status::node_object::NodeObject;

pub(super) async fn watch(context: &Context) {
    let (context, restores) = (context.clone(), context.restores.subscribe());
    let mut node = NodeReflector { context, restores, listed: None, facts: NodeFacts::default() };
    reflector::run(&node.context.clone(), &mut node).await;
}

struct NodeReflector {
    context: Context,
    /// Changes when the pods' reflector finds that the API server's store was restored from a backup.
    restores: watch::Receiver<u32>,
    /// While a list is read: the node, once the list has named it.
    listed: Option<Option<Read>>,
    facts: NodeFacts,
}

/// The content of a node's object.
struct Read {
    facts: NodeFacts,
    version: String,
    /// With the conditions and taints; none: they cannot be read.
    object: Option<Arc<NodeObject>>,
}

impl NodeReflector {
    fn take(&mut self, Read { facts, object, .. }: Read) {
        self.set(facts);
        // Without the object the task that writes conditions reads the node itself.
        if object.is_some() {
            self.context.node.send_replace(object);
        }
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
        let version = node.version.clone();
        self.take(node);
        Some(version)
    }

    fn remove(&mut self, object: &str) -> Option<String> {
        let version = read(object.as_bytes())?.version;
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

    async fn outdated(&mut self) {
        if self.restores.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn failed(&mut self, refusal: &Refusal, times: u32) {
        // The pods' reflector reports a server that does not answer. After the second refusal the node is listed, which may succeed.
        if refusal.status.is_some_and(|status| status.is_client_error()) && times > 2 {
            let degradation = Some(refusal.reason.clone());
            self.set(NodeFacts { degradation, ..self.facts.clone() });
        }
    }
}

/// Reads the needed fields of a node.
fn read(object: &[u8]) -> Option<Read> {
    let node: NodeMarks = serde_json::from_slice(object).ok()?;
    let maintenance = node.maintenance();
    let kubelet = KubeletVersion::parse(&node.status.node_info.kubelet_version);
    let Metadata { uid, resource_version, labels, .. } = node.metadata;
    let facts = NodeFacts { uid, labels, kubelet, maintenance, degradation: None };
    let object = serde_json::from_slice(object).ok().map(Arc::new);
    Some(Read { facts, version: resource_version, object })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read_without_unneeded_fields() {
        let json = |spec: &str| {
            format!(
                r#"{{"metadata": {{"name": "n", "uid": "u", "resourceVersion": "5", "labels": {{"a": "b"}}}}, "spec": {spec},
                    "status": {{"images": [{{"names": ["x"]}}], "nodeInfo": {{"kubeletVersion": "v1.37.1"}}}}}}"#
            )
        };
        let node = read(json("null").as_bytes()).unwrap();
        assert_eq!((node.facts.uid.as_str(), node.version.as_str(), node.facts.maintenance), ("u", "5", None));
        assert_eq!(node.facts.kubelet.unwrap().to_string(), "1.37");
        assert_eq!(node.object.unwrap().metadata.resource_version, "5");
        let node = read(json(r#"{"unschedulable": true, "taints": null}"#).as_bytes()).unwrap();
        assert!(node.facts.maintenance.is_some() && node.object.is_some());
        let odd = json(r#"{"unschedulable": true}"#).replace(r#""images": [{"names": ["x"]}]"#, r#""conditions": 7"#);
        let node = read(odd.as_bytes()).unwrap();
        assert!(node.facts.maintenance.is_some() && node.object.is_none());
    }
}
