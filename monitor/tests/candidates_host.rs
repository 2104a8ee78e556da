//! Checks which workloads are candidates, and whose `oom_score_adj` is restored: real cgroups, processes and sockets of this machine. The test
//! touches no others.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use node_pressure_monitor::actions::ScoreRecord;
use node_pressure_monitor::actions::oom_score::{Auditor, Extent, Rules};
use node_pressure_monitor::config::{CandidateOptions, Candidates, Mode, NamePattern, OomScores, RuntimeEndpoint};
use node_pressure_monitor::node::CgroupVersion;
use node_pressure_monitor::units::{Bytes, Monotonic};
use node_pressure_monitor::workloads::{Protection, QosClass, Workload, WorkloadTree};

#[macro_use]
#[path = "support/sleepers.rs"]
#[expect(dead_code, reason = "other tests evict")]
mod sleepers;

use sleepers::{Cgroups, PROC, wait_until};

/// Every tree has the cgroups of the whole machine, so that a test sees the kubepods tree of another.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tree under `evictions.candidates`, scanned once.
fn tree(cgroups: &Cgroups, candidates: Option<Candidates>, protected: &[&str]) -> WorkloadTree {
    let protected = protected.iter().map(|text| NamePattern::new(text).unwrap()).collect();
    let tree = WorkloadTree::new(cgroups.hierarchy.clone(), PROC.into(), protected);
    let options = CandidateOptions { candidates, ..CandidateOptions::default() };
    let mut tree = tree.with_candidates(options, false, &RuntimeEndpoint::Auto);
    tree.scan().unwrap();
    tree
}

fn find<'t>(tree: &'t WorkloadTree, name: &str) -> &'t Workload {
    tree.workloads().find(|workload| workload.name == name).expect(name)
}

/// Adds a process to a workload that has this open file from its start, as a daemon has its socket from systemd.
fn add_holder(cgroups: &mut Cgroups, name: &str, file: OwnedFd) {
    let child = Command::new("sleep").arg("600").stdin(Stdio::from(file)).spawn().unwrap();
    for hierarchy in cgroups.hierarchies() {
        fs::write(hierarchy.join(name).join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    cgroups.children.push(child);
}

#[test]
fn runtime_and_kubelet_are_found_by_their_sockets_in_any_cgroup() {
    let _alone = alone();
    let Some(mut cgroups) = Cgroups::make("essential") else { return };
    let directory = tempfile::tempdir().unwrap();
    let socket = |name: &str| UnixListener::bind(directory.path().join(name)).unwrap().into();
    let runtime = cgroups.workload("runtime.slice/whatever.service", 1);
    add_holder(&mut cgroups, &runtime, socket("containerd.sock"));
    let kubelet = cgroups.workload("anything", 1);
    fs::create_dir(directory.path().join("pod-resources")).unwrap();
    add_holder(&mut cgroups, &kubelet, socket("pod-resources/kubelet.sock"));
    let ordinary = cgroups.workload("ordinary.service", 1);
    add_holder(&mut cgroups, &ordinary, socket("ordinary.sock"));
    let exempt = cgroups.workload("exempt.service", 1);
    let pid = cgroups.children.last().unwrap().id();
    let lowered = fs::write(format!("/proc/{pid}/oom_score_adj"), "-998");
    let ports: Vec<String> = [10250, 10248]
        .into_iter()
        .filter_map(|port| {
            let listener = TcpListener::bind(("127.0.0.1", port)).ok()?;
            let name = cgroups.workload(&format!("port{port}.service"), 1);
            add_holder(&mut cgroups, &name, listener.into());
            Some(name)
        })
        .collect();
    let tree = tree(&cgroups, Some(Candidates::Everything), &[]);
    let protection = |name: &str| find(&tree, name).protection;
    assert_eq!(protection(&runtime), Some(Protection::Runtime));
    assert_eq!(protection(&kubelet), Some(Protection::Kubelet));
    match lowered {
        Ok(()) => assert_eq!(protection(&exempt), Some(Protection::KillExempt)),
        Err(error) => {
            tell!("SKIPPED a process at -998: {error}");
        }
    }
    assert_eq!(protection(&ordinary), None);
    for name in &ports {
        assert_eq!(protection(name), Some(Protection::Kubelet), "{name}");
    }
    let named = tree.essentials();
    let by = |name: &str| named.iter().find(|(found, _)| found == name).map(|(_, it)| it.by.clone());
    assert!(by(&runtime).is_some_and(|by| by.ends_with("/containerd.sock")), "{named:?}");
    assert_eq!(by(&ordinary), None);

    // The service becomes a runtime after the scan. Its state at the kill counts.
    let id = find(&tree, &ordinary).id;
    assert_eq!(tree.essential_now(id), None);
    add_holder(&mut cgroups, &ordinary, socket("crio.sock"));
    wait_until("the new socket", || tree.essential_now(id) == Some(Protection::Runtime));
}

#[test]
fn only_pods_are_candidates_once_a_kubepods_tree_was_seen() {
    let _alone = alone();
    let Some(mut cgroups) = Cgroups::make("kubepods") else { return };
    let service = cgroups.workload("web.service", 1);
    let scope = cgroups.workload("run.scope", 1);
    let mut tree = tree(&cgroups, None, &[]);
    if tree.candidacy().is_pods_only() {
        tell!("SKIPPED kubepods: this machine has such a tree already");
        return;
    }
    assert_eq!(find(&tree, &service).protection, None);
    let pod = cgroups.workload("a-kubepods.slice/a-kubepods-pod1-2.slice", 1);
    tree.scan().unwrap();
    assert!(tree.candidacy().is_pods_only());
    for name in [&service, &scope] {
        assert_eq!(find(&tree, name).protection, Some(Protection::NotAPod), "{name}");
    }
    assert_eq!(find(&tree, &pod).protection, None);
    // The kubelet restarts, and its tree is gone for a moment.
    let mut last = cgroups.children.pop().unwrap();
    last.kill().unwrap();
    last.wait().unwrap();
    let above = pod.rsplit_once('/').unwrap().0;
    for (path, hierarchy) in
        [pod.as_str(), above].into_iter().flat_map(|path| cgroups.hierarchies().map(move |it| (path, it)))
    {
        wait_until("the end of the pod", || fs::remove_dir(hierarchy.join(path)).is_ok());
    }
    tree.scan().unwrap();
    assert_eq!(find(&tree, &service).protection, Some(Protection::NotAPod));
    tree.set_candidates(CandidateOptions { candidates: Some(Candidates::Everything), ..CandidateOptions::default() });
    tree.scan().unwrap();
    assert_eq!(find(&tree, &service).protection, None, "the operator's choice");
}

/// Gives a cgroup to a user, as a delegation does.
fn delegate(cgroups: &Cgroups, name: &str) {
    for hierarchy in cgroups.hierarchies() {
        std::os::unix::fs::chown(hierarchy.join(name), Some(1000), None).unwrap();
    }
}

#[test]
fn a_user_of_a_delegated_cgroup_cannot_exempt_it() {
    let _alone = alone();
    let Some(mut cgroups) = Cgroups::make("delegated") else { return };
    let had_kubepods = tree(&cgroups, None, &[]).candidacy().has_kubepods;
    let version = cgroups.hierarchy.version;
    let own = cgroups.workload("precious.service", 1);
    let pretended = cgroups.workload("kubepods.slice", 1);
    let outer = cgroups.workload("outer.service", usize::from(version == CgroupVersion::V1));
    let hidden = cgroups.workload("outer.service/hidden", 1);
    let nested = cgroups.workload("outer.service/nested.service", 1);
    let of_root = cgroups.workload("root.service/inner/precious.service", 1);
    for name in [&own, &pretended, &outer, &hidden, &nested] {
        delegate(&cgroups, name);
    }
    let file = if version == CgroupVersion::V1 { "memory.soft_limit_in_bytes" } else { "memory.low" };
    fs::write(cgroups.hierarchy.memory.join(&own).join(file), "1073741824").unwrap();
    let tree = tree(&cgroups, Some(Candidates::Everything), &["precious.service"]);
    let own = find(&tree, &own);
    assert_eq!(own.protection, None, "a name that a pattern of the operator protects");
    assert_eq!((own.request, own.qos), (Bytes::ZERO, QosClass::BestEffort), "memory.low and memory.min");
    let outer = find(&tree, &outer);
    assert_eq!(outer.protection, None, "a cgroup with the name of a workload inside");
    assert!(tree.workloads().all(|workload| workload.name != nested), "it is part of the outer one");
    assert_eq!(find(&tree, &of_root).protection, Some(Protection::Named), "root's cgroup has the name by right");
    // Else no service of this node would be a candidate any more.
    assert_eq!(tree.candidacy().has_kubepods, had_kubepods);
}

#[test]
fn scores_are_restored_after_the_agent() {
    let _alone = alone();
    let Some(mut cgroups) = Cgroups::make("restore") else { return };
    let name = cgroups.workload("drifted.service", 4);
    let path = |index: usize| format!("/proc/{}/oom_score_adj", cgroups.children[index].id());
    let value = |index: usize| fs::read_to_string(path(index)).unwrap().trim().to_owned();
    let before: Vec<String> = (0..4).map(value).collect();
    fs::write(path(1), "321").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("agent.lock");
    // Only this workload: the test must not change others of this machine.
    let mut tree = cgroups.tree(Vec::new());
    wait_until("a look at this workload alone", || {
        let others = tree.workloads().filter(|workload| workload.name != name);
        tree = cgroups.tree(others.map(|workload| NamePattern::new(&workload.name).unwrap()).collect());
        tree.workloads().filter(|workload| workload.protection.is_none()).count() == 1
    });
    let mut auditor = Auditor::default().recorded_in(ScoreRecord::beside(&lock));
    let rules = Rules {
        proc_root: Path::new(PROC),
        capacity: Bytes(1 << 30),
        scores: OomScores::KUBERNETES,
        mode: Mode::Enforce,
    };
    auditor.begin(&tree, Extent::All);
    let audit = auditor.step(&tree, rules, Monotonic::now().after(std::time::Duration::from_secs(60))).unwrap();
    assert_eq!((audit.repaired, audit.refused), (4, None));
    assert_eq!([value(0), value(1)], ["1000", "1000"]);
    // Another program sets a value after the agent; and the agent is killed.
    fs::write(path(2), "500").unwrap();
    drop(auditor);
    let restored = ScoreRecord::beside(&lock).restore(Path::new(PROC));
    assert_eq!((restored.restored, restored.changed, restored.failed), (3, 1, 0), "{restored:?}");
    assert_eq!((0..4).map(value).collect::<Vec<_>>(), [&before[0], "321", "500", &before[3]]);
    assert_eq!(ScoreRecord::beside(&lock).restore(Path::new(PROC)).restored, 0);
    cgroups.end_children();
}
