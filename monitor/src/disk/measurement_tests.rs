use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::*;
use crate::disk::host::{Host, Roots};
use crate::disk::tree::NAMES;
use crate::units::CgroupId;
use crate::workloads::PodUid;

const UID: &str = "1b2c3d4e-0000-1111-2222-333344445555";

/// A node in a directory, with one pod.
struct Node {
    root: tempfile::TempDir,
    finder: Finder,
    claims: Claims,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for directory in ["var/lib/kubelet/pods", "var/log/pods"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let finder = Finder::on(Host::at(root.path().to_owned()), Roots::new(root.path().join("proc")));
        Self { root, finder, claims: Claims::default() }
    }

    /// Files of the pod, each of so many bytes.
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
            believes_quotas: true,
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
        let Outcome { usage, missing, .. } = measurement.outcome();
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
fn a_pod_without_files_holds_nothing() {
    let (usage, missing) = Node::new().measure();
    assert!(usage.is_complete && missing.is_empty(), "{missing:?}");
    assert_eq!((usage.bytes, usage.inodes, usage.parts.len()), (Bytes::ZERO, 0, 0));
}

#[test]
fn what_cannot_be_found_makes_it_incomplete() {
    let mut node = Node::new();
    fs::remove_dir(node.root.path().join("var/log/pods")).unwrap();
    node.files(CACHE, 1, 0);
    let (usage, missing) = node.measure();
    assert_eq!((usage.inodes, usage.is_complete), (2, false));
    assert!(missing.first().unwrap().contains("there is no /var/log/pods on this node"), "{missing:?}");
    // A container that shows nothing.
    let mut node = Node::new();
    node.files("cgroup/cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope", 0, 0);
    let container = fs::read_dir(node.root.path().join("cgroup")).unwrap().next().unwrap().unwrap().path();
    fs::write(container.join("cgroup.procs"), "7\n").unwrap();
    assert!(!node.measure().0.is_complete);
}

#[test]
fn what_vanishes_meanwhile_is_nothing() {
    let mut node = Node::new();
    node.files(CACHE, 10, 4096);
    node.files(LOGS, 2, 8192);
    let mut measurement = node.begin();
    fs::remove_dir_all(node.root.path().join(CACHE.replace("UID", UID))).unwrap();
    while node.step(&mut measurement) == Progress::More {}
    let usage = measurement.outcome().usage;
    assert_eq!((usage.inodes, usage.is_complete), (3, true), "{usage:?}");
}

#[test]
fn more_than_was_known_is_told_before_the_end() {
    let mut node = Node::new();
    node.files(LOGS, 1, 4096);
    let (before, _) = node.measure();
    node.files(CACHE, 2000, 0);
    let mut measurement = node.begin();
    let mut told = None;
    while node.step(&mut measurement) == Progress::More {
        told = told.or_else(|| measurement.more_than(Some(&before)).filter(|usage| usage.inodes > 200));
    }
    let told: Usage = told.unwrap();
    assert!(told.inodes < 2000 && !told.is_complete, "{told:?}");
    assert_eq!(told.of(|part| matches!(part, Part::Logs { .. })), before.of(|_| true), "the rest is as it was");
    let usage = measurement.outcome().usage;
    assert_eq!(usage.inodes, 2003);
    // Less than before is not told: it may only be that the walk is not over.
    let mut again = node.begin();
    node.step(&mut again);
    node.step(&mut again);
    assert_eq!(again.more_than(Some(&usage)), None);
}

#[test]
fn a_filesystem_of_its_own_says_what_it_holds() {
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
