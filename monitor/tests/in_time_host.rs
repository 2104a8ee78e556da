//! Measures that the check before a kill outside pods does not grow with the victim: real cgroups, processes and open files of this machine.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a fixture that cannot be made fails its test")]

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use node_pressure_monitor::units::{CgroupId, Pid};
use node_pressure_monitor::workloads::{Essentials, Kind, Protection, WorkloadTree};

#[macro_use]
#[path = "support/sleepers.rs"]
#[expect(dead_code, reason = "other tests evict")]
mod sleepers;

use sleepers::{Cgroups, PROC, wait_until};

/// The quickest of so many runs counts: interference only makes a run slower.
const RUNS: usize = 20;
/// A process that is younger at the scan is examined again.
const YOUNG: Duration = Duration::from_millis(1200);

/// Makes a workload of sleepers with open files each.
fn hold(cgroups: &mut Cgroups, name: &str, processes: usize, files: usize) -> String {
    let script = format!("for fd in $(seq 10 {}); do eval \"exec $fd</dev/null\"; done; exec sleep 600", files + 9);
    cgroups.workload_of(name, processes, &["bash", "-c", &script])
}

fn id_of(tree: &WorkloadTree, name: &str) -> CgroupId {
    tree.workloads().find(|workload| workload.name == name).expect(name).id
}

fn quickest<T>(mut run: impl FnMut() -> T) -> Duration {
    let mut timed = || {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..RUNS).map(|_| timed()).min().unwrap()
}

/// Returns how long the examination of every process and file takes, which was made before each kill once.
fn whole_examination(cgroups: &Cgroups, name: &str) -> Duration {
    let text = std::fs::read_to_string(cgroups.hierarchy.memory.join(name).join("cgroup.procs")).unwrap();
    let pids: Vec<Pid> = text.lines().map(|pid| Pid(pid.parse().unwrap())).collect();
    let essentials = Essentials::new(PROC.as_ref(), None);
    let began = Instant::now();
    assert_eq!(essentials.find(&pids, &Kind::Service, &essentials.signs()), None);
    began.elapsed()
}

/// Returns whether every child has become a sleeper, and has its files.
fn are_ready(cgroups: &Cgroups, files: usize) -> bool {
    cgroups.children.iter().all(|child| {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap_or_default();
        let open = std::fs::read_dir(format!("/proc/{}/fd", child.id())).map_or(0, Iterator::count);
        comm.trim_end() == "sleep" && open >= files
    })
}

#[test]
fn the_check_before_a_kill_does_not_grow_with_the_victim() {
    let Some(mut cgroups) = Cgroups::make("in-time") else { return };
    let sizes = [(1, 10), (50, 100), (500, 200)];
    let mut names = Vec::new();
    for (processes, files) in sizes {
        names.push(hold(&mut cgroups, &format!("of{processes}.service"), processes, files));
    }
    wait_until("the open files", || are_ready(&cgroups, 10));
    std::thread::sleep(YOUNG);
    let tree = cgroups.tree(Vec::new());
    let mut took = Vec::new();
    for (name, (processes, files)) in names.iter().zip(sizes) {
        let id = id_of(&tree, name);
        assert_eq!(tree.essential_now(id), None);
        took.push(quickest(|| tree.essential_now(id)));
        let whole = whole_examination(&cgroups, name);
        tell!("{processes} processes x {files} files: {:?}; all of them: {whole:?}", took.last().unwrap());
    }
    assert!(took[2] <= took[0] * 2, "{took:?}");
}

#[test]
fn a_daemon_that_starts_after_the_scan_is_found_among_many_processes() {
    let Some(mut cgroups) = Cgroups::make("in-time-daemon") else { return };
    let name = hold(&mut cgroups, "many.service", 60, 10);
    wait_until("the open files", || are_ready(&cgroups, 10));
    std::thread::sleep(YOUNG);
    let tree = cgroups.tree(Vec::new());
    let id = id_of(&tree, &name);
    assert_eq!(tree.essential_now(id), None);
    let directory = tempfile::tempdir().unwrap();
    let socket = UnixListener::bind(directory.path().join("crio.sock")).unwrap();
    let daemon = Command::new("sleep").arg("600").stdin(Stdio::from(std::os::fd::OwnedFd::from(socket))).spawn();
    cgroups.children.push(daemon.unwrap());
    let pid = cgroups.children.last().unwrap().id();
    for hierarchy in cgroups.hierarchies() {
        std::fs::write(hierarchy.join(&name).join("cgroup.procs"), pid.to_string()).unwrap();
    }
    wait_until("the new socket", || tree.essential_now(id) == Some(Protection::Runtime));
    cgroups.end_children();
    wait_until("the end of the daemon", || tree.essential_now(id).is_none());
}
