//! Runs the agent on a small disk that is full when the agent starts, and starts it again: what it must not evict for, and what it remembers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[path = "support/agent.rs"]
mod agent;

use agent::{Agent, PATIENCE, PROGRAM, free_address};

/// A filesystem of 8 MiB in a mount namespace of its own.
struct Disk {
    holder: Child,
    directory: tempfile::TempDir,
}

impl Disk {
    /// Returns `None` where mounts are not allowed.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mount = "mount -t tmpfs -o size=8m none \"$0\" && exec sleep 600";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mount]).arg(directory.path());
        let holder = command.stdin(Stdio::null()).spawn().ok()?;
        let mut disk = Self { holder, directory };
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && disk.holder.try_wait().ok()?.is_none() {
            if fs::read_to_string(format!("/proc/{}/comm", disk.holder.id())).ok()?.trim() == "sleep" {
                return Some(disk);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    /// Returns the path of the disk's only file, as this process sees it.
    fn file(&self) -> PathBuf {
        let inside = self.directory.path().join("file");
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(inside.strip_prefix("/").unwrap())
    }

    fn fill(&self) {
        fs::write(self.file(), vec![1; 5 << 20]).unwrap();
    }

    fn clear(&self) {
        fs::write(self.file(), "").unwrap();
    }

    /// Returns a command that runs the agent where it sees the disk.
    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "--mount", PROGRAM]).args(arguments);
        command
    }

    fn config(&self, threshold: &str) -> String {
        let disk = self.directory.path().display();
        format!("evictionHard: {{{threshold}}}\nfilesystems: {{nodefs: {disk}}}\nevictions: {{maxPerMinute: 1}}\n")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _already_gone = self.holder.kill();
        let _already_gone = self.holder.wait();
    }
}

/// Ends the agent as a node's service manager does.
fn stop(agent: &mut Agent) {
    assert!(Command::new("kill").arg(agent.child.id().to_string()).status().unwrap().success());
    assert!(agent.child.wait().unwrap().success());
}

/// Starts the agent again with the same files.
fn start_again(agent: &mut Agent, disk: &Disk) {
    agent.address = free_address();
    let path = |name: &str| agent.path(name).display().to_string();
    let (config, lock, listen) = (path("monitor.yaml"), path("lock"), agent.address.to_string());
    let arguments = ["run", "--config", &config, "--lock-file", &lock, "--listen", &listen, "--log-format", "json"];
    let mut program = disk.program(&arguments);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(agent.path("err")).unwrap());
    agent.child = program.spawn().unwrap();
    agent.wait("the agent listens and samples", 0);
}

/// Waits until the agent has gone as far as an eviction: there is nothing on this disk that could be evicted.
fn wait_for_action(agent: &mut Agent) {
    agent.wait("\"event\":\"candidates_exhausted\"", 0);
}

fn has_acted(agent: &Agent) -> bool {
    let log = agent.text("err");
    ["candidates_exhausted", "\"event\":\"eviction\"", "would_kill"].iter().any(|text| log.contains(text))
}

fn state(agent: &Agent) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(agent.path("lock.decisions")).unwrap_or_default();
        if text.contains("nodefs") || text.contains("NodeFs") {
            return serde_json::from_str(&text).unwrap();
        }
        assert!(Instant::now() < deadline, "not written: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_restarted_agent_keeps_armed_thresholds_and_its_budget() {
    let Some(disk) = Disk::new() else {
        let _unheard = writeln!(std::io::stderr(), "SKIPPED arming: no mount namespace of one's own here");
        return;
    };
    disk.fill();
    let mut agent = Agent::start_by(&disk.config("nodefs.available: 45%"), "json", |it| disk.program(it));
    let line = agent.wait("\"event\":\"threshold_unarmed\"", 0);
    assert!(line.contains("nodefs.available<45%") && line.contains("was met already"), "{line}");
    let metrics = agent.get("/metrics");
    for series in
        ["threshold_armed{kind=\"hard\",signal=\"nodefs.available\"} 0", "condition{condition=\"DiskPressure\"} 1"]
    {
        assert!(metrics.contains(series), "{series} is missing in\n{metrics}");
    }
    assert!(agent.get("/readyz").contains("degraded: arming: nodefs.available<45% was met already"));

    // A restart changes nothing: the threshold was never unmet.
    state(&agent);
    stop(&mut agent);
    start_again(&mut agent, &disk);
    agent.wait("\"event\":\"threshold_unarmed\"", 0);
    assert!(!has_acted(&agent), "{}", agent.text("err"));

    disk.clear();
    let line = agent.wait("\"event\":\"threshold_armed\"", 0);
    assert!(line.contains("\"by\":\"unmet\""), "{line}");
    disk.fill();
    wait_for_action(&mut agent);

    // The threshold is met at the start of the next agent, and armed in this boot.
    stop(&mut agent);
    start_again(&mut agent, &disk);
    wait_for_action(&mut agent);
    assert!(!agent.text("err").contains("threshold_unarmed"), "{}", agent.text("err"));

    // An eviction of a moment ago counts for the next agent, too.
    stop(&mut agent);
    let mut left = state(&agent);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    let now = u64::try_from(now).unwrap() * 1_000_000_000;
    // More than any number of workloads allows.
    let charge = |id: u64| json!({"class": "OtherHard", "id": id, "at": now});
    left["kept"]["budget"] = json!({"charges": (1..100).map(charge).collect::<Vec<_>>()});
    left["writtenMonoNs"] = json!(now);
    fs::write(agent.path("lock.decisions"), left.to_string()).unwrap();
    start_again(&mut agent, &disk);
    agent.wait("\"event\":\"evictions_spent\"", 0);
    assert!(!has_acted(&agent), "{}", agent.text("err"));

    // A damaged file is reported, and the agent starts without it.
    stop(&mut agent);
    fs::write(agent.path("lock.decisions"), "{\"version\": 1, ").unwrap();
    start_again(&mut agent, &disk);
    let line = agent.wait("\"capability\":\"decision state\"", 0);
    assert!(line.contains("is not used: it is damaged"), "{line}");
    agent.wait("\"event\":\"threshold_unarmed\"", 0);
}

#[test]
fn openshifts_own_example_evicts_nothing() {
    let Some(disk) = Disk::new() else {
        let _unheard = writeln!(std::io::stderr(), "SKIPPED arming: no mount namespace of one's own here");
        return;
    };
    let mut agent = Agent::start_by(&disk.config("nodefs.inodesFree: 100Mi"), "json", |it| disk.program(it));
    let line = agent.wait("\"event\":\"threshold_unarmed\"", 0);
    assert!(line.contains("nodefs.inodesFree<100Mi") && line.contains("cannot be meant for this node"), "{line}");
    agent.wait("\"event\":\"threshold_met\"", 0);
    std::thread::sleep(Duration::from_secs(3));
    assert!(!has_acted(&agent), "{}", agent.text("err"));

    // A reload may bring such a value, too: a sane value first, then the insane one.
    let file = agent.path("monitor.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("100Mi", "10")).unwrap();
    agent.wait("\"event\":\"restored\",\"capability\":\"arming\"", 0);
    let from = agent.text("err").len();
    fs::write(&file, text).unwrap();
    agent.wait("\"event\":\"threshold_unarmed\"", from);
    assert!(!has_acted(&agent), "{}", agent.text("err"));
}

#[test]
fn a_threshold_above_half_of_the_memory_sets_only_the_condition() {
    let mut agent = Agent::start("evictionHard: {memory.available: 99%}\n", "json");
    agent.wait("\"event\":\"threshold_unarmed\"", 0);
    agent.wait("MemoryPressure is now true", 0);
    std::thread::sleep(Duration::from_secs(1));
    assert!(!has_acted(&agent), "{}", agent.text("err"));
    assert!(agent.get("/summary").contains("evicts nothing:"));
}
