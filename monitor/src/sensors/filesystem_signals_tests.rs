use super::*;
use crate::eviction::{Observation, arm};
use crate::node::mountinfo::Inodes;
use crate::node::statfs::Space;
use crate::units::Bytes;

fn sample(role: Role, kind: &str, space: bool, inodes: bool) -> FsSample {
    let place = Place { path: "/p".into(), device: "8:1".into(), mount_point: "/m".into(), kind: kind.to_owned() };
    FsSample {
        role,
        place: Arc::new(place),
        is_read_only: false,
        space: space.then_some(Space { available: Bytes(1), capacity: Bytes(2), used: Bytes(1) }),
        inodes: inodes.then_some(Inodes { total: 2, free: 1 }),
        at: Monotonic(0),
    }
}

#[test]
fn a_missing_signal_is_reported_where_a_threshold_is_set() {
    let answers = Answers {
        samples: vec![sample(Role::Node, "btrfs", true, false), sample(Role::Container, "ramfs", false, false)],
        missing: vec![(Role::Image, "there is no /x".to_owned())],
        layout: Layout::Single,
    };
    let all: Vec<String> =
        missing(&answers, |_| true).into_iter().map(|(what, reason)| format!("{what}: {reason}")).collect();
    assert_eq!(
        all,
        [
            "nodefs.inodesFree: btrfs at /m has no limit of inodes: there is no such signal",
            "imagefs: there is no /x; its signals are not there",
            "containerfs.available: ramfs at /m has no size of its own: there is no such signal",
            "containerfs.inodesFree: ramfs at /m has no limit of inodes: there is no such signal",
        ]
    );
    assert_eq!(missing(&answers, |_| false), []);
    let only = missing(&answers, |signal| signal == Signal::NodeFsInodesFree);
    assert_eq!(only.len(), 1, "{only:?}");
}

#[test]
fn a_read_only_filesystem_has_no_signal() {
    let root = FsSample { is_read_only: true, ..sample(Role::Node, "squashfs", false, false) };
    let answers = Answers { samples: vec![root], ..Answers::default() };
    assert_eq!(answers.values(), []);
    let reasons = missing(&answers, |signal| signals(Role::Node).contains(&signal));
    let reason = "squashfs at /m is read-only: there is no such signal".to_owned();
    assert_eq!(reasons, [("nodefs.available", reason.clone()), ("nodefs.inodesFree", reason)]);
}

/// A filesystem that has no size (the initramfs) or is read-only does not count as a full disk.
#[test]
fn a_filesystem_that_cannot_fill_causes_no_pressure() {
    use crate::eviction::{State, assess};
    let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
    let hard =
        "evictionHard: {nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 1}";
    let config = MonitorConfig::parse("m.yaml", &format!("{head}{hard}\n")).unwrap().config;
    let armed = arm(&config.policy, Layout::Single);
    for (kind, is_read_only) in [("rootfs", false), ("ramfs", false), ("tmpfs", false), ("erofs", true)] {
        let samples =
            Role::ALL.map(|role| FsSample { is_read_only, ..sample(role, kind, false, false) }).into_iter().collect();
        let answers = Answers { samples, ..Answers::default() };
        let observation = Observation { signals: answers.values() };
        let (_, assessment) = assess(&config.policy, &armed, &State::default(), &observation, Monotonic(0).into());
        assert!(assessment.met.is_empty() && assessment.conditions.is_empty(), "{kind}: {assessment:?}");
        let missing = missing(&answers, |signal| config.policy.thresholds.iter().any(|it| it.signal == signal));
        assert_eq!(missing.len(), 4, "{missing:?}");
    }
}

#[test]
fn a_filesystem_that_answers_again_is_restored() {
    let config = MonitorConfig { proc_root: "/nonexistent".into(), ..MonitorConfig::default() };
    let mut signals = FilesystemSignals::start(&config).unwrap();
    signals.missing = vec![(Role::Image.as_str(), "EIO".to_owned())];
    assert_eq!(missing_now(&signals), ["imagefs: EIO"]);
    signals.missing.clear();
    signals.hangs = Some("nodefs has not answered for 40 s".to_owned());
    assert_eq!(missing_now(&signals), ["filesystems: nodefs has not answered for 40 s"]);
}

fn missing_now(signals: &FilesystemSignals) -> Vec<String> {
    let mut missing = Vec::new();
    signals.capabilities(|capability, reason| {
        missing.extend(reason.map(|reason| format!("{}: {reason}", capability.name)));
    });
    missing
}
