//! The node's conditions and taints.

use tokio::sync::watch;

use crate::config::KubernetesOptions;

use super::thread::Context;

/// What the node's conditions are to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeStatus {
    /// Each condition that the agent knows.
    pub conditions: Vec<WantedCondition>,
    /// Whether taints may be set: not in observe mode.
    pub may_taint: bool,
}

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCondition {
    /// Its standard name: `MemoryPressure`.
    pub kind: String,
    /// Whether it holds; nothing while that is not known.
    pub status: Option<bool>,
    /// One CamelCase word.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Keeps them so, until nobody can say any more what they are to be; then takes them away.
pub(super) async fn keep(
    _context: &Context,
    mut wanted: watch::Receiver<NodeStatus>,
    _options: watch::Receiver<KubernetesOptions>,
) {
    while wanted.changed().await.is_ok() {}
}
