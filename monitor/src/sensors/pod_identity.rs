//! Names of pods and containers, from the API server, the pods file or the container runtime.

use std::collections::BTreeMap;

use crate::workloads::PodUid;
use crate::workloads::cgroup_path::{self, Role};

use super::Sensors;

impl Sensors {
    /// Returns a pod's `namespace/name` and its labels.
    pub fn pod_named(&self, uid: Option<&PodUid>) -> (Option<String>, BTreeMap<String, String>) {
        let Some(uid) = uid else { return Default::default() };
        let named = |namespace: &str, name: &str| Some(format!("{namespace}/{name}"));
        let snapshot = self.platform.runtime.view().snapshot;
        if let Some(sandbox) = snapshot.as_ref().and_then(|snapshot| snapshot.sandbox_of(uid)) {
            return (named(&sandbox.pod.namespace, &sandbox.pod.name), sandbox.labels.as_ref().clone());
        }
        let metadata = self.pods.specs().find(uid).map(|pod| &pod.metadata);
        (metadata.and_then(|it| named(&it.namespace, &it.name)), BTreeMap::new())
    }

    /// Returns `namespace/name` of a workload's pod, also for a workload that is gone.
    pub fn pod_of(&self, workload: &str) -> Option<String> {
        match cgroup_path::role(workload) {
            Role::Pod(uid, _) => self.pod_named(Some(&uid)).0,
            _ => None,
        }
    }

    /// Returns the name of the container with that runtime id, in the pod of `workload`.
    pub fn container_name(&self, workload: Option<&str>, id: &str) -> Option<String> {
        let by_runtime = || Some(self.platform.runtime.view().snapshot?.container(id)?.name.clone());
        let by_pod = || {
            let Role::Pod(uid, _) = cgroup_path::role(workload?) else { return None };
            self.pods.specs().find(&uid)?.container_name(id).map(str::to_owned)
        };
        by_pod().or_else(by_runtime)
    }
}
