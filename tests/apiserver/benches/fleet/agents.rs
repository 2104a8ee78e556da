//! The hollow agents: the API clients that an agent has, two threads for each node.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use node_pressure_monitor::cluster::events::InvolvedObject;
use node_pressure_monitor::cluster::node_digest::NearestThreshold;
use node_pressure_monitor::cluster::status::{Effect, WantedCondition, WantedTaint};
use node_pressure_monitor::cluster::{Access, Cluster, EventRequest, Intent, NodeDigest, NodeStatus, State};
use node_pressure_monitor::config::KubernetesOptions;
use node_pressure_monitor::config::kubernetes_options::EvictionMethod;
use node_pressure_monitor::eviction::conditions::RECLAIM_EVENT;
use node_pressure_monitor::units::Monotonic;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::{sleep, sleep_until};

use super::nodes::Node;
use super::traffic;

/// Open files of one agent and of the server's end of its connections. 16 were measured; a connection that is made again needs two more.
const FILES_OF_AGENT: u64 = 19;
const FILES_OF_PROCESS: u64 = 500;
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(500);
/// The time for an agent to remove its conditions and its Lease.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Raises the limit of open files, if it is too low for so many agents.
pub fn raise_open_files(agents: u32) -> Result<()> {
    let needed = FILES_OF_PROCESS + u64::from(agents) * FILES_OF_AGENT;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let maximum = maximum.map(|maximum| maximum.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).with_context(|| {
        format!("the limit of open files cannot be raised to {needed}; run as root, or use fewer nodes")
    })
}

/// One agent for each node, in the nodes' order.
#[derive(Debug)]
pub struct Agents(Vec<Cluster>);

impl Agents {
    /// Starts the agents evenly over a time.
    pub async fn start(kubeconfig: &Path, nodes: &[Node], over: Duration) -> Result<Self> {
        let begun = tokio::time::Instant::now();
        let mut clusters = Vec::new();
        for (place, node) in nodes.iter().enumerate() {
            sleep_until(begun + over.mul_f64(traffic::share(place, nodes.len()))).await;
            let access = Access::by_kubeconfig(kubeconfig.to_owned(), &node.name);
            let cluster = Cluster::start_with(KubernetesOptions::default(), Some(access))
                .with_context(|| format!("cannot start the agent of {}", node.name))?;
            cluster.publish(status(false));
            cluster.publish_digest(digest());
            clusters.push(cluster);
        }
        Ok(Self(clusters))
    }

    /// Waits until every agent has read its pods and its node.
    pub async fn wait_until_up(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let down = self.0.iter().filter(|cluster| !is_up(cluster)).count();
            if down == 0 {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let view = self.0.iter().find(|cluster| !is_up(cluster)).map(Cluster::view);
                bail!(
                    "{down} agents are not connected after {PATIENCE:?}; the first is {:?}",
                    view.map(|view| view.state)
                );
            }
            sleep(LOOK).await;
        }
    }

    /// Begins or ends memory pressure. At its begin the agent also evicts a pod, and sends an event about the node.
    pub fn set_pressure(&self, number: usize, node: &Node, holds: bool) -> Result<()> {
        let cluster = self.0.get(number).context("no such agent")?;
        cluster.publish(status(holds));
        if holds {
            cluster.send_event(EventRequest {
                object: InvolvedObject::Node,
                is_warning: true,
                reason: RECLAIM_EVENT.to_owned(),
                message: "Attempting to reclaim memory".to_owned(),
            })?;
            let intent = intent(node);
            let begun = cluster.ledger().begin(&intent);
            ensure!(begun.is_ok(), "the ledger of {} is full", node.name);
            cluster.evict(intent)?;
        }
        Ok(())
    }

    /// Stops the agents, which remove their conditions, taints and Leases.
    pub fn stop(self) {
        self.0.into_iter().for_each(|cluster| cluster.stop(STOP_TIME));
    }
}

fn is_up(cluster: &Cluster) -> bool {
    let view = cluster.view();
    view.state == State::Up && view.node_as_of.is_some()
}

/// Returns the status that an agent which may act publishes, with memory pressure or without.
fn status(holds: bool) -> NodeStatus {
    let condition = |kind: &str, status, reason: &str, message: &str| WantedCondition {
        kind: kind.to_owned(),
        status: Some(status),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    let memory = match holds {
        true => {
            condition("MemoryPressure", true, "NodeHasInsufficientMemory", "node has insufficient memory available")
        }
        false => condition("MemoryPressure", false, "NodeHasSufficientMemory", "node has sufficient memory available"),
    };
    let disk = condition("DiskPressure", false, "NodeHasNoDiskPressure", "node has no disk pressure");
    let pids = condition("PIDPressure", false, "NodeHasSufficientPID", "node has sufficient PID available");
    let taint = WantedTaint { kind: "MemoryPressure".to_owned(), effect: Effect::PreferNoSchedule };
    NodeStatus {
        conditions: vec![memory, disk, pids],
        taints: holds.then_some(taint).into_iter().collect(),
        may_act: true,
    }
}

fn digest() -> NodeDigest {
    let nearest = NearestThreshold {
        threshold: "memory.available<100Mi".to_owned(),
        available: 6 << 30,
        value: 100 << 20,
        seconds: None,
    };
    NodeDigest { mode: "enforce", nearest: Some(nearest), ..NodeDigest::default() }
}

/// Returns an eviction for a hard threshold, by the default method.
fn intent(node: &Node) -> Intent {
    Intent {
        uid: node.pod_uid.clone(),
        namespace: node.namespace.clone(),
        name: node.pod.clone(),
        method: EvictionMethod::Fail,
        is_certain: true,
        grace_seconds: 1,
        cause: "memory.available".to_owned(),
        message: "The node was low on resource: memory. Threshold quantity: 100Mi, available: 96Mi. ".to_owned(),
        annotations: vec![("starved_resource".to_owned(), "memory".to_owned())],
        wants_mark: true,
        wants_event: true,
        frees_disk: false,
        condition: Some("MemoryPressure".to_owned()),
        decided_at: jiff::Timestamp::now(),
        decided_mono_ns: Monotonic::now().0,
    }
}
