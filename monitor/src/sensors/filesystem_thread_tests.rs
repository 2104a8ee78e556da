use std::path::{Path, PathBuf};

use super::super::filesystem_asker::CROSSED;
use super::*;
use crate::config::FilesystemPaths;
use crate::eviction::Layout;
use crate::node::mountinfo::Inodes;
use crate::node::statfs::{Place, Space};
use crate::units::Bytes;

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
        is_read_only: false,
        space: Some(Space { available: Bytes(available), capacity: Bytes(100 * GIB), used: Bytes(0) }),
        inodes: free.map(|free| Inodes { total: 1_000_000, free }),
        at: Monotonic(at),
    }
}

fn answers(samples: Vec<FsSample>) -> Answers {
    Answers { samples, ..Answers::default() }
}

fn combined(asker: &mut Asker, answers: Vec<(Role, Result<FsSample, NoSample>)>) -> Answers {
    let answers = answers.into_iter().map(|(role, answer)| (role, Answer::Given(answer))).collect();
    asker.combine(answers, &Answers::default(), Monotonic(0))
}

#[test]
fn layout_follows_from_devices() {
    use Role::{Container, Image, Node};
    for (name, devices, expected) in [
        ("one for all", &[(Node, "8:1"), (Image, "8:1"), (Container, "8:1")][..], Layout::Single),
        ("images elsewhere", &[(Node, "8:1"), (Image, "8:2"), (Container, "8:2")], Layout::DedicatedImageFs),
        ("only images elsewhere", &[(Node, "8:1"), (Image, "8:2"), (Container, "8:1")], Layout::SplitImageFs),
        ("no runtime", &[(Node, "8:1")], Layout::Single),
        ("the layers are not told", &[(Node, "8:1"), (Image, "8:2")], Layout::DedicatedImageFs),
        ("nothing answers", &[], Layout::Single),
    ] {
        let samples = devices.iter().map(|(role, device)| (*role, Ok(sample(*role, device, 1, None, 0)))).collect();
        let mut asker = Asker::new(&config("evictionHard: {nodefs.available: 1}"));
        assert_eq!(combined(&mut asker, samples).layout, expected, "{name}");
    }
}

#[test]
fn a_failing_filesystem_keeps_its_place_in_the_layout() {
    use Role::{Container, Image, Node};
    let mut asker = Asker::new(&config("evictionHard: {nodefs.available: 1}"));
    let given = |image: &dyn Fn(Role) -> Result<FsSample, NoSample>| {
        vec![(Node, Ok(sample(Node, "8:1", 1, None, 0))), (Image, image(Image)), (Container, image(Container))]
    };
    let there = |role| Ok(sample(role, "8:2", 1, None, 0));
    assert_eq!(combined(&mut asker, given(&there)).layout, Layout::DedicatedImageFs);
    let broken = combined(&mut asker, given(&|_| Err(NoSample::Failed("EIO".to_owned()))));
    assert_eq!(broken.layout, Layout::DedicatedImageFs, "the layout keeps the filesystem");
    assert_eq!((broken.samples.len(), broken.missing.len()), (1, 2), "without a signal");
    let gone = combined(&mut asker, given(&|_| Err(NoSample::Absent("there is no /x".to_owned()))));
    assert_eq!(gone.layout, Layout::Single);
    assert_eq!(combined(&mut asker, given(&there)).layout, Layout::DedicatedImageFs);
}

#[test]
fn a_change_of_device_is_not_a_fall() {
    let mut asker = Asker::new(&config("evictionHard: {nodefs.available: 1Gi}"));
    let mut step = |device: &str, gib: u64, second: u64| {
        let sample = sample(Role::Node, device, gib * GIB, None, second * 1_000_000_000);
        let seen = combined(&mut asker, vec![(Role::Node, Ok(sample))]);
        let observation = Observation { signals: seen.values() };
        asker.learn(&seen, &observation);
        asker.until_next(&observation)
    };
    step("8:1", 91, 0);
    assert_eq!(step("8:2", 5, 1), Duration::from_secs(2), "4 GiB at 2 GiB a second, not at 86");
}

/// Hangs for one role until the test releases it.
#[derive(Debug, Clone)]
struct Hanging {
    hangs: Arc<Mutex<Option<Role>>>,
    asked: Arc<Mutex<Vec<Role>>>,
}

impl StatfsCaller for Hanging {
    fn sample(&mut self, role: Role, _: &Choice) -> Result<FsSample, NoSample> {
        lock(&self.asked).push(role);
        while *lock(&self.hangs) == Some(role) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(sample(role, if role == Role::Node { "8:1" } else { "8:2" }, GIB, None, Monotonic::now().0))
    }

    fn boxed_clone(&self) -> Box<dyn StatfsCaller> {
        Box::new(self.clone())
    }
}

#[test]
fn a_hanging_filesystem_loses_only_its_own_signals() {
    let hanging = Hanging { hangs: Arc::default(), asked: Arc::default() };
    let (hangs, asked) = (Arc::clone(&hanging.hangs), Arc::clone(&hanging.asked));
    let filesystems =
        FilesystemThread::start_with(&config("evictionHard: {nodefs.available: 1}"), Box::new(hanging)).unwrap();
    let until = |filesystems: &FilesystemThread, what: &str, is_so: &dyn Fn(&Answers) -> bool| {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !is_so(&filesystems.answers()) {
            assert!(std::time::Instant::now() < deadline, "{what}: {:?}", filesystems.answers());
            filesystems.ask_now();
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until(&filesystems, "all of them answer", &|seen| seen.samples.len() == 3);
    *lock(&hangs) = Some(Role::Image);
    let begun = lock(&asked).len();
    filesystems.ask_now();
    while lock(&asked).iter().skip(begun).all(|role| *role != Role::Image) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 0..10_000_u32 {
        filesystems.growth(vec![("8:1".to_owned(), f64::from(number))]);
        filesystems.ask_now();
    }
    let orders = std::mem::take(&mut lock(&filesystems.shared.duty).orders);
    assert_eq!(orders, Orders { growth: vec![("8:1".to_owned(), 9999.0)], asks_now: true, ..Orders::default() });
    filesystems.replace_blocked(Monotonic::now());
    assert!(lock(&filesystems.shared.duty).held.is_empty(), "the filesystem may only be slow");
    let at = |seen: &Answers, role| seen.of(role).unwrap().at;
    let before = filesystems.answers();
    filesystems.replace_blocked(Monotonic::now().after(BLOCKED_AFTER + Duration::from_secs(1)));
    until(&filesystems, "the others go on", &|seen| {
        at(seen, Role::Node) > at(&before, Role::Node) && at(seen, Role::Container) > at(&before, Role::Container)
    });
    assert_eq!(
        at(&filesystems.answers(), Role::Image),
        at(&before, Role::Image),
        "the last answer is not out of date yet"
    );
    assert_eq!(filesystems.hangs(Monotonic::now()), None);
    // Some time later the answer is out of date.
    lock(&filesystems.shared.duty).held[0].1 = Monotonic(0);
    until(&filesystems, "only imagefs is missing", &|seen| {
        seen.missing.first().is_some_and(|(role, reason)| *role == Role::Image && reason.contains("not answered for"))
    });
    let seen = filesystems.answers();
    assert_eq!((seen.samples.len(), seen.layout), (2, Layout::DedicatedImageFs), "{seen:?}");
    // The filesystem answers again.
    *lock(&hangs) = None;
    until(&filesystems, "it answers again", &|seen| seen.samples.len() == 3);
    assert!(lock(&filesystems.shared.duty).held.is_empty());
    // No other thread could be started for a long time, so every answer is out of date.
    let shared = Arc::new(Shared::new(Asker::new(&config("evictionHard: {nodefs.available: 1}"))));
    lock(&shared.duty).asking = Some((Role::Node, Monotonic(0)));
    let left = FilesystemThread { shared, statfs: filesystems.statfs.boxed_clone() };
    let reason = left.hangs(Monotonic(40_000_000_000)).unwrap();
    assert!(reason.contains("nodefs has not answered for 40 s"), "{reason}");
}

#[test]
fn no_inode_signal_without_a_limit_of_inodes() {
    let samples = vec![sample(Role::Node, "8:1", 5, Some(7), 3), sample(Role::Image, "0:40", 6, None, 4)];
    let shown: Vec<_> = answers(samples)
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
fn wait_shrinks_near_a_threshold_and_crossing_wakes_the_loop() {
    let config = config("evictionHard: {nodefs.available: 10Gi, nodefs.inodesFree: 5%}");
    let mut asker = Asker::new(&config);
    let mut step = |gib: u64, free: u64, second: u64| {
        let seen = answers(vec![sample(Role::Node, "8:1", gib * GIB, Some(free), second * 1_000_000_000)]);
        let observation = Observation { signals: seen.values() };
        let news = asker.learn(&seen, &observation);
        (news, asker.until_next(&observation))
    };
    assert_eq!(
        step(90, 900_000, 0),
        (true, Duration::from_secs(10)),
        "the layout has changed; the wait is the ceiling"
    );
    assert_eq!(step(90, 900_000, 10), (false, Duration::from_secs(10)));
    assert_eq!(step(18, 900_000, 100), (false, Duration::from_secs(4)), "8 GiB at 2 GiB a second");
    assert_eq!(step(90, 70_000, 1000), (false, Duration::from_secs(1)), "20,000 inodes at 20,000 a second");
    assert_eq!(step(9, 900_000, 1001), (true, CROSSED));
    assert_eq!(step(9, 900_000, 1002), (true, CROSSED), "repeated while it is crossed");
    let (news, wait) = step(12, 900_000, 1003);
    assert!(news, "the recovery wakes the loop");
    assert!(wait < Duration::from_millis(100), "81 GiB were used in a second: {wait:?}");
}

#[test]
fn counted_inodes_shorten_the_wait() {
    let config = config("evictionHard: {nodefs.inodesFree: 50%}");
    let mut asker = Asker::new(&config);
    let seen = answers(vec![sample(Role::Node, "8:1", GIB, Some(600_000), 0)]);
    let observation = Observation { signals: seen.values() };
    asker.learn(&seen, &observation);
    let grows = |device: &str, rate| Orders { growth: vec![(device.to_owned(), rate)], ..Orders::default() };
    assert_eq!(asker.until_next(&observation), Duration::from_secs(5));
    asker.obey(grows("8:9", 1e6), &seen);
    assert_eq!(asker.until_next(&observation), Duration::from_secs(5), "another disk");
    asker.obey(grows("8:1", 1e5), &seen);
    assert_eq!(asker.until_next(&observation), Duration::from_secs(1));
}

#[test]
fn filesystems_of_this_machine_answer() {
    let directory = tempfile::tempdir().unwrap();
    let missing: PathBuf = directory.path().join("missing");
    let mut config = config("evictionHard: {nodefs.available: 1}");
    config.filesystems.node = Some(directory.path().to_owned());
    config.filesystems.image = Some(missing);
    config.filesystems.container = Some(directory.path().to_owned());
    let filesystems = FilesystemThread::start(&config).unwrap();
    // On a busy machine the first answer may arrive late.
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while filesystems.answers().of(Role::Node).is_none() && std::time::Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let seen = filesystems.answers();
    assert_eq!(seen.of(Role::Node).unwrap().place.path, directory.path());
    let [(Role::Image, reason)] = seen.missing.as_slice() else { panic!("{seen:?}") };
    assert!(reason.contains("missing") && reason.contains("filesystems.imagefs"), "{reason}");
    assert_eq!(filesystems.hangs(Monotonic::now()), None);
    // Without paths in the configuration, those of the runtime count.
    config.filesystems = FilesystemPaths::default();
    let filesystems = FilesystemThread::start(&config).unwrap();
    filesystems.hint(FilesystemHints { image: Some("/proc".into()), container: None });
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while filesystems.answers().of(Role::Image).is_none_or(|image| image.place.mount_point != Path::new("/proc")) {
        assert!(std::time::Instant::now() < deadline, "{:?}", filesystems.answers());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(filesystems.answers().layout, Layout::DedicatedImageFs);
}
