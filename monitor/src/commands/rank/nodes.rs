//! The API's object `v1.Node`, with the fields that decide what fits on a node.

use serde::Deserialize;

use crate::units::Quantity;
use crate::workloads::json_defaults::{list, or_default};
use crate::workloads::pod::{Metadata, ResourceList};

/// The resources that every node reports.
pub const RESOURCES: [&str; 3] = ["cpu", "memory", "pods"];

#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Nodes(#[serde(deserialize_with = "list")] pub Vec<Node>);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    #[serde(deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    spec: Spec,
    #[serde(deserialize_with = "or_default")]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    unschedulable: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    capacity: ResourceList,
    #[serde(deserialize_with = "or_default")]
    allocatable: ResourceList,
    #[serde(deserialize_with = "list")]
    conditions: Vec<Condition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "or_default")]
    status: String,
}

impl Node {
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// Returns whether the node is cordoned.
    pub fn is_unschedulable(&self) -> bool {
        self.spec.unschedulable
    }

    /// Returns whether the node does not say otherwise, as the descheduler judges it.
    pub fn is_ready(&self) -> bool {
        !self.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status != "True")
    }

    /// Returns what pods may request; zero of a resource that the node does not have.
    pub fn allocatable(&self, resource: &str) -> Quantity {
        self.amounts().get(resource).cloned().unwrap_or_default()
    }

    /// Returns the first needed field that is missing.
    pub fn missing_field(&self) -> Option<String> {
        if self.name().is_empty() {
            return Some("metadata.name".to_owned());
        }
        let missing = RESOURCES.into_iter().find(|resource| self.amounts().get(resource).is_none())?;
        Some(format!("status.allocatable.{missing}"))
    }

    fn amounts(&self) -> &ResourceList {
        let Status { capacity, allocatable, conditions: _ } = &self.status;
        if allocatable.is_empty() { capacity } else { allocatable }
    }
}
