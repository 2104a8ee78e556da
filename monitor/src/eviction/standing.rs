//! Whether and how one candidate is evicted, as far as that is known of the candidate itself.

use serde::{Deserialize, Serialize};

/// The API server, as far as routes depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ControlPlane {
    /// The agent runs without one.
    #[default]
    None,
    /// It answers. `is_read`: it has listed the pods of this node.
    Up { is_read: bool },
    /// It does not answer, or has not been asked yet.
    Down,
}

/// What decides whether and how one candidate is evicted, read only once its turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Standing {
    /// It must not be evicted: the kubelet, the API server or its own specification marks it as critical.
    pub is_critical: bool,
    /// It is a pod.
    pub is_pod: bool,
    /// The API server lists it on this node.
    pub is_known: bool,
    /// `terminationGracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    pub control_plane: ControlPlane,
}
