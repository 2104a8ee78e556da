//! What an agent is put together from.

use crate::actions::Evictor;
use crate::actions::oom_score::Auditor;
use crate::actions::reclaim::ReclaimFirst;
use crate::actions::stop::Desk;
use crate::cluster::Cluster;
use crate::config::MonitorConfig;
use crate::eviction::Layout;
use crate::eviction::deadline::FallRate;
use crate::eviction::decider::{Decider, Pace, Rules};
use crate::kernel::Kernel;
use crate::node::psi_trigger::PsiTrigger;
use crate::node::{MemoryReader, RootUsage};
use crate::report::reporter::Outlets;
use crate::report::{Recorder, Reporter};
use crate::runtime::Runtime;
use crate::workloads::WorkloadTree;

use super::cluster::Told;
use super::disks::Disks;
use super::evictions::Asking;
use super::figures::Figures;
use super::gentle::Gentle;
use super::kills::Kills;
use super::ladder::Ladder;
use super::last::{Audits, Last, Outside, Scan};
use super::local_storage::LocalStorage;
use super::measured::{Measured, Steered};
use super::orders::Orders;
use super::pending::Pending;
use super::reload::{self, Reload};
use super::signals::Signals;
use super::{Actions, Agent, EVENTS_PER_WAKEUP, OOM_KILLS_EXPECTED, Sensors};

/// The parts of an agent, each made by who knows how.
#[derive(Debug)]
pub struct Parts {
    /// What was asked for.
    pub config: MonitorConfig,
    /// The kernel side, as far as it could be had.
    pub kernel: Kernel,
    /// The doorbell for machines without the kernel side.
    pub psi: Option<PsiTrigger>,
    /// Who tells of OOM kills.
    pub kills: Kills,
    /// The node's memory.
    pub memory: MemoryReader,
    /// Process ids and the filesystems.
    pub signals: Signals,
    /// The workloads.
    pub tree: WorkloadTree,
    /// Evictions.
    pub evictor: Evictor,
    /// Limits of local storage.
    pub local: LocalStorage,
    /// Who measures the disks, if somebody does.
    pub measured: Option<Measured>,
    /// The container runtime.
    pub runtime: Runtime,
    /// The Kubernetes control plane.
    pub cluster: Cluster,
    /// Where evictions leave what the runtime is to do.
    pub desk: Desk,
    /// Whether memory is asked for before.
    pub reclaim: ReclaimFirst,
    /// What the HTTP server shows.
    pub outlets: Outlets,
    /// How fast memory can vanish.
    pub rate: FallRate,
    /// What is kept of incidents.
    pub recorder: Recorder,
    /// Where new configurations come from.
    pub reload: Reload,
}

impl Agent {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts {
            config,
            kernel,
            psi,
            kills,
            memory,
            signals,
            tree,
            evictor,
            local,
            measured,
            runtime,
            cluster,
            desk,
            reclaim,
            outlets,
            rate,
            recorder,
            reload,
        } = parts;
        let config = reload::for_the_loop(config);
        let mut decision = Decider::default();
        decision.arm(Rules { policy: &config.policy, pace: Pace::Kubelet }, Layout::default());
        let sensors = Sensors {
            figures: Figures::new(&config, tree.hierarchy()),
            disks: Disks::new(&config.proc_root),
            ladder: Ladder::default(),
            steered: Steered::default(),
            outside: Outside::default(),
            events: Vec::with_capacity(EVENTS_PER_WAKEUP),
            oom_kills: Vec::with_capacity(OOM_KILLS_EXPECTED),
            sample: None,
            root_usage: RootUsage::default(),
            others: Vec::new(),
            unnoted: Vec::new(),
            scan: Scan::default(),
            ring_has_more: false,
            kernel,
            psi,
            memory,
            signals,
            tree,
            measured,
            kills,
            rate,
            local,
        };
        let actions = Actions {
            evictor,
            collected: None,
            orders: Orders::on(desk),
            asking: Asking::default(),
            auditor: Auditor::default(),
            audits: Audits::default(),
            gentle: Gentle::new(reclaim),
            pending: Pending::default(),
        };
        let node_name = cluster.is_there().then(|| cluster.view().node_name);
        let reporter = Reporter::new(outlets, recorder, node_name);
        let (told, last) = (Told::default(), Last::default());
        Self { config, sensors, decision, actions, reporter, runtime, cluster, told, reload, last }
    }
}
