//! What an agent is put together from.

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

/// The parts of an agent, each made by who knows how.
#[derive(Debug)]
pub struct Parts {
    /// What was asked for.
    pub config: MonitorConfig,
    /// What is measured.
    pub sensors: Sensors,
    /// Evictions.
    pub evictor: Evictor,
    /// The container runtime.
    pub runtime: Runtime,
    /// The Kubernetes control plane.
    pub cluster: Cluster,
    /// Where evictions leave what the runtime is to do.
    pub queue: OrderQueue,
    /// Whether memory is asked for before.
    pub reclaim: ReclaimFirst,
    /// What the HTTP server shows.
    pub outlets: Outlets,
    /// What is kept of incidents.
    pub recorder: Recorder,
    /// Where new configurations come from.
    pub reload: Reload,
}

impl Agent {
    /// Puts the parts together.
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
