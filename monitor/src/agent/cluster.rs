//! What the control plane has to say.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{CAPABILITY, Event, NodeFacts, State, View};
use crate::report::record::{KnownPods, Record};
use crate::report::{ClusterReport, PodInfo};
use crate::units::{Monotonic, format_go_duration};
use crate::workloads::cgroup_path::{self, Role};
use crate::workloads::{PodSpecs, PodUid, Workload};

use super::Agent;

/// How long an agent that stops has to take its conditions and taints off the node.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// What the watch of the node's own object is called among the capabilities that are missing.
const NODE_CAPABILITY: &str = "node object";

/// What was last heard of the node longer ago than this no longer keeps pods on it: nobody knows whether the work has ended.
const WORD_HOLDS: Duration = Duration::from_secs(600);
/// For so long soft evictions wait for the first word of the node while nothing has come of asking for it.
const FIRST_ANSWER: Duration = Duration::from_secs(60);

/// Pods named in the metrics; more than any node has.
const MOST_PODS: usize = 1000;

/// What the loop remembers of what it was told.
#[derive(Debug)]
pub(super) struct ControlPlaneMemory {
    node: Arc<NodeFacts>,
    /// When the agent began to ask.
    begun: Monotonic,
    /// That an old word of the node no longer counts was said.
    is_stale_reported: bool,
}

impl Default for ControlPlaneMemory {
    fn default() -> Self {
        Self { node: Arc::default(), begun: Monotonic::now(), is_stale_reported: false }
    }
}

impl Agent {
    /// Ends what goes on beside the loop, after the loop.
    pub fn end(self) {
        self.cluster.stop(LAST_WORDS);
    }

    /// Takes note of it, and tells it.
    pub(super) fn hear_cluster(&mut self, event: Event) {
        match event {
            Event::State(state) => self.learn_state(&state),
            Event::Eviction(settled) => self.hear_settled(settled),
            Event::Degradation { capability, reason } => {
                let effect = "the API server refuses a request";
                self.reporter.set_capability(capability, reason.as_deref(), effect, Monotonic::now());
            }
            Event::Pods => self.learn_pods(),
            Event::Node => self.learn_node(),
        }
    }

    fn learn_state(&mut self, state: &State) {
        self.confirm_cluster();
        if *state == State::Up {
            let pods = self.cluster.view().pods.pods().len();
            self.reporter.report(&Record::ApiServerUp { pods }, Monotonic::now());
        }
    }

    /// Sets whether the API server answers, with the age of what is known.
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

    fn learn_pods(&mut self) {
        let view = self.cluster.view();
        let is_first = !self.sensors.pods.is_from_cluster();
        self.sensors.pods.learn(Arc::clone(&view.pods));
        self.join_pods();
        if is_first {
            let (pods, age) = (view.pods.pods().len(), Some(age(&view).unwrap_or_default()));
            self.reporter.report(&Record::PodsRead { pods, age }, Monotonic::now());
        }
    }

    /// Puts what is known of the pods to their cgroups.
    pub(super) fn join_pods(&mut self) {
        let (specs, rules) = (Arc::clone(self.sensors.pods.specs()), self.config.kubernetes.protect.clone());
        self.sensors.workloads.tree_mut().set_pods(specs, rules, self.config.policy.quirks);
    }

    fn learn_node(&mut self) {
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

    /// Whether soft evictions wait: the node is in maintenance, or whether it is is not known yet.
    pub(super) fn in_maintenance(&mut self, now: Monotonic) -> bool {
        let has_soft = self.config.policy.thresholds.iter().any(|threshold| !threshold.is_hard());
        if !has_soft || !self.config.kubernetes.defer_soft_in_maintenance || !self.cluster.is_there() {
            return false;
        }
        match word_of_node(&self.cluster.view(), self.control_plane.begun, now) {
            Word::Free => false,
            Word::Old(age) => {
                let is_soft_met = self.decision.assessment().met.iter().any(|met| !met.is_hard());
                if is_soft_met && !std::mem::replace(&mut self.control_plane.is_stale_reported, true) {
                    self.reporter.report(&Record::MaintenanceOutdated { age }, now);
                }
                false
            }
            Word::Maintenance(_) | Word::Awaited => {
                self.control_plane.is_stale_reported = false;
                true
            }
        }
    }

    /// Why soft evictions wait.
    pub(super) fn why_deferred(&self, now: Monotonic) -> String {
        match word_of_node(&self.cluster.view(), self.control_plane.begun, now) {
            Word::Maintenance(reason) => reason,
            Word::Free | Word::Old(_) | Word::Awaited => {
                "whether the node is in maintenance is not known yet".to_owned()
            }
        }
    }

    /// Everything of the control plane that the report shows; nothing where there is none.
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

    /// Which workload is which pod, as far as somebody tells.
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
            // A static pod is known by its mirror's UID to everybody but the kubelet.
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

    /// Namespace and name of the pod that a workload is, or was.
    pub(super) fn pod_of(&self, workload: &str) -> Option<String> {
        match cgroup_path::role(workload) {
            Role::Pod(uid, _) => self.pod_named(Some(&uid)).0,
            _ => None,
        }
    }

    /// The name of the container that the runtime knows by that id, in the pod that the workload is.
    pub(super) fn container_name(&self, workload: Option<&str>, id: &str) -> Option<String> {
        let by_runtime = || Some(self.runtime.view().snapshot?.container(id)?.name.clone());
        let by_pod = || {
            let Role::Pod(uid, _) = cgroup_path::role(workload?) else { return None };
            container(self.sensors.pods.specs(), &uid, id)
        };
        by_pod().or_else(by_runtime)
    }
}

/// What is known of work on the node.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// Nobody is at work on it, as far as anybody says.
    Free,
    /// Somebody is, and why.
    Maintenance(String),
    /// Somebody was, so long ago.
    Old(Duration),
    /// The agent was started a moment ago, and the API server is about to say.
    Awaited,
}

fn word_of_node(view: &View, begun: Monotonic, now: Monotonic) -> Word {
    let waits_for = match (&view.state, view.node_as_of, &view.node.degradation) {
        // The pods are read, the node is not, and nothing is amiss with it.
        (State::Up, None, None) => WORD_HOLDS,
        (State::Looking, None, None) => FIRST_ANSWER,
        _ => Duration::ZERO,
    };
    if now.since(begun) < waits_for {
        return Word::Awaited;
    }
    let Some(reason) = &view.node.maintenance else { return Word::Free };
    match view.node_as_of.map(|as_of| now.since(as_of)) {
        Some(age) if age >= WORD_HOLDS => Word::Old(age),
        _ => Word::Maintenance(reason.clone()),
    }
}

fn container(specs: &PodSpecs, uid: &PodUid, id: &str) -> Option<String> {
    specs.find(uid)?.container_name(id).map(str::to_owned)
}

/// How long ago what is known of the pods was true.
fn age(view: &View) -> Option<Duration> {
    view.pods_as_of.map(|as_of| Monotonic::now().since(as_of))
}

/// What the agent goes by while the API server does not answer.
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
    fn word_of_the_node_grows_old_and_is_awaited() {
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let down = || State::Down { reason: "away".to_owned(), since: at(100) };
        let of = |state: State, as_of: Option<u64>, maintenance: bool, now: u64| {
            let maintenance = maintenance.then(|| "cordoned".to_owned());
            let node = Arc::new(NodeFacts { maintenance, ..NodeFacts::default() });
            let mut view = View::default();
            (view.state, view.node, view.node_as_of) = (state, node, as_of.map(at));
            word_of_node(&view, at(100), at(now))
        };
        let cordoned = || Word::Maintenance("cordoned".to_owned());
        assert_eq!(of(State::Up, Some(150), true, 151), cordoned());
        assert_eq!(of(State::Up, Some(150), false, 151), Word::Free);
        assert_eq!(of(down(), Some(150), true, 749), cordoned());
        assert_eq!(of(down(), Some(150), true, 750), Word::Old(WORD_HOLDS));
        // Before the first word.
        assert_eq!(of(State::Looking, None, false, 159), Word::Awaited);
        assert_eq!(of(State::Looking, None, false, 160), Word::Free);
        assert_eq!(of(State::Up, None, false, 160), Word::Awaited);
        assert_eq!(of(State::Up, None, false, 700), Word::Free);
        assert_eq!(of(down(), None, false, 101), Word::Free);
        assert_eq!(of(State::Off, None, false, 101), Word::Free);
    }
}
