//! The agent itself: its configuration, what it receives from the kernel, and what it lacks.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Agent {
    pub version: String,
    /// The last commit that changed the agent's sources. Absent where it was not built by `cargo xtask`.
    pub commit: Option<String>,
    pub node: String,
    /// The kernel's release, for example `6.12.0`.
    pub kernel: String,
    /// `v1` or `v2`.
    pub cgroup: String,
    /// `observe` or `enforce`.
    pub mode: String,
    /// `corrected` or `kubelet`: the figure of available memory that is compared with thresholds.
    pub semantics: String,
    /// The pool whose fields are in force, if the configuration has pools. Empty if the node is in none.
    pub pool: Option<String>,
    /// Absent for a program that measured the node without an agent.
    pub uptime_seconds: Option<f64>,
    pub configuration: Configuration,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    /// Absent if the defaults are in force.
    pub file: Option<String>,
    /// As in the metric `config_hash`, in hexadecimal digits.
    pub hash: Option<String>,
    /// Since when this configuration is in force.
    pub since: Option<Timestamp>,
    /// Why the file, when it was read last, could not be used. The configuration before it stays in force.
    pub refused: Option<String>,
    /// Fields of the file that need a restart of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart_needed: Vec<String>,
    /// What each pattern in it matches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patterns: Vec<Pattern>,
}

/// What a pattern of the configuration matches on this node.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Pattern {
    /// `protected` or `evictions.services`.
    pub field: String,
    pub pattern: String,
    /// The number of workloads that match.
    pub matches: usize,
    /// The first of them.
    pub examples: Vec<String>,
    /// Why none matches, as far as that can be told.
    pub hint: Option<String>,
}

/// The source of one figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    /// For example `memory.available` or `oom_kills`.
    pub figure: String,
    /// `ebpf`, `psi`, `kmsg`, `polling` or `none`.
    pub source: String,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    pub name: String,
    pub attached: bool,
    /// Why it is not attached.
    pub reason: Option<String>,
}

/// A capability that is missing.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Degradation {
    /// As in the metric `capability_missing`.
    pub capability: String,
    /// The missing capability and the consequence.
    pub sentence: String,
    /// The remedy. Absent where nothing can be done: the headline then ignores the degradation.
    pub mend: Option<String>,
}

impl Degradation {
    /// The capability that is missing while the configuration file is refused, or needs a restart.
    pub const CONFIGURATION: &str = "configuration";
}
