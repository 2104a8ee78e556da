use std::path::{Path, PathBuf};

use super::*;
use crate::config::MonitorConfig;
use crate::node::filesystems::Inodes;
use crate::node::statfs::{Place, Space};

const GIB: u64 = 1 << 30;

fn config(evictions: &str) -> MonitorConfig {
    let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
    MonitorConfig::parse("m.yaml", &format!("{head}{evictions}\n")).unwrap().config
}

fn sample(role: Role, device: &str, available: u64, free: Option<u64>, at: u64) -> FsSample {
    let place =
        Place { path: "/p".into(), device: device.to_owned(), mount_point: "/".into(), kind: "ext4".to_owned() };
    FsSample {
        role,
        place: Arc::new(place),
        space: Some(Space { available: Bytes(available), capacity: Bytes(100 * GIB) }),
        inodes: free.map(|free| Inodes { total: 1_000_000, free }),
        at: Monotonic(at),
    }
}

fn seen(samples: Vec<FsSample>) -> Seen {
    Seen { layout: Seen::layout(&samples), samples, missing: Vec::new() }
}

#[test]
fn roles_share_devices_or_not() {
    use Role::{Container, Image, Node};
    for (name, devices, expected) in [
        ("one for all", &[(Node, "8:1"), (Image, "8:1"), (Container, "8:1")][..], Layout::Single),
        ("images elsewhere", &[(Node, "8:1"), (Image, "8:2"), (Container, "8:2")], Layout::DedicatedImageFs),
        ("only images elsewhere", &[(Node, "8:1"), (Image, "8:2"), (Container, "8:1")], Layout::SplitImageFs),
        ("no runtime", &[(Node, "8:1")], Layout::Single),
        ("the layers are not told", &[(Node, "8:1"), (Image, "8:2")], Layout::DedicatedImageFs),
        ("nothing answers", &[], Layout::Single),
    ] {
        let samples: Vec<_> = devices.iter().map(|(role, device)| sample(*role, device, 1, None, 0)).collect();
        assert_eq!(Seen::layout(&samples), expected, "{name}");
    }
}

#[test]
fn a_filesystem_without_a_limit_of_inodes_has_no_such_signal() {
    let samples = vec![sample(Role::Node, "8:1", 5, Some(7), 3), sample(Role::Image, "0:40", 6, None, 4)];
    let shown: Vec<_> = seen(samples)
        .values()
        .into_iter()
        .map(|value| (value.signal.as_str(), value.available, value.at.map(|at| at.0)))
        .collect();
    assert_eq!(
        shown,
        [("nodefs.available", 5, Some(3)), ("nodefs.inodesFree", 7, Some(3)), ("imagefs.available", 6, Some(4))]
    );
}

#[test]
fn the_nearer_the_sooner_and_the_loop_is_woken_when_something_is_crossed() {
    let config = config("evictionHard: {nodefs.available: 10Gi, nodefs.inodesFree: 5%}");
    let mut asker = Asker::new(&config);
    let mut step = |gib: u64, free: u64, second: u64| {
        let seen = seen(vec![sample(Role::Node, "8:1", gib * GIB, Some(free), second * 1_000_000_000)]);
        let observation = Observation { signals: seen.values() };
        let news = asker.take_in(&seen, &observation);
        (news, asker.until_next(&observation))
    };
    assert_eq!(step(90, 900_000, 0), (true, Duration::from_secs(10)), "the layout is news; the ceiling");
    assert_eq!(step(90, 900_000, 10), (false, Duration::from_secs(10)));
    assert_eq!(step(18, 900_000, 100), (false, Duration::from_secs(4)), "8 GiB at 2 GiB a second");
    assert_eq!(step(90, 70_000, 1000), (false, Duration::from_secs(1)), "20,000 inodes at 20,000 a second");
    assert_eq!(step(9, 900_000, 1001), (true, CROSSED));
    assert_eq!(step(9, 900_000, 1002), (true, CROSSED), "for as long as it is");
    let (news, wait) = step(12, 900_000, 1003);
    assert!(news, "it has recovered");
    assert!(wait < Duration::from_millis(100), "81 GiB were gone in a second: {wait:?}");
}

#[test]
fn the_programs_counters_bring_the_next_look_forward() {
    let config = config("evictionHard: {nodefs.inodesFree: 50%}");
    let mut asker = Asker::new(&config);
    let seen = seen(vec![sample(Role::Node, "8:1", GIB, Some(600_000), 0)]);
    let observation = Observation { signals: seen.values() };
    asker.take_in(&seen, &observation);
    let shared = Shared {
        seen: Mutex::new(Arc::new(seen)),
        asking: Mutex::new((Role::Node, Monotonic(0))),
        news: Notify::new(),
    };
    assert_eq!(asker.until_next(&observation), Duration::from_secs(5));
    asker.follow(Order::Growth { device: "8:9".to_owned(), per_second: 1e6 }, &shared);
    assert_eq!(asker.until_next(&observation), Duration::from_secs(5), "another disk");
    asker.follow(Order::Growth { device: "8:1".to_owned(), per_second: 1e5 }, &shared);
    assert_eq!(asker.until_next(&observation), Duration::from_secs(1));
}

#[test]
fn this_machines_filesystems_answer() {
    let directory = tempfile::tempdir().unwrap();
    let missing: PathBuf = directory.path().join("missing");
    let mut config = config("evictionHard: {nodefs.available: 1}");
    config.filesystems.node = Some(directory.path().to_owned());
    config.filesystems.image = Some(missing);
    config.filesystems.container = Some(directory.path().to_owned());
    let filesystems = Filesystems::start(&config).unwrap();
    let seen = filesystems.seen();
    assert_eq!(seen.of(Role::Node).unwrap().place.path, directory.path());
    let [(Role::Image, reason)] = seen.missing.as_slice() else { panic!("{seen:?}") };
    assert!(reason.contains("missing") && reason.contains("filesystems.imagefs"), "{reason}");
    assert_eq!(filesystems.hangs(Monotonic::now()), None);
    // The runtime's word, where the operator has said nothing.
    config.filesystems = FilesystemPaths::default();
    let filesystems = Filesystems::start(&config).unwrap();
    filesystems.hint(FilesystemHints { image: Some("/proc".into()), container: None });
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while filesystems.seen().of(Role::Image).is_none_or(|image| image.place.mount_point != Path::new("/proc")) {
        assert!(std::time::Instant::now() < deadline, "{:?}", filesystems.seen());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(filesystems.seen().layout, Layout::DedicatedImageFs);
}
