//! The parts from which an agent is built.

use crate::actions::{Actions, KeptState};
use crate::config::MonitorConfig;
use crate::eviction::Layout;
use crate::eviction::decider::{Decider, Memory, Pace, Rules};
use crate::report::reporter::Outlets;
use crate::report::{Recorder, Reporter};
use crate::sensors::Sensors;

use super::reload::{self, Reload};
use super::{Agent, LastTimes};

#[derive(Debug)]
pub struct Parts {
    pub config: MonitorConfig,
    pub sensors: Sensors,
    pub actions: Actions,
    /// The publications of the HTTP server.
    pub outlets: Outlets,
    pub recorder: Recorder,
    /// The file with what the decider remembers over a restart, and what it had.
    pub kept: (KeptState, Memory),
    /// The source of new configurations.
    pub reload: Reload,
}

impl Agent {
    pub fn new(parts: Parts) -> Self {
        let Parts { config, sensors, actions, outlets, recorder, kept: (kept, memory), reload } = parts;
        let config = reload::for_the_loop(config);
        let mut decision = Decider::remembering(memory);
        decision.arm(Rules { policy: &config.policy, pace: Pace::Kubelet }, Layout::default());
        let cluster = &actions.cluster;
        let node_name = cluster.is_there().then(|| cluster.view().node_name);
        let reporter = Reporter::new(outlets, recorder, node_name);
        Self { config, sensors, decision, actions, reporter, reload, kept, last: LastTimes::default() }
    }
}
