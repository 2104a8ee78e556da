use std::path::Path;

use super::*;
use crate::workloads::WorkloadTree;
use crate::workloads::fixtures::populate;

const POD: &str = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu.slice";

/// Makes a pod's cgroup with these cgroups in it, each with its processes.
fn pod(root: &Path, cgroups: &[(&str, &str)]) {
    let pod = root.join(POD);
    for (name, pids) in [("", "")].iter().chain(cgroups) {
        populate(&pod.join(name), pids);
    }
}

fn target(root: &Path) -> Target {
    let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false };
    let mut tree = WorkloadTree::new(hierarchy.clone(), "/nonexistent".into(), Vec::new());
    tree.scan().unwrap();
    let [tracked] = tree.tracked() else { panic!("{:?}", tree.tracked()) };
    Target::new(tracked, &hierarchy, Path::new("/nonexistent"), None)
}

/// Each row: the cgroups of a pod, and those that are killed as a whole.
#[test]
fn the_monitors_of_crio_outlive_the_pod() {
    for (cgroups, expected) in [
        (&[("cri-containerd-1.scope", "7\n"), ("cri-containerd-2.scope", "8\n")][..], &[""][..]),
        (
            &[("crio-1.scope", "7\n"), ("crio-conmon-1.scope", "5\n"), ("crio-2.scope", "8\n")],
            &["crio-1.scope", "crio-2.scope"],
        ),
    ] {
        let root = tempfile::tempdir().unwrap();
        pod(root.path(), cgroups);
        let mut pids = target(root.path()).kill().unwrap();
        pids.sort_unstable();
        assert_eq!(pids, [Pid(7), Pid(8)]);
        let is_killed =
            |name: &str| std::fs::read_to_string(root.path().join(POD).join(name).join("cgroup.kill")).unwrap() == "1";
        let mut killed: Vec<&str> = [""].into_iter().chain(cgroups.iter().map(|(name, _)| *name)).collect();
        killed.retain(|name| is_killed(name));
        assert_eq!(killed, expected);
    }
}

#[test]
fn a_pod_with_only_a_monitor_is_gone() {
    let root = tempfile::tempdir().unwrap();
    pod(root.path(), &[("crio-1.scope", "7\n"), ("crio-conmon-1.scope", "5\n")]);
    let target = target(root.path());
    assert!(!target.is_gone());
    for (file, text) in [("cgroup.procs", ""), ("cgroup.events", "populated 0\n")] {
        std::fs::write(root.path().join(POD).join("crio-1.scope").join(file), text).unwrap();
    }
    assert!(target.is_gone());
    assert!(matches!(target.kill(), Err(ActionError::Gone)));
}
