use super::*;
use crate::eviction::arm;
use crate::node::mountinfo::Inodes;
use crate::node::statfs::{Place, Space};
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
fn what_a_filesystem_cannot_tell_is_said_where_somebody_waits_for_it() {
    let seen = Seen {
        samples: vec![sample(Role::Node, "btrfs", true, false), sample(Role::Container, "ramfs", false, false)],
        missing: vec![(Role::Image, "there is no /x".to_owned())],
        layout: Layout::Single,
    };
    let all: Vec<String> =
        missing(&seen, |_| true).into_iter().map(|(what, reason)| format!("{what}: {reason}")).collect();
    assert_eq!(
        all,
        [
            "nodefs.inodesFree: btrfs at /m has no limit of inodes: there is no such signal",
            "imagefs: there is no /x; its signals are not there",
            "containerfs.available: ramfs at /m has no size of its own: there is no such signal",
            "containerfs.inodesFree: ramfs at /m has no limit of inodes: there is no such signal",
        ]
    );
    assert_eq!(missing(&seen, |_| false), []);
    let only = missing(&seen, |signal| signal == Signal::NodeFsInodesFree);
    assert_eq!(only.len(), 1, "{only:?}");
}

#[test]
fn a_read_only_filesystem_has_no_signal_and_says_so() {
    let root = FsSample { is_read_only: true, ..sample(Role::Node, "squashfs", false, false) };
    let seen = Seen { samples: vec![root], ..Seen::default() };
    assert_eq!(seen.values(), []);
    let reasons = missing(&seen, |signal| signals(Role::Node).contains(&signal));
    let reason = "squashfs at /m is read-only: there is no such signal".to_owned();
    assert_eq!(reasons, [("nodefs.available", reason.clone()), ("nodefs.inodesFree", reason)]);
}

/// A root without sizes (the initramfs), or that nobody can write to, is not a disk that is full.
#[test]
fn what_cannot_run_out_is_no_pressure() {
    use crate::eviction::{State, assess};
    let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
    let hard =
        "evictionHard: {nodefs.available: 10%, nodefs.inodesFree: 5%, imagefs.available: 15%, imagefs.inodesFree: 1}";
    let config = MonitorConfig::parse("m.yaml", &format!("{head}{hard}\n")).unwrap().config;
    let armed = arm(&config.policy, Layout::Single);
    for (kind, is_read_only) in [("rootfs", false), ("ramfs", false), ("tmpfs", false), ("erofs", true)] {
        let samples =
            Role::ALL.map(|role| FsSample { is_read_only, ..sample(role, kind, false, false) }).into_iter().collect();
        let seen = Seen { samples, ..Seen::default() };
        let observation = Observation { signals: seen.values() };
        let (_, assessment) = assess(&config.policy, &armed, &State::default(), &observation, Monotonic(0).into());
        assert!(assessment.met.is_empty() && assessment.conditions.is_empty(), "{kind}: {assessment:?}");
        let said = missing(&seen, |signal| config.policy.thresholds.iter().any(|it| it.signal == signal));
        assert_eq!(said.len(), 4, "{said:?}");
    }
}

#[test]
fn between_two_devices_there_is_no_slope() {
    let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
    let config =
        MonitorConfig::parse("m.yaml", &format!("{head}evictionHard: {{memory.available: 1}}\n")).unwrap().config;
    let mut of_agent = Signals::start(&config, &mut Vec::new()).unwrap();
    let mut step = |device: &str, available: u64, second: u64| {
        let mut sample = sample(Role::Node, "ext4", false, false);
        sample.place = Arc::new(Place { device: device.to_owned(), ..Place::clone(&sample.place) });
        sample.space = Some(Space { available: Bytes(available), capacity: Bytes(1 << 40), used: Bytes(0) });
        sample.at = Monotonic(second * 1_000_000_000);
        let seen = Seen { samples: vec![sample], ..Seen::default() };
        of_agent.follow_slopes(&seen, &seen.values());
        of_agent.slope(Signal::NodeFsAvailable).and_then(Slope::per_second)
    };
    step("8:1", 1 << 39, 1);
    assert!(step("8:1", 1 << 38, 2).is_some_and(|slope| slope < -1e9));
    assert_eq!(step("8:2", 1 << 20, 3), None);
    assert_eq!(step("8:2", 1 << 20, 4), Some(0.0));
}

#[test]
fn process_ids_are_looked_at_before_they_can_be_gone() {
    let text = |hard: &str| {
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        MonitorConfig::parse("m.yaml", &format!("{head}evictionHard: {{{hard}}}\n")).unwrap().config
    };
    let signals = |tasks| {
        let mut signals = Signals::start(&text("memory.available: 1"), &mut Vec::new()).unwrap();
        signals.rate = FallRate::of_units(20_000.0);
        signals.sample = Some(PidSample { tasks, most: 4096, at: Monotonic(0) });
        signals
    };
    let until = |tasks, hard| signals(tasks).until_pids(&text(hard), Monotonic(0)).map(|until| until.as_millis());
    assert_eq!(until(96, "pid.available: 1000"), Some(150), "3000 at 20,000 a second");
    assert_eq!(until(3090, "pid.available: 1000"), Some(5), "the floor");
    assert_eq!(until(3097, "pid.available: 1000"), Some(100), "crossed");
    assert_eq!(until(96, "memory.available: 1Mi"), None, "nobody waits for them");
}

/// Against `pid_max` 4096 on two CPUs, from whatever moment between two looks the bomb begins.
#[test]
fn a_fork_bomb_is_seen_while_there_are_process_ids_left() {
    let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
    let text = format!("{head}evictionHard: {{pid.available: 10%}}\n");
    let config = MonitorConfig::parse("m.yaml", &text).unwrap().config;
    let mut signals = Signals::start(&config, &mut Vec::new()).unwrap();
    let mut worst = u64::MAX;
    for begins_ms in 0..100 {
        let forks_per_ms = 40;
        let tasks = |ms: u64| 100 + forks_per_ms * ms.saturating_sub(begins_ms);
        signals.rate = FallRate::of_units(2.0 * FORKS_PER_CPU);
        let mut ms = 0;
        let left = loop {
            let sample = PidSample { tasks: tasks(ms), most: 4096, at: Monotonic(ms * 1_000_000) };
            signals.rate.observe_units(float(value(&sample).available), sample.at);
            signals.sample = Some(sample);
            if sample.available() < 4096 / 10 {
                break sample.available();
            }
            let wait = signals.until_pids(&config, sample.at).unwrap();
            ms += u64::try_from(wait.as_millis()).unwrap().max(1);
        };
        worst = worst.min(left);
    }
    println!(
        "a bomb of 40,000 forks a second is seen with {worst} of 4096 process ids left, at worst; the threshold is 409"
    );
    assert!(worst >= 200, "{worst}");
}
