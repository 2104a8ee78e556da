use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;
use crate::disk::Usage;
use crate::units::CgroupId;
use crate::workloads::PodUid;

/// The files of a node in a temporary directory.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        for directory in ["proc/1", "var/lib/kubelet/pods", "var/log/pods"] {
            fs::create_dir_all(node.0.path().join(directory)).unwrap();
        }
        symlink(node.0.path(), node.0.path().join("proc/1/root")).unwrap();
        node
    }

    fn roots(&self) -> Roots {
        Roots::new(self.0.path().join("proc"))
    }

    fn volume(&self, pod: &str) -> PathBuf {
        let volumes = self.0.path().join("var/lib/kubelet/pods").join(pod).join("volumes");
        volumes.join("kubernetes.io~empty-dir/cache")
    }

    fn files(&self, pod: &str, count: usize) {
        fs::create_dir_all(self.volume(pod)).unwrap();
        for number in 0..count {
            fs::write(self.volume(pod).join(number.to_string()), "").unwrap();
        }
    }
}

fn places(pod: &str) -> WorkloadPlaces {
    WorkloadPlaces {
        workload: pod.to_owned(),
        id: CgroupId(1),
        cgroup: Path::new("/nonexistent").to_owned(),
        pod: Some(PodUid(pod.to_owned())),
        layers: Vec::new(),
        is_limited: false,
        trusts_quotas: true,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await }).unwrap()
}

/// Waits until the usage of a pod is as expected.
fn until(walker: &mut Walker, pod: &str, is_expected: impl Fn(&Usage) -> bool) -> Arc<Usage> {
    block_on(async {
        loop {
            let usage = walker.usages().get(pod, CgroupId(1)).cloned();
            if let Some(usage) = usage.filter(|usage| is_expected(usage)) {
                return usage;
            }
            walker.changed().await;
        }
    })
}

#[test]
fn prioritized_workloads_are_measured_again() {
    let node = Node::new();
    node.files("a", 10);
    node.files("b", 20);
    let mut walker = Walker::start(&DiskUsageOptions::default(), node.roots()).unwrap();
    walker.set_workloads(vec![places("a"), places("b")]);
    assert_eq!(until(&mut walker, "a", |_| true).inodes, 11);
    assert_eq!(until(&mut walker, "b", |_| true).inodes, 21);
    node.files("b", 50);
    walker.prioritize("b");
    assert_eq!(until(&mut walker, "b", |usage| usage.inodes != 21).inodes, 51);
    // The results of a removed workload are dropped.
    walker.set_workloads(vec![places("b")]);
    block_on(async {
        while walker.usages().get("a", CgroupId(1)).is_some() {
            walker.changed().await;
        }
    });
    let usages = walker.usages();
    assert!(usages.get("b", CgroupId(1)).is_some() && usages.effort.measured >= 3, "{usages:?}");
    assert!(usages.effort.entries >= 80 && usages.effort.cpu > Duration::ZERO, "{usages:?}");
}

#[test]
fn the_budget_is_kept() {
    const SHARE: f64 = 0.05;
    let node = Node::new();
    node.files("a", 10_000);
    let options = DiskUsageOptions { cpu_share: SHARE, ..DiskUsageOptions::default() };
    let mut walker = Walker::start(&options, node.roots()).unwrap();
    let begun = Instant::now();
    walker.set_workloads(vec![places("a")]);
    let usage = until(&mut walker, "a", |usage| usage.is_complete);
    let (cpu, took) = (walker.usages().effort.cpu, begun.elapsed());
    assert_eq!(usage.inodes, 10_001);
    // The delay for the last step would follow after it.
    let allowed = took.mul_f64(SHARE) + Duration::from_millis(10);
    assert!(cpu <= allowed, "{cpu:?} of {took:?}");
}

#[test]
fn a_prioritized_workload_interrupts_a_long_walk() {
    let node = Node::new();
    node.files("large", 20_000);
    node.files("small", 10);
    let options = DiskUsageOptions { cpu_share: 0.01, ..DiskUsageOptions::default() };
    let mut walker = Walker::start(&options, node.roots()).unwrap();
    walker.set_workloads(vec![places("large")]);
    // The walk has begun.
    until(&mut walker, "large", |usage| usage.inodes > 100);
    walker.set_workloads(vec![places("large"), places("small")]);
    walker.prioritize("small");
    assert_eq!(until(&mut walker, "small", |_| true).inodes, 11);
    let large = walker.usages().get("large", CgroupId(1)).cloned().unwrap();
    assert!(!large.is_complete, "{large:?}");
    // The budget is larger under pressure.
    walker.set_pressure(true);
    assert_eq!(until(&mut walker, "large", |usage| usage.is_complete).inodes, 20_001);
}

#[test]
fn constant_priority_does_not_starve_the_others() {
    let node = Node::new();
    node.files("large", 20_000);
    node.files("small", 10);
    // The walk takes many seconds.
    let options = DiskUsageOptions { cpu_share: 0.01, ..DiskUsageOptions::default() };
    let mut walker = Walker::start(&options, node.roots()).unwrap();
    walker.set_workloads(vec![places("large"), places("small")]);
    walker.prioritize("large");
    assert_eq!(until(&mut walker, "small", |_| true).inodes, 11);
    let large = walker.usages().get("large", CgroupId(1)).cloned().unwrap();
    assert!(!large.is_complete, "{large:?}");
    walker.set_pressure(true);
    assert_eq!(until(&mut walker, "large", |usage| usage.is_complete).inodes, 20_001);
}

#[test]
fn a_long_walk_ends_despite_orders_to_remeasure() {
    let node = Node::new();
    node.files("large", 10_000);
    node.files("small", 10);
    let options = DiskUsageOptions { cpu_share: 0.02, ..DiskUsageOptions::default() };
    let walker = Walker::start(&options, node.roots()).unwrap();
    walker.set_workloads(vec![places("large"), places("small")]);
    let begun = Instant::now();
    loop {
        if walker.usages().get("large", CgroupId(1)).is_some_and(|usage| usage.is_complete) {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the walk starts again and again");
        walker.remeasure(Monotonic::now());
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(walker.usages().get("large", CgroupId(1)).unwrap().inodes, 10_001);
}

#[test]
fn the_thread_ends_with_the_walker() {
    let node = Node::new();
    node.files("a", 20_000);
    let walker = Walker::start(&DiskUsageOptions::default(), node.roots()).unwrap();
    walker.set_workloads(vec![places("a")]);
    let shared = Arc::downgrade(&walker.shared);
    drop(walker);
    let begun = Instant::now();
    while shared.upgrade().is_some() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it goes on");
        std::thread::yield_now();
    }
}
