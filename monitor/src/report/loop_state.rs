//! The parts of the loop's state from which reports are drawn.

use crate::config::MonitorConfig;
use crate::eviction::NodeCondition;
use crate::eviction::decider::Decider;
use crate::node::name;
use crate::sensors::Sensors;
use crate::units::Signal;
use crate::workloads::WorkloadUsage;

#[derive(Debug)]
pub struct LoopState<'l> {
    pub config: &'l MonitorConfig,
    pub sensors: &'l mut Sensors,
    pub decision: &'l Decider<WorkloadUsage>,
}

impl LoopState<'_> {
    /// Returns the node's name: that at the API server, or else the configured one or the host's.
    pub fn node_name(&self) -> String {
        let node_name = self.sensors.platform.cluster.view().node_name;
        if node_name.is_empty() { name::of(self.config.kubernetes.node_name.as_deref()) } else { node_name.to_string() }
    }

    /// Returns the conditions that thresholds of this node can raise, and whether they hold.
    pub fn node_conditions(&self) -> impl Iterator<Item = (NodeCondition, bool)> {
        let is_watched = |condition: &NodeCondition| {
            // MemoryPressure is always published.
            *condition == NodeCondition::MemoryPressure
                || self.decision.armed().iter().any(|armed| NodeCondition::of(armed.threshold.signal) == *condition)
        };
        let holds = &self.decision.assessment().conditions;
        NodeCondition::ALL.into_iter().filter(is_watched).map(|condition| (condition, holds.contains(&condition)))
    }

    /// Returns the node conditions in the order of [`NodeCondition::ALL`]: `None` if no threshold raises it, an inner
    /// `None` if no signal behind it is observed.
    pub fn known_conditions(&self) -> [Option<Option<bool>>; NodeCondition::ALL.len()] {
        let mut conditions = [None; NodeCondition::ALL.len()];
        for (condition, holds) in self.node_conditions() {
            let is_known = holds || self.is_observed(condition);
            let place = NodeCondition::ALL.iter().position(|other| *other == condition);
            if let Some(standing) = place.and_then(|place| conditions.get_mut(place)) {
                *standing = Some(is_known.then_some(holds));
            }
        }
        conditions
    }

    fn is_observed(&self, condition: NodeCondition) -> bool {
        let is_of = |signal: Signal| NodeCondition::of(signal) == condition;
        match condition {
            NodeCondition::MemoryPressure => self.sensors.memory.sample().is_some(),
            NodeCondition::DiskPressure | NodeCondition::PidPressure => {
                self.sensors.signals.values().iter().any(|value| is_of(value.signal))
            }
        }
    }
}
