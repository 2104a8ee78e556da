//! Runs the program with `rank` and without files as input: on this node, and on a node that consists of files.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const HOARDER: &str = "1b2c3d4e-0000-1111-2222-333344445555";
const QUIET: &str = "2b2c3d4e-0000-1111-2222-333344445555";
const STATIC: &str = "0123456789abcdef0123456789abcdef";
const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
const NO_RUNTIME: &str = "runtime: {endpoint: none}\n";

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn rank(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"));
    command.arg("rank").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Returns whether the test runs as root. Other users cannot measure a node: their error message is checked instead.
fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let output = rank(&[]);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("run it with sudo, or give it --pods and --summary"));
        let _unheard = writeln!(std::io::stderr(), "SKIPPED {test}: not root");
    }
    is_root
}

/// A node whose cgroups, processes and disks are files in a directory.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Self {
        let node = Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        node.write("cgroup/cgroup.controllers", "memory pids\n");
        node.write("cgroup/memory.stat", "anon 500\nfile 400\ninactive_file 100\n");
        node.write("proc/meminfo", "MemTotal: 4194304 kB\nMemFree: 1048576 kB\nMemAvailable: 2097152 kB\n");
        node.write("proc/loadavg", "0.20 0.18 0.12 1/80 11206\n");
        node.write("proc/sys/kernel/pid_max", "4096\n");
        node.write("proc/1/cgroup", "0::/init.scope\n");
        node.write("proc/1/mountinfo", &fs::read_to_string("/proc/self/mountinfo").unwrap());
        fs::create_dir_all(node.path("proc/1/root/var/log/pods")).unwrap();
        node.pod("besteffort", QUIET, 10, 3);
        node.pod("besteffort", HOARDER, 20, 5);
        node.pod("burstable", STATIC, 90, 1);
        node.cgroup("system.slice/app.service", 300, 7);
        node.cgroup("system.slice/systemd-journald.service", 400, 1);
        node.files(QUIET, 2);
        // The files are on the machine's own disk. Three hundred inodes would be too few on a large one.
        let inodes = rustix::fs::statvfs(node.0.path()).unwrap().f_files;
        node.files(HOARDER, 300.max(usize::try_from(inodes / 5000).unwrap()));
        node
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn cgroup(&self, path: &str, mib: u64, pids: u64) {
        for (file, text) in [
            ("memory.current", (mib << 20).to_string()),
            ("memory.stat", "inactive_file 0".to_owned()),
            ("memory.min", "0".to_owned()),
            ("memory.low", "0".to_owned()),
            ("memory.max", "max".to_owned()),
            ("cgroup.events", "populated 1".to_owned()),
            ("cgroup.procs", String::new()),
            ("pids.current", pids.to_string()),
        ] {
            self.write(&format!("cgroup/{path}/{file}"), &format!("{text}\n"));
        }
    }

    fn pod(&self, class: &str, uid: &str, mib: u64, pids: u64) {
        self.cgroup(&format!("kubepods/{class}/pod{uid}"), mib, pids);
    }

    fn files(&self, uid: &str, count: usize) {
        for file in 0..count {
            let volume = "volumes/kubernetes.io~empty-dir/cache";
            self.write(&format!("proc/1/root/var/lib/kubelet/pods/{uid}/{volume}/{file}"), "");
        }
    }

    fn runtime_that_is_down(&self) -> String {
        format!("runtime: {{endpoint: \"unix://{}/none.sock\"}}\n", self.0.path().display())
    }

    /// Returns the answer, and the notes on stderr.
    fn rank(&self, config: &str, arguments: &[&str]) -> (Value, String) {
        let place = self.0.path().display();
        let roots = format!("cgroupRoot: {place}/cgroup\nprocRoot: {place}/proc\nlockFile: {place}/lock\n");
        self.write("monitor.yaml", &format!("{HEAD}{roots}{config}"));
        let file = self.path("monitor.yaml");
        let output = rank(&[&["--output", "json", "--config", file.to_str().unwrap()], arguments].concat());
        let said = text(&output.stderr).to_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        (serde_json::from_slice(&output.stdout).unwrap(), said)
    }
}

fn names(answer: &Value) -> Vec<&str> {
    answer["ranking"].as_array().unwrap().iter().map(|row| row["pod"].as_str().unwrap()).collect()
}

fn of<'a>(answer: &'a Value, pod: &str) -> &'a Value {
    answer["ranking"].as_array().unwrap().iter().find(|row| row["pod"] == pod).unwrap()
}

#[test]
fn the_kernels_victim_is_a_process_of_this_node() {
    if !is_root("the_kernels_victim_is_a_process_of_this_node") {
        return;
    }
    let node = Node::new();
    for (pid, mib, adj, path) in [
        (100, 90, 1000, format!("kubepods/besteffort/pod{HOARDER}")),
        (101, 2048, 0, "system.slice/app.service".to_owned()),
        (102, 300, 968, format!("kubepods/system/burstable/pod{QUIET}/x")),
        (103, 4000, -1000, "system.slice/sshd.service".to_owned()),
    ] {
        let kib = mib * 1024;
        node.write(
            &format!("proc/{pid}/status"),
            &format!("Name:\tp{pid}\nVmRSS:\t{kib} kB\nVmPTE:\t0 kB\nVmSwap:\t0 kB\n"),
        );
        node.write(&format!("proc/{pid}/comm"), &format!("p{pid}\n"));
        node.write(&format!("proc/{pid}/oom_score_adj"), &format!("{adj}\n"));
        node.write(&format!("proc/{pid}/cgroup"), &format!("0::/{path}\n"));
    }
    let (answer, said) = node.rank(NO_RUNTIME, &["--oom"]);
    let order = answer["oom"]["order"].as_array().unwrap();
    let found: Vec<(u64, i64)> =
        order.iter().map(|row| (row["pid"].as_u64().unwrap(), row["score"].as_i64().unwrap())).collect();
    assert_eq!(found, [(102, 73 + 968), (100, 21 + 1000), (101, 500)], "{said}");
    assert_eq!(answer["oom"]["victim"]["pod"], format!("?/{QUIET}"), "a pod of the system partition keeps its name");
    assert_eq!((&answer["oom"]["spared"], &answer["oom"]["victim"]["process"]), (&1.into(), &"p102".into()));
}

/// The kernel shows its points as `oom_score`: two thirds of a thousand and the thousandths (`proc_oom_score`, since Linux 5.7).
#[test]
fn the_scores_are_the_kernels_own() {
    if !is_root("the_scores_are_the_kernels_own") {
        return;
    }
    let output = rank(&["--oom", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let kernels = |row: &Value| fs::read_to_string(format!("/proc/{}/oom_score", row["pid"])).ok()?.trim().parse().ok();
    let differs = |row: &Value| Some(((1000 + row["score"].as_i64()?) * 2 / 3).abs_diff(kernels(row)?) > 2);
    let differs: Vec<bool> = answer["oom"]["order"].as_array().unwrap().iter().filter_map(differs).collect();
    // Some processes grow meanwhile.
    let grown = differs.iter().filter(|differs| **differs).count();
    assert!(!differs.is_empty() && grown * 4 <= differs.len(), "{grown} of {} differ: {answer}", differs.len());
}

#[test]
fn the_owner_of_most_files_ranks_first() {
    if !is_root("the_owner_of_most_files_ranks_first") {
        return;
    }
    let node = Node::new();
    // A runtime that is down may return, and would then remove garbage first.
    let (answer, said) = node.rank(&node.runtime_that_is_down(), &["--signal", "nodefs.inodesFree"]);
    let [hoarder, quiet, exempt] = [HOARDER, QUIET, STATIC].map(|uid| format!("?/{uid}"));
    assert_eq!(names(&answer), [&hoarder, &quiet, &exempt], "only pods are ranked: {said}");
    assert_eq!(answer["first"], hoarder.as_str());
    // Directories have inodes too.
    assert!(of(&answer, &hoarder)["usage"].as_i64().unwrap() >= 300, "{answer}");
    assert_eq!(of(&answer, &quiet)["exempt"], "it would give back too little");
    assert_eq!(of(&answer, &exempt)["exempt"], "static pod");
    assert!(said.contains("container runtime: ") && said.contains("none.sock"), "{said}");
    assert!(!said.contains("not measured to the end"), "{said}");

    let (answer, said) = node.rank(NO_RUNTIME, &["--signal", "nodefs.inodesFree"]);
    assert_eq!((names(&answer).first().copied(), &answer["first"]), (Some(hoarder.as_str()), &Value::Null));
    assert_eq!(of(&answer, &hoarder)["exempt"], "no container runtime removes what it has on a disk");
    assert!(
        said.contains("switched off in the configuration") && said.contains("no workload would be evicted"),
        "{said}"
    );
}

#[test]
fn unprotected_services_rank_for_memory_and_process_ids() {
    if !is_root("unprotected_services_rank_for_memory_and_process_ids") {
        return;
    }
    let node = Node::new();
    // Beside pods only pods are candidates.
    let (answer, said) = node.rank(NO_RUNTIME, &[]);
    assert_eq!((&answer["first"], names(&answer).len()), (&Value::from(format!("?/{HOARDER}")), 3));
    assert!(said.contains("system.slice/app.service (not a pod, and only pods are candidates)"), "{said}");
    let everything = format!("{NO_RUNTIME}evictions: {{candidates: everything}}\n");
    let (answer, said) = node.rank(&everything, &[]);
    assert_eq!((&answer["available"], &answer["capacity"]), (&Value::from(2_u64 << 30), &Value::from(4_u64 << 30)));
    assert_eq!(answer["first"], format!("?/{HOARDER}").as_str());
    assert_eq!(of(&answer, "system.slice/app.service")["exempt"], "it may be evicted only if it leaks");
    let listed = format!("{NO_RUNTIME}evictions: {{candidates: everything, services: [system.slice/app.service]}}\n");
    assert_eq!(node.rank(&listed, &[]).0["first"], "system.slice/app.service");
    assert_eq!(of(&answer, "system.slice/app.service")["usage"], 300 << 20);
    assert_eq!(names(&answer).len(), 4);
    assert!(
        said.contains("1 left out as protected: system.slice/systemd-journald.service (named as protected)"),
        "{said}"
    );
    let (answer, _) = node.rank(NO_RUNTIME, &["--signal", "pid.available"]);
    assert_eq!((&answer["available"], &answer["capacity"]), (&Value::from(4016), &Value::from(4096)));
    assert_eq!(of(&answer, &format!("?/{HOARDER}"))["usage"], 5);
}

#[test]
fn a_running_agent_is_left_out_and_not_disturbed() {
    if !is_root("a_running_agent_is_left_out_and_not_disturbed") {
        return;
    }
    let node = Node::new();
    node.write("lock", "77\n");
    let lock = fs::metadata(node.path("lock")).unwrap();
    let device = (rustix::fs::major(lock.dev()), rustix::fs::minor(lock.dev()));
    let held = format!("1: FLOCK  ADVISORY  WRITE 77 {:02x}:{:02x}:{} 0 EOF\n", device.0, device.1, lock.ino());
    node.write("proc/locks", &held);
    node.write("proc/77/cgroup", "0::/system.slice/app.service\n");
    let (answer, said) = node.rank(NO_RUNTIME, &[]);
    assert!(!names(&answer).contains(&"system.slice/app.service"), "{answer}");
    assert!(said.contains("system.slice/app.service (holds this agent)"), "{said}");
    assert_eq!(fs::read_to_string(node.path("lock")).unwrap(), "77\n");
}

#[test]
fn the_pods_file_gives_names_and_priorities() {
    if !is_root("the_pods_file_gives_names_and_priorities") {
        return;
    }
    let node = Node::new();
    let pods = format!(
        r#"{{"kind": "List", "items": [
            {{"metadata": {{"name": "hoarder", "namespace": "batch", "uid": "{HOARDER}"}}, "spec": {{"priority": 2000000000}}}},
            {{"metadata": {{"name": "quiet", "namespace": "batch", "uid": "{QUIET}"}}, "spec": {{"priority": -5}}}},
            {{"metadata": {{"name": "elsewhere", "namespace": "batch", "uid": "u-9"}}}}]}}"#
    );
    node.write("pods.json", &pods);
    let config = format!("{NO_RUNTIME}pods: {}\n", node.path("pods.json").display());
    let (answer, said) = node.rank(&config, &[]);
    assert!(!said.contains("priorities and requests are not known"), "{said}");
    assert_eq!(of(&answer, "batch/quiet")["priority"], -5);
    assert_eq!(of(&answer, "batch/hoarder")["exempt"], "critical priority 2000000000");
    assert!(!names(&answer).contains(&"batch/elsewhere"));
    let (answer, said) = node.rank(&format!("{NO_RUNTIME}pods: /nonexistent/pods.json\n"), &[]);
    assert!(said.contains("/nonexistent/pods.json") && said.contains("kubectl get pods"), "{said}");
    assert_eq!(names(&answer).len(), 3, "the ranking continues without the file");
}

#[test]
fn pods_here_are_preempted_by_known_priorities() {
    if !is_root("pods_here_are_preempted_by_known_priorities") {
        return;
    }
    let node = Node::new();
    let (answer, said) = node.rank(NO_RUNTIME, &["--preemption-for", "10"]);
    let listed = |answer: &Value| -> Vec<String> {
        let rows = answer["candidates"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["pod"].as_str().unwrap(), row["priority"])).collect()
    };
    assert_eq!(listed(&answer), [STATIC, HOARDER, QUIET].map(|uid| format!("?/{uid} 0")));
    assert!(
        said.contains("the priority of 3 of 3 pods is not known: it counts as 0") && said.contains("kubectl get"),
        "{said}"
    );
    let pods = format!(
        r#"{{"kind": "List", "items": [
            {{"metadata": {{"name": "hoarder", "namespace": "batch", "uid": "{HOARDER}"}}, "spec": {{"priority": 10}}}},
            {{"metadata": {{"name": "quiet", "namespace": "batch", "uid": "{QUIET}"}}, "spec": {{"priority": -5}}}}]}}"#
    );
    node.write("pods.json", &pods);
    let config = format!("{NO_RUNTIME}pods: {}\n", node.path("pods.json").display());
    let (answer, said) = node.rank(&config, &["--preemption-for", "10"]);
    assert_eq!(listed(&answer), ["batch/quiet -5".to_owned(), format!("?/{STATIC} 0")]);
    assert_eq!(answer["spared"], 1);
    assert!(said.contains("the priority of 1 of 3 pods is not known"), "{said}");
}

#[test]
fn this_machine_itself_is_ranked() {
    if !is_root("this_machine_itself_is_ranked") {
        return;
    }
    let output = rank(&["--signal", "pid.available", "--output", "json"]);
    let said = text(&output.stderr);
    // A container may not show any cgroups.
    if output.status.code() == Some(1) {
        assert!(said.contains("cgroup"), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer["available"].as_i64().unwrap() > 0, "{answer}");
}

#[test]
fn one_file_alone_is_wrong_usage() {
    for (arguments, missing) in [(["--pods", "x.json"], "--summary"), (["--summary", "x.json"], "--pods")] {
        let output = rank(&arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(&format!("{missing} is missing")), "{}", text(&output.stderr));
    }
    let output = rank(&["--node", "worker-1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--node chooses among the pods of --pods"), "{}", text(&output.stderr));
}

#[test]
fn missing_cgroups_are_an_error_with_a_remedy() {
    if !is_root("missing_cgroups_are_an_error_with_a_remedy") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("monitor.yaml");
    let root: &Path = directory.path();
    fs::write(&file, format!("{HEAD}cgroupRoot: {}\n", root.display())).unwrap();
    let output = rank(&["--config", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("set cgroupRoot in the configuration"), "{}", text(&output.stderr));
}
