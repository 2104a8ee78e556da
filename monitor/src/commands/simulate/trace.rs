//! One line of a trace: the state of a node at one time.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use crate::eviction::Layout;
use crate::units::{Moment, Quantity};
use crate::workloads::json_defaults::or_default;
use crate::workloads::pod::{Pods, ResourceList};
use crate::workloads::{Pod, Summary};

use super::super::input::{Fault, parse};

/// Describes the format of a line in the error about a malformed line.
pub const EXPECTED: &str = r#"a line is one JSON object {"time", "node", "summary", "summaryAfterGarbageCollection", "pods"}, see simulate --help"#;

/// A line of a trace. All fields but the time are optional, and null counts as missing.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TraceLine<'a> {
    #[serde(deserialize_with = "or_default")]
    pub time: Time,
    #[serde(deserialize_with = "or_default")]
    node: Node,
    #[serde(deserialize_with = "or_default")]
    pub summary: Summary,
    /// Missing if garbage collection freed nothing.
    pub summary_after_garbage_collection: Option<Summary>,
    /// Parsed separately, because the pods are mostly the same on consecutive lines and need no second parse.
    #[serde(borrow)]
    pods: Option<&'a RawValue>,
    /// A turn that an agent recorded, which is replayed step by step.
    #[serde(borrow)]
    turn: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Node {
    #[serde(deserialize_with = "or_default")]
    capacity: ResourceList,
    #[serde(deserialize_with = "or_default")]
    dedicated_image_fs: bool,
    #[serde(deserialize_with = "or_default")]
    split_image_fs: bool,
}

/// A time as written, and its instant.
#[derive(Debug, Default)]
pub struct Time {
    pub text: String,
    pub at: Moment,
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?.into_owned();
        let at: jiff::Timestamp = text.parse().map_err(|error| {
            D::Error::custom(format!("{text:?} is not a time of RFC 3339, such as 2026-01-01T00:00:10Z: {error}"))
        })?;
        Ok(Self { at: Moment(at.as_nanosecond()), text })
    }
}

impl<'a> TraceLine<'a> {
    pub fn parse(line: &'a str) -> Result<Self, Fault> {
        if !line.trim_ascii_start().starts_with('{') {
            let found = line.trim_ascii_start().chars().next().unwrap_or_default();
            return Err(Fault::whole(format!("expected an object, found {found:?}")));
        }
        let this: Self = parse(line)?;
        if this.time.text.is_empty() {
            return Err(Fault { field: "time".to_owned(), ..Fault::whole("missing") });
        }
        if this.node.split_image_fs && !this.node.dedicated_image_fs {
            let reason = "true without dedicatedImageFs: images can only be apart from writable layers on a filesystem of their own";
            return Err(Fault { field: "node.splitImageFs".to_owned(), ..Fault::whole(reason) });
        }
        Ok(this)
    }

    /// Whether the line holds a turn that an agent recorded.
    pub fn is_recorded(&self) -> bool {
        self.turn.is_some()
    }

    /// Returns the layout of the node's filesystems.
    pub fn layout(&self) -> Layout {
        match (self.node.dedicated_image_fs, self.node.split_image_fs) {
            (false, _) => Layout::Single,
            (true, false) => Layout::DedicatedImageFs,
            (true, true) => Layout::SplitImageFs,
        }
    }

    /// Returns the node's memory in bytes, if known.
    pub fn memory_capacity(&self) -> Option<i64> {
        self.node.capacity.get("memory").map(Quantity::value_bytes).filter(|capacity| *capacity > 0)
    }

    /// Returns the pods as written; empty without pods.
    pub fn pods_text(&self) -> &'a str {
        self.pods.map_or("", RawValue::get)
    }
}

/// Reads the pods of a line.
/// `line` contains `text`, so that an error can name the column.
pub fn pods(text: &str, line: &str) -> Result<Vec<Pod>, Fault> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let within = |fault: Fault| {
        let start = text.as_ptr().addr().saturating_sub(line.as_ptr().addr());
        let dot = if fault.field.is_empty() || fault.field.starts_with('[') { "" } else { "." };
        Fault { column: start + fault.column, field: format!("pods{dot}{}", fault.field), ..fault }
    };
    parse::<Pods>(text).map(|Pods(pods)| pods).map_err(within)
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
