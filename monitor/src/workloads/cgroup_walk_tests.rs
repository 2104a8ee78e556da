use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;
use crate::node::Hierarchy;
use crate::workloads::{PodUid, WorkloadTree, fixtures};

const CONTAINER: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Makes a directory in memory if possible: thousands of directories take seconds on a disk.
pub fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn populate(root: &Path, path: &str) {
    fixtures::populate(&root.join(path), "7\n");
}

fn fill(root: &Path, path: &str, many: usize) {
    (0..many).for_each(|number| fs::create_dir_all(root.join(format!("{path}/c{number}"))).unwrap());
}

fn tree(root: &Path) -> WorkloadTree {
    let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: root.to_owned(), freezer: None, hybrid: false };
    WorkloadTree::new(hierarchy, "/nonexistent".into(), Vec::new())
}

/// Returns the names of the workloads and whether each may be evicted, and the cuts.
fn scanned(root: &Path) -> (Vec<(String, bool)>, Vec<String>) {
    let mut tree = tree(root);
    let cut = tree.scan().unwrap().cut;
    let mut found: Vec<_> = tree.workloads().map(|it| (it.name.clone(), it.protection.is_none())).collect();
    found.sort();
    (found, cut)
}

fn named(found: &[(&str, bool)]) -> Vec<(String, bool)> {
    found.iter().map(|(name, is_candidate)| ((*name).to_owned(), *is_candidate)).collect()
}

#[test]
fn a_delegated_tree_beyond_the_limit_is_one_candidate() {
    let root = directory();
    let root = root.path();
    populate(root, "web.service");
    populate(root, "user@7.service");
    populate(root, "user@7.service/own.service");
    let whole = [("user@7.service", false), ("user@7.service/own.service", true), ("web.service", true)];
    assert_eq!(scanned(root), (named(&whole), vec![]));
    fill(root, "user@7.service/many", MOST_IN_WORKLOAD);
    let (found, cut) = scanned(root);
    assert_eq!(found, named(&[("user@7.service", true), ("web.service", true)]), "no workload hides beyond the limit");
    assert_eq!(cut.len(), 1, "{cut:?}");
    assert!(cut[0].starts_with("user@7.service has more than 2000 cgroups"), "{cut:?}");
    assert!(cut[0].ends_with("it counts as one workload"), "{cut:?}");
}

#[test]
fn a_user_does_not_exempt_his_services_by_many_cgroups() {
    let root = directory();
    let manager = "user.slice/user-7.slice/user@7.service";
    let own = format!("{manager}/own.service");
    populate(root.path(), manager);
    populate(root.path(), &own);
    fill(root.path(), &format!("{manager}/amany"), MOST_IN_WORKLOAD);
    let mut tree = tree(root.path());
    assert_eq!(tree.scan().unwrap().cut.len(), 1);
    // The manager is exempt: folded into it, the service would be exempt, too.
    let protection = |name: &str| tree.workloads().find(|it| it.name == name).map(|it| it.protection.is_some());
    assert_eq!((protection(manager), protection(&own)), (Some(true), Some(false)));
}

#[test]
fn a_tree_that_is_too_deep_is_one_candidate() {
    let root = directory();
    populate(root.path(), "user@7.service");
    populate(root.path(), "user@7.service/decoy.service");
    fs::create_dir_all(root.path().join(format!("user@7.service/{}", "a/".repeat(DEPTH_LIMIT)))).unwrap();
    let (found, cut) = scanned(root.path());
    assert_eq!((found, cut.len()), (named(&[("user@7.service", true)]), 1));
}

#[test]
fn a_service_with_pods_is_no_candidate_beyond_the_limit() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let root = directory();
    let root = root.path();
    let pod = "kubelet.service/kubepods/besteffort/pod11112222-3333-4444-5555-666677778888";
    populate(root, "kubelet.service");
    populate(root, pod);
    // The names are listed in any order, and the limit may come before the pod. The pod's directory comes first here.
    fill(root, &format!("{pod}/inner"), MOST_IN_WORKLOAD);
    let (found, cut) = scanned(root);
    assert_eq!(found, named(&[("kubelet.service", false), (pod, true)]));
    assert_eq!(cut.len(), 1, "{cut:?}");
}

#[test]
fn the_tree_is_limited_in_all_and_pods_come_first() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let root = directory();
    let pod = "kubepods/pod11112222-3333-4444-5555-666677778888";
    fill(root.path(), "a.slice", MOST_IN_ALL + 10);
    populate(root.path(), pod);
    let (found, cut) = scanned(root.path());
    assert_eq!(found, named(&[(pod, true)]));
    assert_eq!(cut, ["root has more than 15000 cgroups outside workloads: the rest is not known"]);
}

#[test]
fn owners_of_many_cgroups_hide_nothing_of_others() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const GREEDY: u32 = 6;
    let root = directory();
    let root = root.path();
    let pods = "kubelet.slice/kubepods/besteffort/pod11112222-3333-4444-5555-6666777788";
    let modest = [format!("{pods}00"), "user.slice/user-99.slice/user@99.service/own.service".to_owned()];
    // Directories in memory are listed in reverse order: these come last.
    modest.iter().for_each(|name| populate(root, name));
    let inner = format!("{}/c/inner", modest[0]);
    fs::create_dir_all(root.join(&inner)).unwrap();
    for number in 1..=GREEDY {
        let (pod, user) =
            (format!("{pods}{number:02}"), format!("user.slice/user-{number}.slice/user@{number}.service"));
        populate(root, &pod);
        populate(root, &user);
        std::os::unix::fs::chown(root.join(&user), Some(number), Some(number)).unwrap();
        [pod, user].iter().for_each(|path| fill(root, path, MOST_IN_WORKLOAD + 10));
    }
    let mut tree = tree(root);
    let cut = tree.scan().unwrap().cut;
    let is_found = |name: &str| tree.workloads().any(|it| it.name == name);
    modest.iter().for_each(|name| assert!(is_found(name), "{name}: {cut:?}"));
    assert_eq!(tree.workloads().filter(|it| matches!(it.kind, Kind::Pod(_))).count(), 7, "{cut:?}");
    let stat = rustix::fs::fstat(open_root(&root.join(&inner)).unwrap()).unwrap();
    assert_eq!(tree.owner(CgroupId(stat.st_ino)).as_deref(), Some(modest[0].as_str()), "the pod has its share");
    assert_eq!(cut.len(), 12, "{cut:?}");
}

#[test]
fn a_scan_that_is_cut_keeps_what_is_known_and_still_there() {
    let root = directory();
    let known = ["a.slice/z/known.service", "user@7.service/z/own.service", "user@7.service"];
    known.iter().for_each(|name| populate(root.path(), name));
    let mut tree = tree(root.path());
    assert!(tree.scan().unwrap().cut.is_empty());
    fill(root.path(), "a.slice", MOST_IN_ALL + 10);
    assert_eq!(tree.scan().unwrap().cut.len(), 1);
    let mut names: Vec<_> = tree.workloads().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a.slice/z/known.service", "user@7.service", "user@7.service/z/own.service"]);
    fs::remove_dir_all(root.path().join(known[0])).unwrap();
    tree.scan().unwrap();
    assert!(tree.workloads().all(|it| it.name != known[0]), "a removed workload is forgotten");
}

#[test]
fn a_list_of_workloads_does_not_enter_containers_and_forgets_nothing() {
    let root = directory();
    let container = format!("docker/{CONTAINER}");
    populate(root.path(), &container);
    populate(root.path(), &format!("{container}/first"));
    let mut tree = tree(root.path());
    let id = |path: &str| {
        let directory = open_root(&root.path().join(path)).unwrap();
        CgroupId(rustix::fs::fstat(directory).unwrap().st_ino)
    };
    tree.scan().unwrap();
    let (first, second) = (format!("{container}/first"), format!("{container}/second"));
    populate(root.path(), &second);
    populate(root.path(), "new.service");
    let changes = tree.scan_workloads().unwrap();
    assert_eq!((changes.appeared, changes.forgotten), (vec![id("new.service")], vec![]));
    assert_eq!(tree.owner(id(&first)).as_deref(), Some(container.as_str()));
    assert_eq!(tree.owner(id(&second)), None, "it was not entered");
    tree.scan().unwrap();
    assert_eq!(tree.owner(id(&second)).as_deref(), Some(container.as_str()));
}

#[test]
fn a_pod_that_has_ended_is_found_once() {
    const POD: &str = "kubepods.slice/kubepods-pod0a1b2c3d_4e5f_4a6b_8c7d_000000000001.slice";
    let uid = PodUid("0a1b2c3d-4e5f-4a6b-8c7d-000000000001".to_owned());
    let root = directory();
    let mut tree = tree(root.path());
    populate(root.path(), POD);
    let set_populated = |flag: u8| {
        let file = root.path().join(POD).join("cgroup.events");
        fs::write(file, format!("populated {flag}\n")).unwrap();
    };
    for (is_populated, appeared, ended) in [(0, 0, 1), (0, 0, 0), (1, 1, 0), (1, 0, 0), (0, 0, 1), (0, 0, 0)] {
        set_populated(is_populated);
        let changes = tree.scan_workloads().unwrap();
        assert_eq!((changes.appeared.len(), changes.ended.len()), (appeared, ended), "{is_populated}");
        assert_eq!(tree.workloads().count(), usize::from(is_populated));
        assert!(changes.ended.iter().all(|id| tree.find_ended(*id).is_some()));
        assert_eq!(tree.cgroup_of(&uid), Some(root.path().join(POD)), "{is_populated}");
    }
    fs::remove_dir_all(root.path().join(POD)).unwrap();
    tree.scan_workloads().unwrap();
    assert_eq!(tree.cgroup_of(&uid), None);
}

#[test]
fn a_workload_is_no_older_than_the_scan_that_did_not_find_it() {
    let root = directory();
    let mut tree = tree(root.path());
    let age = |tree: &WorkloadTree, name: &str| {
        let tracked = tree.tracked().iter().find(|tracked| tracked.workload().name == name).unwrap();
        tracked.age_in_seconds()
    };
    let set_clock = |name: &str, ahead: bool| {
        let (hour, now) = (Duration::from_secs(3600), SystemTime::now());
        let modified = if ahead { now - hour } else { now + hour };
        fs::File::open(root.path().join(name)).unwrap().set_modified(modified).unwrap();
    };
    for name in ["first.service", "second.service"] {
        populate(root.path(), name);
        tree.scan().unwrap();
    }
    for (ahead, is_known) in [(false, false), (true, true)] {
        ["first.service", "second.service"].iter().for_each(|name| set_clock(name, ahead));
        let first = age(&tree, "first.service");
        assert_eq!(first.is_some_and(|seconds| seconds >= 3600), is_known, "no scan came before: {first:?}");
        assert!(age(&tree, "second.service").is_some_and(|seconds| seconds < 3600));
    }
}

/// The owner of a delegated cgroup names the cgroups in it.
#[test]
fn cgroups_of_any_name_are_workloads_of_their_own() {
    use std::os::unix::ffi::OsStrExt as _;
    let root = directory();
    for name in [b"\xff".as_slice(), b"\xfe", b"caf\xc3", br"\377", "caf\u{fffd}".as_bytes()] {
        fixtures::populate(&root.path().join(std::ffi::OsStr::from_bytes(name)), "7\n");
    }
    let (mut found, cut) = scanned(root.path());
    found.sort();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [r"\134377", r"\376", r"\377", r"caf\303", "caf\u{fffd}"]);
    assert!(cut.is_empty());
    let mut tree = tree(root.path());
    tree.scan().unwrap();
    let paths = tree.workloads().map(|it| root.path().join(crate::units::kernel_text::path(&it.name)));
    assert!(paths.into_iter().all(|path| path.is_dir()));
}
