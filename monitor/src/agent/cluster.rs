//! Events and state of the control plane, as the loop uses them.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{CAPABILITY, Event, NodeFacts, State, View};
use crate::report::record::{KnownPods, Record};
use crate::report::{ClusterReport, PodInfo};
use crate::units::{Monotonic, format_go_duration};
use crate::workloads::cgroup_path::{self, Role};
use crate::workloads::{PodSpecs, PodUid, Workload};

use super::Agent;

/// Time limit for removing the node's conditions and taints when the agent stops.
const CLEANUP_LIMIT: Duration = Duration::from_secs(5);
/// Name of the node object's watch in the list of degraded capabilities.
const NODE_CAPABILITY: &str = "node object";

/// Node facts older than this do not defer soft evictions: the maintenance may have ended.
const NODE_FACTS_LIMIT: Duration = Duration::from_secs(600);
/// Soft evictions wait this long for the first node facts while no request was answered.
const FIRST_ANSWER: Duration = Duration::from_secs(60);

/// Upper bound of the pods named in the metrics; more than any node runs.
const MOST_PODS: usize = 1000;

/// State that the loop keeps between events of the control plane.
#[derive(Debug)]
pub(super) struct ControlPlaneMemory {
    node: Arc<NodeFacts>,
    /// When the agent started to query the API server.
    begun: Monotonic,
    /// Whether outdated node facts were reported.
    is_stale_reported: bool,
}

impl Default for ControlPlaneMemory {
    fn default() -> Self {
        Self { node: Arc::default(), begun: Monotonic::now(), is_stale_reported: false }
    }
}

impl Agent {
    /// Stops the threads of the control plane. Runs after the loop.
    pub fn end(self) {
        self.cluster.stop(CLEANUP_LIMIT);
    }

    /// Handles and reports an event of the control plane.
    pub(super) fn handle_cluster_event(&mut self, event: Event) {
        match event {
            Event::State(state) => self.update_state(&state),
            Event::Eviction(settled) => self.handle_settled(settled),
            Event::Degradation { capability, reason } => {
                let effect = "the API server refuses a request";
                self.reporter.set_capability(capability, reason.as_deref(), effect, Monotonic::now());
            }
            Event::Pods => self.update_pods(),
            Event::Node => self.update_node(),
        }
    }

    fn update_state(&mut self, state: &State) {
        self.confirm_cluster();
        if *state == State::Up {
            let pods = self.cluster.view().pods.pods().len();
            self.reporter.report(&Record::ApiServerUp { pods }, Monotonic::now());
        }
    }

    /// Updates the degradation of the API server, with the age of the known pods.
    pub(super) fn confirm_cluster(&mut self) {
        let view = self.cluster.view();
        let reason = match &view.state {
            State::Down { reason, .. } => Some(format!("{reason}; {}", last_known(&view))),
            State::Looking | State::Off | State::Up => None,
        };
        let known = KnownPods { pods: Some(view.pods.pods().len()), age: age(&view), of_file: None };
        let effect = "the API server does not answer";
        self.reporter.set_pod_source(CAPABILITY, reason.as_deref(), effect, known, Monotonic::now());
    }

    fn update_pods(&mut self) {
        let view = self.cluster.view();
        let is_first = !self.sensors.pods.is_from_cluster();
        self.sensors.pods.learn(Arc::clone(&view.pods));
        self.join_pods();
        if is_first {
            let (pods, age) = (view.pods.pods().len(), Some(age(&view).unwrap_or_default()));
            self.reporter.report(&Record::PodsRead { pods, age }, Monotonic::now());
        }
    }

    /// Assigns the pod specs to their cgroups.
    pub(super) fn join_pods(&mut self) {
        let (specs, rules) = (Arc::clone(self.sensors.pods.specs()), self.config.kubernetes.protect.clone());
        self.sensors.workloads.tree_mut().set_pods(specs, rules, self.config.policy.quirks);
    }

    fn update_node(&mut self) {
        let node = self.cluster.view().node;
        let before = std::mem::replace(&mut self.control_plane.node, Arc::clone(&node));
        let now = Monotonic::now();
        let effect = "whether the node is in maintenance is not known";
        self.reporter.set_capability(NODE_CAPABILITY, node.degradation.as_deref(), effect, now);
        if node.maintenance == before.maintenance {
            return;
        }
        if node.maintenance.is_none() {
            self.reporter.forget_deferred();
        }
        let defers = self.config.kubernetes.defer_soft_in_maintenance;
        self.reporter.report(&Record::Maintenance { reason: node.maintenance.as_deref(), defers }, now);
    }

    /// Returns whether soft evictions wait: the node is in maintenance, or the API server has not answered yet.
    pub(super) fn in_maintenance(&mut self, now: Monotonic) -> bool {
        let has_soft = self.config.policy.thresholds.iter().any(|threshold| !threshold.is_hard());
        if !has_soft || !self.config.kubernetes.defer_soft_in_maintenance || !self.cluster.is_there() {
            return false;
        }
        match node_maintenance(&self.cluster.view(), self.control_plane.begun, now) {
            NodeMaintenance::None => false,
            NodeMaintenance::Outdated(age) => {
                let is_soft_met = self.decision.assessment().met.iter().any(|met| !met.is_hard());
                if is_soft_met && !std::mem::replace(&mut self.control_plane.is_stale_reported, true) {
                    self.reporter.report(&Record::MaintenanceOutdated { age }, now);
                }
                false
            }
            NodeMaintenance::Active(_) | NodeMaintenance::Unknown => {
                self.control_plane.is_stale_reported = false;
                true
            }
        }
    }

    /// Returns the reason why soft evictions wait.
    pub(super) fn why_deferred(&self, now: Monotonic) -> String {
        match node_maintenance(&self.cluster.view(), self.control_plane.begun, now) {
            NodeMaintenance::Active(reason) => reason,
            NodeMaintenance::None | NodeMaintenance::Outdated(_) | NodeMaintenance::Unknown => {
                "whether the node is in maintenance is not known yet".to_owned()
            }
        }
    }

    /// Returns the control plane's part of the report; `None` without a control plane.
    pub(super) fn cluster_report(&self) -> Option<ClusterReport> {
        let view = self.cluster.view();
        let down = match &view.state {
            State::Off => return None,
            State::Up => None,
            State::Looking => Some("not asked yet".to_owned()),
            State::Down { reason, .. } => Some(reason.clone()),
        };
        Some(ClusterReport {
            node: view.node_name.to_string(),
            down,
            pods: view.pods.pods().len(),
            pods_age: age(&view),
            counts: view.counts,
            node_age: view.node_as_of.map(|as_of| Monotonic::now().since(as_of)),
            maintenance: view.node.maintenance.clone(),
            defers: self.config.kubernetes.defer_soft_in_maintenance,
        })
    }

    /// Returns the pod of each workload, as far as the API server or the runtime knows it.
    pub(super) fn pod_infos(&self) -> Vec<PodInfo> {
        let node = self.cluster.view().node_name;
        let snapshot = self.runtime.view().snapshot;
        let info = |workload: &Workload| {
            let uid = workload.kind.pod_uid()?;
            let of_runtime = || Some(&snapshot.as_ref()?.sandbox_of(uid)?.pod);
            let (namespace, name) = match &workload.pod {
                Some(pod) => (&pod.metadata.namespace, &pod.metadata.name),
                None => of_runtime().map(|pod| (&pod.namespace, &pod.name))?,
            };
            // All clients but the kubelet know a static pod by the UID of its mirror pod.
            let uid = workload.pod.as_ref().map_or(&uid.0, |pod| &pod.metadata.uid);
            let owner = workload.pod.as_ref().and_then(|pod| pod.controller());
            Some(PodInfo {
                workload: workload.name.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
                uid: uid.clone(),
                node: node.to_string(),
                qos_class: workload.qos.as_str(),
                owner: owner.map(|owner| (owner.kind.clone(), owner.name.clone())),
            })
        };
        self.sensors.workloads.tree().workloads().filter_map(info).take(MOST_PODS).collect()
    }

    /// Returns namespace and name of a workload's pod, also for a workload that is gone.
    pub(super) fn pod_of(&self, workload: &str) -> Option<String> {
        match cgroup_path::role(workload) {
            Role::Pod(uid, _) => self.pod_named(Some(&uid)).0,
            _ => None,
        }
    }

    /// Returns the name of the container with that runtime id, in the pod of `workload`.
    pub(super) fn container_name(&self, workload: Option<&str>, id: &str) -> Option<String> {
        let by_runtime = || Some(self.runtime.view().snapshot?.container(id)?.name.clone());
        let by_pod = || {
            let Role::Pod(uid, _) = cgroup_path::role(workload?) else { return None };
            container(self.sensors.pods.specs(), &uid, id)
        };
        by_pod().or_else(by_runtime)
    }
}

/// Maintenance state of the node.
#[derive(Debug, PartialEq, Eq)]
enum NodeMaintenance {
    /// No source reports maintenance.
    None,
    /// The node is in maintenance, for this reason.
    Active(String),
    /// The node was in maintenance, as of this long ago.
    Outdated(Duration),
    /// The agent has just started, and the API server has not answered yet.
    Unknown,
}

fn node_maintenance(view: &View, begun: Monotonic, now: Monotonic) -> NodeMaintenance {
    let waits_for = match (&view.state, view.node_as_of, &view.node.degradation) {
        // The pods are read, the node object is not, and its watch reports no error.
        (State::Up, None, None) => NODE_FACTS_LIMIT,
        (State::Looking, None, None) => FIRST_ANSWER,
        _ => Duration::ZERO,
    };
    if now.since(begun) < waits_for {
        return NodeMaintenance::Unknown;
    }
    let Some(reason) = &view.node.maintenance else { return NodeMaintenance::None };
    match view.node_as_of.map(|as_of| now.since(as_of)) {
        Some(age) if age >= NODE_FACTS_LIMIT => NodeMaintenance::Outdated(age),
        _ => NodeMaintenance::Active(reason.clone()),
    }
}

fn container(specs: &PodSpecs, uid: &PodUid, id: &str) -> Option<String> {
    specs.find(uid)?.container_name(id).map(str::to_owned)
}

/// Returns the age of the known pods.
fn age(view: &View) -> Option<Duration> {
    view.pods_as_of.map(|as_of| Monotonic::now().since(as_of))
}

/// Describes the pods that the agent uses while the API server does not answer.
fn last_known(view: &View) -> String {
    match age(view) {
        Some(age) => {
            let whole = Duration::from_secs(age.as_secs());
            format!("the {} pods known are those of {} ago", view.pods.pods().len(), format_go_duration(whole))
        }
        None => "no pod was ever known, workloads are known by their cgroups alone".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_maintenance_expires_and_is_awaited() {
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let down = || State::Down { reason: "away".to_owned(), since: at(100) };
        let of = |state: State, as_of: Option<u64>, maintenance: bool, now: u64| {
            let maintenance = maintenance.then(|| "cordoned".to_owned());
            let node = Arc::new(NodeFacts { maintenance, ..NodeFacts::default() });
            let mut view = View::default();
            (view.state, view.node, view.node_as_of) = (state, node, as_of.map(at));
            node_maintenance(&view, at(100), at(now))
        };
        let cordoned = || NodeMaintenance::Active("cordoned".to_owned());
        assert_eq!(of(State::Up, Some(150), true, 151), cordoned());
        assert_eq!(of(State::Up, Some(150), false, 151), NodeMaintenance::None);
        assert_eq!(of(down(), Some(150), true, 749), cordoned());
        assert_eq!(of(down(), Some(150), true, 750), NodeMaintenance::Outdated(NODE_FACTS_LIMIT));
        // Before the first node facts.
        assert_eq!(of(State::Looking, None, false, 159), NodeMaintenance::Unknown);
        assert_eq!(of(State::Looking, None, false, 160), NodeMaintenance::None);
        assert_eq!(of(State::Up, None, false, 160), NodeMaintenance::Unknown);
        assert_eq!(of(State::Up, None, false, 700), NodeMaintenance::None);
        assert_eq!(of(down(), None, false, 101), NodeMaintenance::None);
        assert_eq!(of(State::Off, None, false, 101), NodeMaintenance::None);
    }
}
