//! Pods that have ended, such as those that the kubelet has evicted, until the kubelet has removed their volumes.

use std::time::Duration;

use crate::eviction::DiskUsage;
use crate::eviction::footprint::Taken;
use crate::units::{CgroupId, Monotonic, kernel_text};
use crate::workloads::{Pod, PodSpecs, PodUid, Tracked, WorkloadTree};

/// A kubelet removes the volumes, and then the cgroup, within seconds.
const LONGEST: Duration = Duration::from_secs(60);
/// For so long the API server may not know yet that a pod has ended. Later its containers may be between two attempts: a pod of CRI-O has no
/// process then.
const UNREPORTED: Duration = Duration::from_secs(10);

/// The ended pods whose cgroup still exists, with the time at which they were first seen.
#[derive(Debug, Default)]
pub(super) struct EndedPods(Vec<(CgroupId, Monotonic)>);

impl EndedPods {
    /// Returns the pods whose volumes are about to be removed.
    pub(super) fn observe<'t>(&mut self, tree: &'t WorkloadTree, specs: &PodSpecs, now: Monotonic) -> Vec<&'t Tracked> {
        // The list of the tree is as old as its last scan.
        let exists = |pod: &&Tracked| tree.hierarchy().memory.join(kernel_text::path(&pod.workload().name)).exists();
        let pods: Vec<&Tracked> = tree.ended().iter().filter(exists).collect();
        self.0.retain(|(id, _)| pods.iter().any(|pod| pod.workload().id == *id));
        let mut is_expected = |pod: &&Tracked| {
            let id = pod.workload().id;
            let known = self.0.iter().find(|(known, _)| *known == id).map(|(_, since)| *since);
            let since = known.unwrap_or_else(|| {
                self.0.push((id, now));
                now
            });
            let is_over = |spec: &Pod| !spec.is_active() || spec.metadata.deletion.is_some();
            let is_reported = uid_of(pod).and_then(|uid| specs.find(uid)).is_some_and(is_over);
            now.since(since) < if is_reported { LONGEST } else { UNREPORTED }
        };
        pods.into_iter().filter(|pod| is_expected(pod)).collect()
    }
}

/// Returns the part of a pod's usage that the kubelet removes as soon as the pod has ended. Its containers may stay.
pub(super) fn volumes_of(usage: DiskUsage) -> DiskUsage {
    DiskUsage { layers: Taken::default(), logs: Taken::default(), ..usage }
}

/// Returns the UID of a pod.
pub(super) fn uid_of(pod: &Tracked) -> Option<&PodUid> {
    pod.workload().kind.pod_uid()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::node::{CgroupVersion, Hierarchy};
    use crate::workloads::fixtures::populate;

    const UID: &str = "0a1b2c3d-4e5f-4a6b-8c7d-000000000001";
    const SECOND: u64 = 1_000_000_000;

    fn specs(phase: &str) -> PodSpecs {
        let item = format!(r#"{{"metadata": {{"name": "a", "uid": "{UID}"}}, "status": {{"phase": "{phase}"}}}}"#);
        PodSpecs::parse(&format!(r#"{{"kind": "List", "items": [{item}]}}"#)).unwrap()
    }

    #[test]
    fn a_pod_is_expected_until_its_cgroup_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(format!("kubepods.slice/kubepods-pod{}.slice", UID.replace('-', "_")));
        populate(&directory, "7\n");
        let memory = root.path().to_owned();
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory, freezer: None, hybrid: false };
        let mut tree = WorkloadTree::new(hierarchy, "/nonexistent".into(), Vec::new());
        let mut ended = EndedPods::default();
        let mut is_expected = |tree: &WorkloadTree, phase, seconds| {
            let pods = ended.observe(tree, &specs(phase), Monotonic(seconds * SECOND));
            pods.into_iter().filter_map(uid_of).any(|uid| uid.0 == UID)
        };
        tree.scan().unwrap();
        assert!(!is_expected(&tree, "Running", 1), "it has processes");
        fs::write(directory.join("cgroup.events"), "populated 0\n").unwrap();
        tree.scan().unwrap();
        for (phase, seconds, expected) in [
            ("Running", 2, true),
            ("Running", 11, true),
            ("Running", 12, false),
            ("Failed", 61, true),
            ("Failed", 62, false),
        ] {
            assert_eq!(is_expected(&tree, phase, seconds), expected, "{phase} after {seconds} s");
        }
        fs::remove_dir_all(&directory).unwrap();
        assert!(!is_expected(&tree, "Failed", 63), "only the last scan has found it");
        assert!(ended.0.is_empty());
    }
}
