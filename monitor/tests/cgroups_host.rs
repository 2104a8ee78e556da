//! Workloads and kills on real cgroups of this machine. The test creates small cgroups and touches no others.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use node_pressure_monitor::actions::kill_writer::KillWriter;
use node_pressure_monitor::actions::{Evictor, FreezeRecord, Outcome, Target};
use node_pressure_monitor::config::{EvictionLimits, Mode, NamePattern, OomScores, built_in_patterns};
use node_pressure_monitor::eviction::decider::blocks;
use node_pressure_monitor::node::pinned_file::Buffer;
use node_pressure_monitor::node::{CgroupVersion, Hierarchy};
use node_pressure_monitor::units::Monotonic;
use node_pressure_monitor::units::Signal;
use node_pressure_monitor::workloads::{Kind, Protection, QosClass, WorkloadTree, task_count};

#[macro_use]
#[path = "support/sleepers.rs"]
mod sleepers;

#[path = "../../tests/src/reference.rs"]
#[expect(dead_code, reason = "the guest uses the rest")]
mod reference;

use reference::NATIVE_READS;
use sleepers::{Cgroups, PROC, wait_until};

#[test]
fn workloads_are_found_with_class_and_protection() {
    let Some(mut cgroups) = Cgroups::make("scan") else { return };
    let uid = "11112222-3333-4444-5555-666677778888";
    let pod = cgroups.workload(&format!("kubepods-besteffort-pod{}.slice", uid.replace('-', "_")), 1);
    // Memory that a sleeper allocated before the move is not charged here.
    let service = cgroups.workload_of("web.service", 2, &["sh", "-c", "while sleep 0.05; do :; done"]);
    let named = cgroups.workload("precious.service", 1);
    let empty = cgroups.workload("empty.service", 0);
    let protected = vec![NamePattern::new("precious.service").unwrap()];
    let mut tree = cgroups.tree(protected);
    let find = |name: &str| tree.workloads().find(|workload| workload.name == name).cloned();

    let found = find(&pod).expect("the pod");
    assert!(matches!(&found.kind, Kind::Pod(found) if found.0 == uid), "{found:?}");
    assert_eq!(found.qos, QosClass::BestEffort);
    assert_eq!(find(&service).expect("the service").protection, None);
    assert_eq!(find(&named).expect("the named one").protection, Some(Protection::Named));
    assert_eq!(find(&empty), None, "a cgroup without processes is no workload");
    let own: Vec<_> =
        tree.workloads().filter(|workload| workload.protection == Some(Protection::Agent)).cloned().collect();
    assert!(own.len() <= 1, "{own:?}");

    wait_until("memory charged to the service", || {
        let usages = tree.usages();
        let usage = usages.iter().find(|usage| usage.workload.name == service).expect("its usage");
        assert!(usage.working_set.0 < 1 << 30, "{usage:?}");
        usage.working_set.0 > 0
    });
}

#[test]
fn tasks_are_counted_with_and_without_the_controller() {
    let Some(mut cgroups) = Cgroups::make("pids") else { return };
    let name = cgroups.workload("many.service", 5);
    let tree = cgroups.tree(Vec::new());
    let tracked = tree.tracked().iter().find(|tracked| tracked.workload().name == name).expect("the workload");
    let mut buffer = Buffer::new();
    let mut count = || task_count::count(tracked.directory(), &name, &cgroups.hierarchy, &mut buffer);
    assert_eq!(count(), Some(5), "counted one by one, or by v2's controller");
    // v1 has a hierarchy for the controller, with the same path.
    let controller = cgroups.hierarchy.memory.parent().unwrap().join("pids");
    let own = controller.join(&name);
    if cgroups.hierarchy.version == CgroupVersion::V2 || fs::create_dir_all(&own).is_err() {
        tell!("SKIPPED the pids controller of v1: not here");
        return;
    }
    for child in cgroups.children.iter().take(3) {
        fs::write(own.join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    let counted = count();
    for child in cgroups.children.iter().take(3) {
        fs::write(controller.join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    for directory in [own.as_path(), own.parent().unwrap()] {
        fs::remove_dir(directory).unwrap();
    }
    assert_eq!(counted, Some(3), "the count is the controller's");
}

#[test]
fn a_kill_ends_every_process_of_the_workload_and_no_other() {
    let Some(mut cgroups) = Cgroups::make("kill") else { return };
    let bystander = cgroups.workload("bystander.service", 1);
    let victim = cgroups.workload("victim.service", 20);
    let tree = cgroups.tree(built_in_patterns());
    let tracked = tree.tracked().iter().find(|tracked| tracked.workload().name == victim).expect("the victim");
    let target = Target::new(tracked, tree.hierarchy(), Path::new(PROC), None);
    assert!(!target.is_gone());
    let limits = EvictionLimits {
        cool_down: Duration::ZERO,
        max_per_minute: 1,
        kill_timeout: Duration::from_secs(60),
        ..EvictionLimits::default()
    };
    let mut evictor = Evictor::start().unwrap();
    let killed = evictor.evict(target, Signal::MemoryAvailable, Duration::ZERO, Monotonic::now()).unwrap();
    assert_eq!(killed, 20);
    wait_until("the end of the victim", || cgroups.ended() == 20);
    assert_eq!(cgroups.end_of_eviction(&mut evictor, &limits).outcome, Outcome::Gone);
    let rest = cgroups.tree(Vec::new());
    assert!(rest.workloads().any(|workload| workload.name == bystander), "the bystander must survive");
    assert!(rest.workloads().all(|workload| workload.name != victim), "the victim must have no processes");
}

#[test]
fn a_soft_eviction_sends_sigterm_first() {
    let Some(mut cgroups) = Cgroups::make("soft") else { return };
    let victim = cgroups.workload("polite.service", 2);
    let target = cgroups.target(&victim);
    let mut evictor = Evictor::start().unwrap();
    let grace = Duration::from_secs(60);
    evictor.evict(target, Signal::MemoryAvailable, grace, Monotonic::now()).unwrap();
    assert!(!blocks(evictor.under_way(), false, true), "a hard threshold does not wait for a soft eviction");
    assert!(blocks(evictor.under_way(), false, false), "a soft threshold waits for a soft eviction");
    wait_until("the end of the victim", || cgroups.ended() == 2);
}

/// The name of a cgroup is bytes to the kernel; the agent shows a byte that is not UTF-8 in octal digits.
#[test]
fn a_workload_of_any_name_is_signalled() {
    let Some(mut cgroups) = Cgroups::make("names") else { return };
    for name in [r"\377", r"caf\303.service", r"a\x2db\134377.service"] {
        let victim = cgroups.workload(name, 2);
        let target = cgroups.target(&victim);
        assert!(!target.is_gone(), "{victim}");
        let mut evictor = Evictor::start().unwrap();
        let grace = Duration::from_secs(60);
        evictor.evict(target, Signal::MemoryAvailable, grace, Monotonic::now()).unwrap();
        wait_until("the end of the victim", || cgroups.ended() == 2);
        cgroups.end_children();
    }
}

/// Stops a process with SIGSTOP. A stopped process does not handle SIGTERM.
fn halt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    wait_until("its halt", || {
        let stat = fs::read_to_string(format!("{PROC}/{}/stat", pid.as_raw_nonzero())).unwrap();
        stat.contains(") T ")
    });
}

#[test]
fn a_workload_that_outlives_its_grace_period_is_killed() {
    let Some(mut cgroups) = Cgroups::make("stubborn") else { return };
    let victim = cgroups.workload("stubborn.service", 1);
    halt(&cgroups.children[0]);
    let target = cgroups.target(&victim);
    let mut evictor = Evictor::start().unwrap();
    let (started, grace) = (Monotonic::now(), Duration::from_millis(50));
    evictor.evict(target, Signal::MemoryAvailable, grace, started).unwrap();
    let ended = cgroups.end_of_eviction(&mut evictor, &EvictionLimits::default());
    assert_eq!(ended.outcome, Outcome::Gone);
    assert!(ended.killed.expect("it was killed").since(started) >= grace, "{ended:?}");
}

#[test]
fn a_cancelled_soft_eviction_does_not_kill() {
    let Some(mut cgroups) = Cgroups::make("spared") else { return };
    let victim = cgroups.workload("spared.service", 1);
    halt(&cgroups.children[0]);
    let target = cgroups.target(&victim);
    let mut evictor = Evictor::start().unwrap();
    let grace = Duration::from_millis(20);
    evictor.evict(target, Signal::MemoryAvailable, grace, Monotonic::now()).unwrap();
    // The agent switches to observe mode here.
    assert_eq!(evictor.stand_down(), [victim]);
    std::thread::sleep(3 * grace);
    assert_eq!(evictor.poll(&EvictionLimits::default(), Monotonic::now()), []);
    assert_eq!((evictor.next_poll(Monotonic::now()), cgroups.ended()), (None, 0));
}

#[test]
fn a_recreated_cgroup_is_another_workload() {
    let Some(mut cgroups) = Cgroups::make("identity") else { return };
    let name = cgroups.workload("again.service", 1);
    let target = cgroups.target(&name);
    let mut first = cgroups.children.remove(0);
    first.kill().unwrap();
    first.wait().unwrap();
    wait_until("the removal", || {
        let paths: Vec<PathBuf> = cgroups.hierarchies().map(|hierarchy| hierarchy.join(&name)).collect();
        paths.iter().filter(|path| path.exists()).all(|path| fs::remove_dir(path).is_ok())
    });
    cgroups.workload("again.service", 1);
    let _gone = target.kill(&KillWriter::start().unwrap());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(cgroups.ended(), 0, "the process of the new cgroup must survive");
}

#[test]
fn oom_score_adj_is_reported_and_only_set_when_enforcing() {
    use node_pressure_monitor::actions::oom_score::{Auditor, Extent, Rules};
    use node_pressure_monitor::units::Monotonic;
    use node_pressure_monitor::units::{Bytes, CgroupId};
    let Some(mut cgroups) = Cgroups::make("adj") else { return };
    let name = cgroups.workload("drifted.service", 3);
    let tree = cgroups.tree(Vec::new());
    let value =
        |child: &Child| fs::read_to_string(format!("/proc/{}/oom_score_adj", child.id())).unwrap().trim().to_owned();
    let before: Vec<String> = cgroups.children.iter().map(value).collect();
    // Only this workload: the test must not change others of this machine.
    let mut tree = tree;
    wait_until("a look at this workload alone", || {
        let others = tree.workloads().filter(|workload| workload.name != name);
        tree = cgroups.tree(others.map(|workload| NamePattern::new(&workload.name).unwrap()).collect());
        tree.workloads().filter(|workload| workload.protection.is_none()).count() == 1
    });
    let mut auditor = Auditor::default();
    let id = tree.workloads().find(|workload| workload.name == name).unwrap().id;
    let mut audit = |extent: Extent, mode| {
        let is_wanted = extent.holds(id);
        let rules = Rules { proc_root: Path::new(PROC), capacity: Bytes(1 << 30), scores: OomScores::KUBERNETES, mode };
        auditor.begin(&tree, extent);
        // The deadline has passed: each step handles one process, and three need more than one step.
        let found: Vec<_> = std::iter::repeat_with(|| auditor.step(&tree, rules, Monotonic(0))).take(20).collect();
        assert_eq!((found[0].is_none(), auditor.is_busy()), (is_wanted, false));
        found.into_iter().flatten().next().unwrap()
    };
    let nobody = audit(Extent::Some(HashSet::from([CgroupId(u64::MAX)])), Mode::Enforce);
    assert_eq!((nobody.repaired, nobody.drifted, nobody.workloads.len()), (0, 0, 0));
    let seen = audit(Extent::All, Mode::Observe);
    let drift = seen.workloads.iter().find(|drift| drift.workload == name).expect("the drift");
    assert_eq!((drift.processes, drift.expected, seen.newly_drifted), (3, 1000, 3));
    let again = audit(Extent::All, Mode::Observe);
    assert_eq!((again.drifted, again.newly_drifted), (3, 0), "each wrong value counts once");
    let nobody = audit(Extent::default(), Mode::Observe);
    assert_eq!((nobody.drifted, nobody.newly_drifted), (3, 0), "workloads that were not audited keep their count");
    let only = audit(Extent::Some(HashSet::from([id])), Mode::Observe);
    assert_eq!((only.drifted, only.newly_drifted), (3, 0));
    fs::write(format!("/proc/{}/oom_score_adj", cgroups.children[0].id()), "7").unwrap();
    assert_eq!(audit(Extent::All, Mode::Observe).newly_drifted, 1, "another wrong value is another drift");
    fs::write(format!("/proc/{}/oom_score_adj", cgroups.children[0].id()), &before[0]).unwrap();
    assert_eq!(cgroups.children.iter().map(value).collect::<Vec<_>>(), before, "observe mode changes no score");
    let set = audit(Extent::All, Mode::Enforce);
    assert_eq!((set.repaired, set.drifted, set.refused), (3, 0, None));
    assert!(cgroups.children.iter().map(value).all(|value| value == "1000"));
    assert!(audit(Extent::All, Mode::Enforce).workloads.is_empty());
    fs::write(format!("/proc/{}/oom_score_adj", cgroups.children[0].id()), "7").unwrap();
    let mended = audit(Extent::All, Mode::Enforce);
    assert_eq!((mended.newly_drifted, mended.repaired, mended.drifted), (1, 1, 0), "a second drift counts again");
}

#[test]
fn a_kill_does_not_wait_for_tasks_that_cannot_freeze() {
    let Some(mut cgroups) = Cgroups::make("stuck") else { return };
    let (writer, mut times) = (KillWriter::start().unwrap(), Vec::new());
    for attempt in 0..5 {
        let name = cgroups.workload(&format!("stuck{attempt}.service"), 0);
        let directory = cgroups.hierarchy.memory.join(&name);
        // Its tasks wait at the limit. Only SIGKILL interrupts them, and they do not freeze.
        let limited = fs::write(directory.join("memory.limit_in_bytes"), "8M")
            .and_then(|()| fs::write(directory.join("memory.oom_control"), "1"));
        if let Err(error) = limited {
            tell!("SKIPPED stuck: no v1 limit without an OOM killer here: {error}");
            return;
        }
        let mut child =
            Command::new("sh").args(["-c", "read go; exec tail /dev/zero"]).stdin(Stdio::piped()).spawn().unwrap();
        for hierarchy in cgroups.hierarchies() {
            fs::write(hierarchy.join(&name).join("cgroup.procs"), child.id().to_string()).unwrap();
        }
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        cgroups.children.push(child);
        wait_until("it to be stuck", || {
            fs::read_to_string(directory.join("memory.oom_control")).unwrap().contains("under_oom 1")
        });
        let target = cgroups.target(&name);
        let (killed, lasted) = took(|| target.kill(&writer));
        assert_eq!(killed.unwrap().pids.len(), 1);
        times.push(lasted);
        wait_until("its end", || cgroups.ended() == attempt + 1);
    }
    let quickest = times.iter().min().expect("five attempts");
    println!("killed after {times:?}");
    let limit = Duration::from_millis(20).mul_f64(NATIVE_READS.slowness().unwrap().patience());
    assert!(*quickest < limit, "{times:?}, {limit:?} are allowed");
}

/// The environment variable for a copy of this program: the workload to kill, and the lock file beside which it records frozen cgroups.
const KILLER: &str = "NPM_TEST_KILLER";
/// The number of attempts. The moment is short, and a busy machine misses it most of the time.
const ATTEMPTS: usize = 200;

/// The agent of the next test, which is killed before it ends. It is no test of its own.
#[test]
fn killer() {
    let Ok(order) = std::env::var(KILLER) else { return };
    let (name, lock) = order.split_once(':').unwrap();
    let hierarchy = Hierarchy::detect(Path::new("/sys/fs/cgroup")).unwrap();
    let mut tree = WorkloadTree::new(hierarchy, PROC.into(), Vec::new());
    tree.scan().unwrap();
    let tracked = tree.tracked().iter().find(|tracked| tracked.workload().name == name).unwrap();
    let target = Target::new(tracked, tree.hierarchy(), Path::new(PROC), None);
    let _outcome = target.recorded_in(FreezeRecord::beside(Path::new(lock))).kill(&KillWriter::start().unwrap());
}

#[test]
fn a_restart_thaws_what_a_killed_agent_froze() {
    let Some(mut cgroups) = Cgroups::make("thaw") else { return };
    let Some(freezer) = cgroups.hierarchy.freezer.clone() else {
        tell!("SKIPPED thaw: no v1 freezer here");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock");
    let record = directory.path().join("lock.frozen");
    for attempt in 0..ATTEMPTS {
        // Only a workload that forks is frozen.
        let forking = ["sh", "-c", "while :; do /bin/true; done"];
        let name = cgroups.workload_of(&format!("frozen{attempt}.service"), 20, &forking);
        let mut agent = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killer", "--quiet"])
            .env(KILLER, format!("{name}:{}", lock.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let state = freezer.join(&name).join("freezer.state");
        let state = || fs::read_to_string(&state).unwrap().trim().to_owned();
        // Some agents are killed after they record what they will freeze, others after they have frozen it.
        let is_time = || if attempt % 3 == 0 { record.exists() } else { state() != "THAWED" };
        while !is_time() && agent.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        agent.kill().unwrap();
        agent.wait().unwrap();
        let was_frozen = state() != "THAWED";
        let thawed = FreezeRecord::beside(&lock).thaw().unwrap();
        assert!(thawed.is_some() || !was_frozen, "a frozen cgroup is not recorded");
        assert_eq!(state(), "THAWED");
        assert!(!record.exists());
        if was_frozen {
            return;
        }
        // A survivor would disturb the next attempt.
        cgroups.end_children();
    }
    panic!("in {ATTEMPTS} attempts the agent was never killed while its victim was frozen");
}

/// Removes the cgroups of a hierarchy below `directory`, the innermost first.
fn remove_below(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
            let _populated = fs::remove_dir(entry.path());
        }
    }
}

fn took<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let result = work();
    (result, begun.elapsed())
}

fn read_processes_below(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            fs::read(entry.path().join("cgroup.procs")).unwrap();
        }
    }
}

#[test]
fn twenty_thousand_cgroups_of_one_workload_do_not_hold_up_a_scan_or_a_kill() {
    const MANY: usize = 20_000;
    let Some(mut cgroups) = Cgroups::make("many") else { return };
    let bystander = cgroups.workload("bystander.service", 1);
    let victim = cgroups.workload("victim.service", 3);
    let directory = cgroups.hierarchy.memory.join(&victim);
    let (writer, mut made) = (KillWriter::start().unwrap(), 0);
    while made < MANY && fs::create_dir(directory.join(format!("c{made}"))).is_ok() {
        made += 1;
    }
    // The list of cgroups is cut long before it comes to every one of these.
    for (child, place) in cgroups.children[1..].iter().zip([0, made / 2, made - 1]) {
        fs::write(directory.join(format!("c{place}/cgroup.procs")), child.id().to_string()).unwrap();
    }
    let mut tree = WorkloadTree::new(cgroups.hierarchy.clone(), PROC.into(), Vec::new());
    // Whoever changes cgroups at the same time holds up both alike: the kernel has one lock for all.
    let (mut walk, mut scan, mut cut) = (Duration::MAX, Duration::MAX, Vec::new());
    for _ in 0..5 {
        walk = walk.min(took(|| read_processes_below(&directory)).1);
        let (found, scanned) = took(|| tree.scan().unwrap());
        (scan, cut) = (scan.min(scanned), found.cut);
    }
    let target = tree.workloads().find(|workload| workload.name == victim).expect("it is a workload").id;
    let target = Target::new(tree.find(target).unwrap(), tree.hierarchy(), Path::new(PROC), None);
    let (killed, kill) = took(|| target.kill(&writer));
    wait_until("the end of the victim", || cgroups.ended() == 3);
    println!("{made} cgroups: read in {walk:?}, scanned in {scan:?}, killed in {kill:?}: {cut:?}");
    remove_below(&directory);
    assert!(killed.is_ok(), "{killed:?}");
    assert!(tree.workloads().any(|workload| workload.name == bystander));
    if made == MANY {
        assert!(cut.iter().any(|cut| cut.starts_with(&victim)), "{cut:?}");
        assert!(scan < walk / 2, "a scan takes {scan:?}, and {walk:?} the list of processes of each cgroup");
    } else {
        tell!("SKIPPED the limit of time: only {made} cgroups can be made here");
    }
}
