//! Events of the control plane.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{CAPABILITY, Event, EvictionUpdate, State};
use crate::report::record::{KnownPods, Record};
use crate::sensors::control_plane::{last_known, pods_age};
use crate::units::Monotonic;

use super::Agent;

/// Time limit for removing the node's conditions and taints when the agent stops.
const CLEANUP_LIMIT: Duration = Duration::from_secs(5);
/// Name of the node object's watch in the list of degraded capabilities.
const NODE_CAPABILITY: &str = "node object";

impl Agent {
    /// Stops the threads of the control plane. Runs after the loop.
    pub fn end(self) {
        self.actions.cluster.stop(CLEANUP_LIMIT);
    }

    pub(super) fn handle_cluster_event(&mut self, event: Event) {
        match event {
            Event::State(state) => self.update_state(&state),
            Event::Eviction(settled) => {
                if self.actions.settle(&settled) {
                    let EvictionUpdate { uid, verdict } = &settled;
                    self.reporter.report(&Record::EvictionSettled { pod_uid: uid, verdict }, Monotonic::now());
                }
            }
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
            let pods = self.sensors.platform.cluster.view().pods.pods().len();
            self.reporter.report(&Record::ApiServerUp { pods }, Monotonic::now());
        }
    }

    /// Updates the degradation of the API server, with the age of the known pods.
    pub(super) fn confirm_cluster(&mut self) {
        let view = self.sensors.platform.cluster.view();
        let reason = match &view.state {
            State::Down { reason, .. } => Some(format!("{reason}; {}", last_known(&view))),
            State::Looking | State::Off | State::Up => None,
        };
        let known = KnownPods { pods: Some(view.pods.pods().len()), age: pods_age(&view), of_file: None };
        let effect = "the API server does not answer";
        self.reporter.set_pod_source(CAPABILITY, reason.as_deref(), effect, known, Monotonic::now());
    }

    fn update_pods(&mut self) {
        let view = self.sensors.platform.cluster.view();
        let is_first = !self.sensors.pods.is_from_cluster();
        self.sensors.pods.learn(Arc::clone(&view.pods));
        if view.counts.lists > 0 && !self.sensors.pods.is_listed() {
            self.sensors.pods.note_listed();
            self.sensors.workloads.tree_mut().await_list(false);
        }
        self.join_pods();
        if is_first {
            let (pods, age) = (view.pods.pods().len(), Some(pods_age(&view).unwrap_or_default()));
            self.reporter.report(&Record::PodsRead { pods, age }, Monotonic::now());
        }
    }

    fn update_node(&mut self) {
        let (node, is_changed) = self.sensors.platform.cluster.take_node();
        let now = Monotonic::now();
        let effect = "whether the node is in maintenance is not known";
        self.reporter.set_capability(NODE_CAPABILITY, node.degradation.as_deref(), effect, now);
        self.follow_pool();
        if !is_changed {
            return;
        }
        if node.maintenance.is_none() {
            self.reporter.forget_deferred();
        }
        let defers = self.config.kubernetes.defer_soft_in_maintenance;
        self.reporter.report(&Record::Maintenance { reason: node.maintenance.as_deref(), defers }, now);
    }
}
