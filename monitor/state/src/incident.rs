//! Past incidents, one line each. `/incidents/ID` has the whole record.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct IncidentLine {
    pub id: String,
    /// `OomKill` or `Eviction`.
    pub kind: String,
    pub time: Timestamp,
    /// The event in one sentence.
    pub summary: String,
    /// `enforce` or `observe`.
    pub mode: Option<String>,
    pub namespace: Option<String>,
    pub pod: Option<String>,
    /// The outcome of an eviction: `underway`, `gone`, `failed` or `observed`.
    pub outcome: Option<String>,
    /// Further incidents of the workload for which this one stands.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub repeated: usize,
}
