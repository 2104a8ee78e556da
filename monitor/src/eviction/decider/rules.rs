//! The rules of a decision: the policy, and how fast one decision may follow another.

use serde::{Deserialize, Serialize};

use crate::config::kubernetes_options::EvictionMethods;
use crate::config::{EvictionLimits, Mode, MonitorConfig, Policy};

/// The rules of a decision. They stay the same until the configuration changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rules<'a> {
    pub policy: &'a Policy,
    pub pace: Pace,
}

/// How fast one eviction may follow another, and what the decider asks for before one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// One synchronization of a kubelet (`eviction-semantics.md` §3). It evicts at most one pod for a threshold, waits for nothing, and
    /// has no budget.
    Kubelet,
    /// The candidates of one moment, ranked as the agent would rank them with no eviction under way.
    Ranking,
    /// The agent, with cool-downs, a budget, proactive reclaim, and confirmation by a second sample.
    Agent(AgentRules),
}

/// The rules that the agent's configuration adds to the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRules {
    pub mode: Mode,
    pub limits: EvictionLimits,
    /// Which API calls evict a pod.
    pub methods: EvictionMethods,
    /// Whether soft thresholds wait while the node is in maintenance.
    pub defers_soft: bool,
}

impl AgentRules {
    pub fn of(config: &MonitorConfig) -> Self {
        Self {
            mode: config.mode,
            limits: config.evictions,
            methods: config.kubernetes.evictions,
            defers_soft: config.kubernetes.defer_soft_in_maintenance,
        }
    }
}

/// [`Rules`] as a recorded trace carries them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct OwnedRules {
    pub policy: Policy,
    pub pace: Pace,
}

impl OwnedRules {
    pub fn borrow(&self) -> Rules<'_> {
        Rules { policy: &self.policy, pace: self.pace }
    }
}

impl<'a> Rules<'a> {
    /// Returns the rules by which the agent evicts.
    pub fn of_agent(config: &'a MonitorConfig) -> Self {
        Self { policy: &config.policy, pace: Pace::Agent(AgentRules::of(config)) }
    }

    pub(super) fn agent(&self) -> Option<AgentRules> {
        match self.pace {
            Pace::Kubelet | Pace::Ranking => None,
            Pace::Agent(agent) => Some(agent),
        }
    }

    /// Returns whether candidates that would free too little are passed over. A kubelet evicts the first of its ranking in any case.
    pub(super) fn weighs_benefit(&self) -> bool {
        self.pace != Pace::Kubelet
    }
}
