use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::disk::directory_walk::NAMES;
use crate::disk::host_files::{Host, Roots};
use crate::units::{Bytes, CgroupId};
use crate::workloads::PodUid;

const UID: &str = "1b2c3d4e-0000-1111-2222-333344445555";

/// The files of a node in a directory, with one pod.
struct Node {
    root: tempfile::TempDir,
    finder: Finder,
    claims: Claims,
    last: LastComplete,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["var/lib/kubelet/pods", "var/log/pods"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let finder = Finder::on(Host::at(root.path().to_owned()), Roots::new(root.path().join("proc")));
        Self { root, finder, claims: Claims::default(), last: LastComplete::default() }
    }

    /// Creates `count` files of the pod with `bytes` bytes each.
    fn files(&self, directory: &str, count: usize, bytes: usize) {
        let directory = self.root.path().join(directory.replace("UID", UID));
        fs::create_dir_all(&directory).unwrap();
        for number in 0..count {
            fs::write(directory.join(format!("file{number}")), vec![1; bytes]).unwrap();
        }
    }

    fn begin(&mut self) -> Measurement {
        let places = WorkloadPlaces {
            workload: "pod".to_owned(),
            id: CgroupId(1),
            cgroup: self.root.path().join("cgroup"),
            pod: Some(PodUid(UID.to_owned())),
            layers: Vec::new(),
            is_limited: false,
            trusts_quotas: true,
        };
        Measurement::begin(&mut self.finder, places, Monotonic::now())
    }

    fn step(&mut self, measurement: &mut Measurement) -> Progress {
        let mut buffer = [MaybeUninit::uninit(); NAMES];
        measurement.step(&self.finder, &mut self.claims, &mut buffer)
    }

    fn measure(&mut self) -> (Usage, BTreeSet<String>) {
        let mut measurement = self.begin();
        while self.step(&mut measurement) == Progress::More {}
        let Outcome { usage, missing, .. } = measurement.outcome(&mut self.last);
        (usage, missing)
    }
}

const CACHE: &str = "var/lib/kubelet/pods/UID/volumes/kubernetes.io~empty-dir/cache";
const LOGS: &str = "var/log/pods/shop_web-0_UID/app";

#[test]
fn every_place_is_measured() {
    let mut node = Node::new();
    node.files(CACHE, 10, 4096);
    node.files(LOGS, 2, 8192);
    node.files("var/lib/kubelet/pods/UID/containers/app", 1, 4096);
    let (usage, missing) = node.measure();
    assert!(usage.is_complete && missing.is_empty(), "{missing:?}");
    let inodes: Vec<(&str, u64)> = usage.parts.iter().map(|part| (part.part.kind(), part.held.inodes)).collect();
    assert_eq!(inodes, [("logs", 3), ("volume", 11), ("pod_files", 3)]);
    assert!(usage.bytes >= Bytes(15 * 4096) && usage.bytes < Bytes(30 * 4096), "{usage:?}");
    assert_eq!((usage.inodes, usage.source), (17, Source::Walk));
    assert_eq!(usage.writable_layers(), Held::default());
}

#[test]
fn a_pod_without_files_uses_nothing() {
    let (usage, missing) = Node::new().measure();
    assert!(usage.is_complete && missing.is_empty(), "{missing:?}");
    assert_eq!((usage.bytes, usage.inodes, usage.parts.len()), (Bytes::ZERO, 0, 0));
}

#[test]
fn a_missing_place_makes_the_usage_incomplete() {
    let mut node = Node::new();
    fs::remove_dir(node.root.path().join("var/log/pods")).unwrap();
    node.files(CACHE, 1, 0);
    let (usage, missing) = node.measure();
    assert_eq!((usage.inodes, usage.is_complete), (2, false));
    assert!(missing.first().unwrap().contains("there is no /var/log/pods on this node"), "{missing:?}");
    // A container without a readable process makes the usage incomplete as well.
    let mut node = Node::new();
    node.files("cgroup/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope", 0, 0);
    let container = fs::read_dir(node.root.path().join("cgroup")).unwrap().next().unwrap().unwrap().path();
    fs::write(container.join("cgroup.procs"), "7\n").unwrap();
    assert!(!node.measure().0.is_complete);
}

#[test]
fn a_place_removed_meanwhile_counts_nothing() {
    let mut node = Node::new();
    node.files(CACHE, 10, 4096);
    node.files(LOGS, 2, 8192);
    let mut measurement = node.begin();
    fs::remove_dir_all(node.root.path().join(CACHE.replace("UID", UID))).unwrap();
    while node.step(&mut measurement) == Progress::More {}
    let usage = measurement.outcome(&mut node.last).usage;
    assert_eq!((usage.inodes, usage.is_complete), (3, true), "{usage:?}");
}

#[test]
fn a_larger_partial_result_is_published() {
    let mut node = Node::new();
    node.files(LOGS, 1, 4096);
    let (before, _) = node.measure();
    node.files(CACHE, 2000, 0);
    let mut measurement = node.begin();
    let mut told = None;
    while node.step(&mut measurement) == Progress::More {
        told = told.or_else(|| measurement.partial_usage(Some(&before)).filter(|usage| usage.inodes > 200));
    }
    let told: Usage = told.unwrap();
    assert!(told.inodes < 2000 && !told.is_complete, "{told:?}");
    assert_eq!(told.of(|part| matches!(part, Part::Logs { .. })), before.of(|_| true), "the other parts are unchanged");
    let usage = measurement.outcome(&mut node.last).usage;
    assert_eq!(usage.inodes, 2003);
    // A smaller partial result is not published, because the walk may not have reached the rest yet.
    let mut again = node.begin();
    node.step(&mut again);
    node.step(&mut again);
    assert_eq!(again.partial_usage(Some(&usage)), None);
}

#[test]
fn an_incomplete_measurement_ranks_as_the_last_complete_one() {
    let mut node = Node::new();
    node.files(CACHE, 10, 40_960);
    let (complete, _) = node.measure();
    let before = complete.parts[0].held;
    assert_eq!((complete.parts[0].ranked, complete.is_complete), (before, true));
    let cache = node.root.path().join(CACHE.replace("UID", UID));
    fs::remove_dir_all(&cache).unwrap();
    fs::create_dir(&cache).unwrap();
    let is_over = AtomicBool::new(false);
    let incomplete = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                fs::create_dir(cache.join("entry")).unwrap();
                fs::remove_dir(cache.join("entry")).unwrap();
            }
        });
        let incomplete = (0..20_000).find_map(|_| {
            // A complete measurement would be the predecessor of the next one.
            let (part, look) = ((complete.parts[0].part.clone(), 0), Look { found: before, is_complete: true });
            node.last.at_least("pod", CgroupId(1), part, Kind::Walk, look);
            let (usage, _) = node.measure();
            (!usage.is_complete).then_some(usage)
        });
        is_over.store(true, Ordering::Relaxed);
        incomplete
    });
    let part = &incomplete.unwrap().parts[0];
    assert!(part.held.bytes < before.bytes, "a limit applies to what was found: {part:?}");
    assert_eq!(part.ranked, before);
}

#[test]
fn a_separate_filesystem_reports_its_usage() {
    let host = Host::at("/".into());
    let Ok(shm) = host.open(Path::new("/dev/shm")) else {
        writeln!(std::io::stderr(), "SKIPPED: there is no /dev/shm").unwrap();
        return;
    };
    match of_filesystem(&shm) {
        Some(held) => assert!(held.inodes >= 1, "{held:?}"),
        None => println!("SKIPPED: /dev/shm has no limit"),
    }
}
