//! Evictions under way, and what limits further ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Evictions {
    /// Evictions that `evictions.maxPerMinute` allows at present.
    pub budget_left: Option<usize>,
    /// `evictions.maxPerMinute`.
    pub budget_per_minute: Option<usize>,
    /// Seconds until the next eviction is allowed. Absent if one is allowed now.
    pub cool_down_seconds: Option<f64>,
    /// Why evictions wait at present.
    pub waits_because: Option<String>,
    pub under_way: Vec<UnderWay>,
}

/// An eviction whose workload has not ended yet.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct UnderWay {
    pub workload: String,
    pub display: String,
    pub signal: String,
    /// The present step of the eviction, for example `SIGTERM sent` or `killed, its memory is awaited`.
    pub step: String,
    pub seconds: f64,
}
