//! The conditions and taints that the node shall have.

use crate::units::named_enum;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeStatus {
    /// All conditions of the agent. Empty: the agent knows none yet, and the node's conditions stay.
    pub conditions: Vec<WantedCondition>,
    pub taints: Vec<WantedTaint>,
    /// False in observe mode: then there are no taints, and no conditions under standard names, since others act on both.
    pub may_act: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCondition {
    /// The standard name: `MemoryPressure`.
    pub kind: String,
    /// None: not known yet.
    pub status: Option<bool>,
    /// One CamelCase word.
    pub reason: String,
    /// Best without figures, since each change is written.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTaint {
    /// The condition's standard name.
    pub kind: String,
    pub effect: Effect,
}

named_enum! {
    /// The effect of a taint on pods that do not tolerate it, by its name in the API.
    pub enum Effect {
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
        NoExecute = "NoExecute",
    }
}
