//! The parts from which an agent is built.

use crate::actions::Evictor;
use crate::actions::oom_score::Auditor;
use crate::actions::reclaim::ReclaimFirst;
use crate::actions::stop::OrderQueue;
use crate::cluster::Cluster;
use crate::config::MonitorConfig;
use crate::eviction::Layout;
use crate::eviction::decider::{Decider, Pace, Rules};
use crate::report::reporter::Outlets;
use crate::report::{Recorder, Reporter};
use crate::runtime::Runtime;
use crate::sensors::Sensors;

use super::cluster::ControlPlaneMemory;
use super::evictions::Asking;
use super::last::{Audits, Last};
use super::local_storage::LocalStorage;
use super::orders::Orders;
use super::pending::Pending;
use super::proactive_reclaim::ProactiveReclaim;
use super::reload::{self, Reload};
use super::{Actions, Agent};

/// The parts of an agent.
#[derive(Debug)]
pub struct Parts {
    /// The configuration.
    pub config: MonitorConfig,
    /// The sensors.
    pub sensors: Sensors,
    /// Evictions.
    pub evictor: Evictor,
    /// The container runtime.
    pub runtime: Runtime,
    /// The Kubernetes control plane.
    pub cluster: Cluster,
    /// Queue of orders from evictions to the runtime.
    pub queue: OrderQueue,
    /// Whether the agent tries `memory.reclaim` before an eviction.
    pub reclaim: ReclaimFirst,
    /// The publications of the HTTP server.
    pub outlets: Outlets,
    /// The recorder of incidents.
    pub recorder: Recorder,
    /// The source of new configurations.
    pub reload: Reload,
}

impl Agent {
    /// Builds an agent from its parts.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { config, sensors, evictor, runtime, cluster, queue, reclaim, outlets, recorder, reload } = parts;
        let config = reload::for_the_loop(config);
        let mut decision = Decider::default();
        decision.arm(Rules { policy: &config.policy, pace: Pace::Kubelet }, Layout::default());
        let actions = Actions {
            evictor,
            ended: Vec::new(),
            collected: None,
            orders: Orders::on(queue),
            asking: Asking::default(),
            auditor: Auditor::default(),
            audits: Audits::default(),
            reclaim: ProactiveReclaim::new(reclaim),
            pending: Pending::default(),
            local: LocalStorage::default(),
        };
        let node_name = cluster.is_there().then(|| cluster.view().node_name);
        let reporter = Reporter::new(outlets, recorder, node_name);
        let (control_plane, last) = (ControlPlaneMemory::default(), Last::default());
        Self { config, sensors, decision, actions, reporter, runtime, cluster, control_plane, reload, last }
    }
}
