//! The conditions and taints that the node shall have.

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

/// A taint that follows from a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTaint {
    /// The condition's standard name.
    pub kind: String,
    pub effect: Effect,
}

/// What a taint does to pods that do not tolerate it, as Kubernetes defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Effect {
    /// Returns the name in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}
