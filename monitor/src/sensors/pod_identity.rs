//! Names of workloads and labels of pods, from the API server, the pods file or the container runtime.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::runtime::Names;
use crate::workloads::cgroup_path::{Role, role};
use crate::workloads::{EVICTION_IN_PROGRESS, PodUid};

use super::Sensors;

impl Sensors {
    /// Returns the names that are known now. Cheap: they are shared.
    pub fn names(&self) -> Names {
        let (pods, departed) = (Arc::clone(self.pods.specs()), Arc::clone(self.pods.departed()));
        Names::new(pods, departed, self.platform.runtime.snapshot())
    }

    /// Returns whether the pod carries the annotation of a pod that another controller moves away. The annotation alone holds nothing back,
    /// because a pod's user can write it: it only prolongs the wait after such an answer of the Eviction API.
    pub fn is_moved_away(&self, workload: &str) -> bool {
        let Role::Pod(uid, _) = role(workload) else { return false };
        self.pods.specs().find(&uid).is_some_and(|pod| pod.annotation(EVICTION_IN_PROGRESS).is_some())
    }

    /// Returns a pod's `namespace/name` and its labels.
    pub fn pod_named(&self, uid: Option<&PodUid>) -> (Option<String>, BTreeMap<String, String>) {
        let Some(uid) = uid else { return Default::default() };
        let named = |namespace: &str, name: &str| Some(format!("{namespace}/{name}"));
        let snapshot = self.platform.runtime.snapshot();
        if let Some(sandbox) = snapshot.as_ref().and_then(|snapshot| snapshot.sandbox_of(uid)) {
            return (named(&sandbox.pod.namespace, &sandbox.pod.name), sandbox.labels.as_ref().clone());
        }
        let metadata = self.pods.specs().find(uid).map(|pod| &pod.metadata);
        (metadata.and_then(|it| named(&it.namespace, &it.name)), BTreeMap::new())
    }
}
