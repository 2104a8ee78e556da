//! Joins the known pods with the workloads.

use std::sync::Arc;

use crate::cluster::cached_pods;
use crate::config::MonitorConfig;

use super::Sensors;
use super::pod_source::PodsRead;

impl Sensors {
    /// Assigns the pod specs to their cgroups.
    pub fn join_pods(&mut self, config: &MonitorConfig) {
        let (specs, rules) = (Arc::clone(self.pods.specs()), config.kubernetes.protect.clone());
        self.workloads.tree_mut().set_pods(specs, rules, config.policy.quirks);
    }

    /// Takes what the file's thread has read since the last call.
    pub fn read_pods_file(&mut self, config: &MonitorConfig) -> Option<PodsRead> {
        let read = self.pods.take_file()?;
        if read == PodsRead::Replaced {
            self.join_pods(config);
        }
        Some(read)
    }

    /// Takes the API server's pods. Returns whether they are the first.
    pub fn take_pods_of_cluster(&mut self, config: &MonitorConfig) -> bool {
        let view = self.platform.cluster.view();
        let is_first = !self.pods.is_from_cluster;
        self.pods.learn(Arc::clone(&view.pods));
        if view.counts.lists > 0 && !self.pods.is_listed {
            self.pods.is_listed = true;
            self.workloads.tree_mut().await_list(false);
        }
        self.join_pods(config);
        is_first
    }

    /// Joins the pods that an earlier agent has cached before the first decision: the thread of the API server may publish them too late.
    pub fn remember_pods(&mut self, config: &MonitorConfig) {
        if !self.platform.cluster.is_there() {
            return;
        }
        if let Some((pods, _)) = cached_pods(&config.lock_file) {
            self.pods.remember(pods);
        }
        self.workloads.scan();
        self.workloads.tree_mut().await_list(true);
        self.join_pods(config);
    }
}
