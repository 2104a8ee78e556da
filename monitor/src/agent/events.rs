//! Handles the events of other threads: the container runtime's and the API server's.

use std::time::Duration;

use crate::cluster::{self, EvictionUpdate, State};
use crate::config::Mode;
use crate::report::record::Record;
use crate::runtime;
use crate::sensors::control_plane::pods_age;
use crate::units::Monotonic;

use super::Agent;

/// Time limit for removing the node's conditions and taints when the agent stops.
const CLEANUP_LIMIT: Duration = Duration::from_secs(5);
/// Name of the node object's watch in the list of degraded capabilities.
const NODE_CAPABILITY: &str = "node object";

impl Agent {
    pub(super) fn handle_runtime_event(&mut self, event: &runtime::Event) {
        self.actions.take_runtime_event(event, &mut self.sensors);
        self.reporter.report_runtime_event(event, Monotonic::now());
    }

    pub(super) fn handle_cluster_event(&mut self, event: cluster::Event) {
        let now = Monotonic::now();
        match event {
            cluster::Event::State(state) => {
                self.reporter.report_api_server(&self.sensors, now);
                if state == State::Up {
                    let pods = self.sensors.platform.cluster.view().pods.pods().len();
                    self.reporter.report(&Record::ApiServerUp { pods }, now);
                }
            }
            cluster::Event::Eviction(settled) => {
                if settled.leaves_rest && self.config.mode == Mode::Enforce {
                    self.actions.finish_removal(&settled.uid, self.sensors.workloads.tree());
                }
                if self.actions.settle(&settled) {
                    let EvictionUpdate { uid, verdict, .. } = &settled;
                    self.reporter.report(&Record::EvictionSettled { pod_uid: uid, verdict }, now);
                }
            }
            cluster::Event::Degradation { capability, reason } => {
                let effect = "the API server refuses a request";
                self.reporter.set_capability(capability, reason.as_deref(), effect, now);
            }
            cluster::Event::Pods => {
                if self.sensors.take_pods_of_cluster(&self.config) {
                    let age = pods_age(&self.sensors.platform.cluster.view()).unwrap_or_default();
                    let pods = self.sensors.pods.specs().pods().len();
                    self.reporter.report(&Record::PodsRead { pods, age: Some(age) }, now);
                }
            }
            cluster::Event::Node => self.update_node(now),
        }
    }

    fn update_node(&mut self, now: Monotonic) {
        let (node, is_changed) = self.sensors.platform.cluster.take_node();
        let effect = "whether the node is in maintenance is not known";
        self.reporter.set_capability(NODE_CAPABILITY, node.degradation.as_deref(), effect, now);
        self.follow_pool();
        if is_changed {
            let defers = self.config.kubernetes.defer_soft_in_maintenance;
            self.reporter.report_maintenance(node.maintenance.as_deref(), defers, now);
        }
    }

    pub(super) fn read_pods(&mut self, now: Monotonic) {
        if let Some(read) = self.sensors.read_pods_file(&self.config) {
            self.reporter.report_pods_file(read, self.sensors.pods.specs().pods().len(), now);
        }
    }

    /// Stops the threads of the control plane. Runs after the loop.
    pub fn end(self) {
        self.actions.cluster.stop(CLEANUP_LIMIT);
    }
}
