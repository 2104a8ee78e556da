//! Finds the pods that exceed a limit of their own for local storage.

use std::collections::HashMap;
use std::time::Duration;

use crate::config::Policy;
use crate::eviction::decider::LimitExceeded;
use crate::eviction::evicted::{Cause, Eviction};
use crate::eviction::usage::active_pods;
use crate::eviction::{Layout, local_storage};
use crate::runtime::container_name;
use crate::units::{CgroupId, Monotonic};
use crate::workloads::kubelet_summary::{PodReference, PodStats};
use crate::workloads::{PodSpecs, PodUid, Summary, Workload};

use super::Sensors;

/// An older measurement may be outdated, because the pod may have freed space since. The kubelet's own figures may be two minutes
/// old.
const OLDEST: Duration = Duration::from_secs(120);

/// The measured disk usage of a pod.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    workload: String,
    id: CgroupId,
    uid: PodUid,
    stats: PodStats,
    /// When the oldest part was measured.
    at: Monotonic,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Above {
    pub workload: String,
    pub id: CgroupId,
    pub uid: PodUid,
    /// `namespace/name`.
    pub pod: String,
    pub cause: Cause,
    /// The kubelet's message for the pod's status.
    pub message: String,
    /// When the usage was measured.
    pub at: Monotonic,
}

impl Above {
    /// Returns whether the usage must be measured again before the pod may be evicted.
    fn is_stale(&self, now: Monotonic) -> bool {
        now.since(self.at) > OLDEST
    }
}

impl Sensors {
    /// Returns the pods that exceed a limit according to the last measurement.
    pub fn above_limits(&self, policy: &Policy) -> Vec<Above> {
        if self.pods.specs().pods().is_empty() {
            return Vec::new();
        }
        let snapshot = self.platform.runtime.view().snapshot;
        let measured = |workload: &Workload| {
            let uid = workload.kind.pod_uid().filter(|_| workload.protection.is_none())?;
            let pod = self.pods.specs().find(uid);
            let name_of = |id: &str| container_name(pod, snapshot.as_deref(), id).map(str::to_owned);
            let (stats, at) = self.disk.pod_stats((uid, &workload.name, workload.id), &name_of)?;
            Some(Measured { workload: workload.name.clone(), id: workload.id, uid: uid.clone(), stats, at })
        };
        let measured = self.workloads.tree().workloads().filter_map(measured).collect();
        above_limits(policy, self.signals.filesystems.layout(), self.pods.specs(), measured)
    }

    /// Returns the exceeded limits for the decider. Has pods with an outdated measurement measured first.
    pub fn exceeded(&self, above: &[Above], now: Monotonic) -> Vec<LimitExceeded> {
        let exceeded = |above: &Above| {
            let is_stale = above.is_stale(now) || self.disk.was_evicted_since(above.id, above.at);
            if is_stale {
                self.disk.hurry(&above.workload);
            }
            LimitExceeded { id: above.id, cause: above.cause, is_stale }
        };
        above.iter().map(exceeded).collect()
    }
}

/// Returns the pods that exceed a limit, in the order of the pods. Critical pods are omitted.
fn above_limits(policy: &Policy, layout: Layout, specs: &PodSpecs, measured: Vec<Measured>) -> Vec<Above> {
    let mut pods = Vec::with_capacity(measured.len());
    let mut cgroups = HashMap::with_capacity(measured.len());
    for Measured { workload, id, uid, stats, at } in measured {
        let pod_ref = PodReference { uid: uid.0.clone() };
        pods.push(PodStats { pod_ref, ..stats });
        cgroups.insert(uid.0, (workload, id, at));
    }
    let summary = Summary { pods, ..Summary::default() };
    let evictions = local_storage::evictions(policy, layout, &active_pods(specs.pods(), &summary));
    let above = |eviction: Eviction<'_>| {
        // A mirror pod has statistics under another UID. It is critical, and therefore not evicted.
        let uid = &eviction.pod.metadata.uid;
        let (workload, id, at) = cgroups.remove(uid)?;
        let (pod, uid) = (eviction.pod.full_name(), PodUid(uid.clone()));
        Some(Above { workload, id, uid, pod, cause: eviction.cause, message: eviction.message, at })
    };
    evictions.into_iter().filter_map(above).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::kubelet_summary::{FsUsage, VolumeStats};

    const SECOND: u64 = 1_000_000_000;
    const PODS: &str = r#"{"kind": "List", "items": [
        {"metadata": {"name": "scratch", "namespace": "ns", "uid": "u-1"},
         "spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}}]}},
        {"metadata": {"name": "limited", "namespace": "ns", "uid": "u-2"},
         "spec": {"containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}]}},
        {"metadata": {"name": "critical", "namespace": "ns", "uid": "u-3"},
         "spec": {"priority": 2000000000, "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}}]}}]}"#;

    /// Makes a pod with `bytes` in its volume and in total.
    fn measured(uid: &str, bytes: u64) -> Measured {
        let used = Some(bytes);
        let stats = PodStats {
            volumes: vec![VolumeStats { name: "tmp".to_owned(), used_bytes: used, inodes_used: None }],
            ephemeral_storage: Some(FsUsage { used_bytes: used, inodes_used: None }),
            ..PodStats::default()
        };
        let uid = PodUid(uid.to_owned());
        Measured { workload: format!("kubepods/pod{uid}"), id: CgroupId(7), uid, stats, at: Monotonic(5 * SECOND) }
    }

    fn above(policy: &Policy, measured: Vec<Measured>) -> Vec<(String, &'static str)> {
        let specs = PodSpecs::parse(PODS).unwrap();
        let above = above_limits(policy, Layout::Single, &specs, measured);
        for above in &above {
            assert_eq!(
                (above.id, above.workload.as_str()),
                (CgroupId(7), format!("kubepods/pod{}", above.uid).as_str())
            );
            assert!(above.message.contains("1Mi"), "{above:?}");
        }
        above.into_iter().map(|above| (above.pod, above.cause.as_str())).collect()
    }

    #[test]
    fn each_pod_is_compared_with_its_limits() {
        let over = (1 << 20) + 1;
        let all = ["u-1", "u-2", "u-3", "u-unknown"].map(|uid| measured(uid, over)).to_vec();
        let expected =
            [("ns/scratch".to_owned(), "emptydirfs.limit"), ("ns/limited".to_owned(), "ephemeralpodfs.limit")];
        assert_eq!(above(&Policy::default(), all.clone()), expected, "critical pods are left out");
        let off = Policy { local_storage_isolation: false, ..Policy::default() };
        assert_eq!(above(&off, all), []);
        let at_limit = vec![measured("u-1", 1 << 20)];
        assert_eq!(above(&Policy::default(), at_limit), [], "usage equal to the limit does not exceed it");
    }

    #[test]
    fn an_old_measurement_is_stale() {
        let specs = PodSpecs::parse(PODS).unwrap();
        let above = above_limits(&Policy::default(), Layout::Single, &specs, vec![measured("u-1", 2 << 20)]);
        assert!(!above[0].is_stale(Monotonic(125 * SECOND)));
        assert!(above[0].is_stale(Monotonic(126 * SECOND)));
    }
}
