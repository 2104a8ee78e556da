//! The node's conditions and taints.
//!
//! Written at once when they change, confirmed once in a while, taken away when the agent stops. What others have on the node is theirs:
//! conditions are merged by their type, and the list of taints is only written where nobody has changed the node since it was read.

pub mod node_object;
pub mod status_patches;
mod status_writer;

use tokio::sync::watch;

use crate::config::KubernetesOptions;

use super::api_threads::{Context, ended};

/// What the node's conditions and taints are to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeStatus {
    /// Each condition that the agent knows; none: it does not know yet, and what is there stays.
    pub conditions: Vec<WantedCondition>,
    /// Taints, by the condition that they follow from.
    pub taints: Vec<WantedTaint>,
    /// Whether others may be made to act: not in observe mode. Without it there are no taints, and no conditions under standard names.
    pub may_act: bool,
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
    /// For people. Best without figures: each change of it is written.
    pub message: String,
}

/// A taint that follows from a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTaint {
    /// The condition's standard name.
    pub kind: String,
    /// What it does.
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// New ones are kept away.
    NoSchedule,
    /// New ones are kept away where there is another node for them.
    PreferNoSchedule,
    /// Those that run are evicted, too.
    NoExecute,
}

impl Effect {
    /// As the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// Keeps them so, until nobody can say any more what they are to be; then takes them away.
pub(super) async fn keep(
    context: &Context,
    mut wanted: watch::Receiver<NodeStatus>,
    mut options: watch::Receiver<KubernetesOptions>,
) {
    let mut keeper = status_writer::StatusWriter::new(context);
    let end = ended(wanted.clone());
    tokio::pin!(end);
    loop {
        let (status, asked_for) = (wanted.borrow_and_update().clone(), options.borrow_and_update().clone());
        // A request that hangs must not keep an agent that stops from its last words.
        let wait = tokio::select! {
            biased;
            () = &mut end => break,
            wait = keeper.settle(&status, &asked_for) => wait,
        };
        let changed = tokio::select! {
            changed = wanted.changed() => changed,
            changed = options.changed() => changed,
            () = tokio::time::sleep(wait) => continue,
        };
        if changed.is_err() {
            break;
        }
        // A change is worth another try at once, but not many changes many tries.
        tokio::time::sleep(keeper.pause()).await;
    }
    keeper.remove().await;
}
