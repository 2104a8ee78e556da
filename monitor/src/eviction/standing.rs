//! The facts about one candidate that decide whether and how it is evicted.

use serde::{Deserialize, Serialize};

/// The state of the API server, as far as routes depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ControlPlane {
    /// The agent runs without an API server.
    #[default]
    None,
    /// The API server answers. `is_read` tells whether it has listed the pods of this node.
    Up { is_read: bool },
    /// The API server does not answer, or the agent has not asked it yet.
    Down,
}

/// The standing of one candidate. It is read only when the candidate is about to be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Standing {
    /// The candidate must not be evicted: the kubelet, the API server or its own specification marks it as critical.
    pub is_critical: bool,
    pub is_pod: bool,
    /// The API server lists the pod on this node.
    pub is_known: bool,
    /// The pod's `terminationGracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    pub control_plane: ControlPlane,
}
