//! The pods file, and the pods of the workloads.

use std::sync::Arc;

use crate::report::record::{KnownPods, Record};
use crate::sensors::pod_source::PodsRead;
use crate::units::Monotonic;

use super::Agent;

/// Name of the pods file in the list of degraded capabilities.
const CAPABILITY: &str = "pods";

impl Agent {
    pub(super) fn read_pods(&mut self, now: Monotonic) {
        match self.sensors.pods.take_file() {
            None => {}
            Some(PodsRead::Ignored) => self.reporter.set_capability(CAPABILITY, None, "", now),
            Some(PodsRead::Replaced) => {
                let pods = self.sensors.pods.specs().pods().len();
                self.reporter.report(&Record::PodsRead { pods, age: None }, now);
                self.reporter.set_capability(CAPABILITY, None, "", now);
                self.join_pods();
            }
            Some(PodsRead::Failed(reason)) => {
                let effect = "the pods of this node cannot be read: those read before stay known";
                let of_file = Some(self.sensors.pods.specs().pods().len());
                let known = KnownPods { of_file, ..KnownPods::default() };
                self.reporter.set_pod_source(CAPABILITY, Some(&reason), effect, known, now);
            }
        }
    }

    /// Assigns the pod specs to their cgroups.
    pub(super) fn join_pods(&mut self) {
        let (specs, rules) = (Arc::clone(self.sensors.pods.specs()), self.config.kubernetes.protect.clone());
        self.sensors.workloads.tree_mut().set_pods(specs, rules, self.config.policy.quirks);
    }
}
