//! The agent's reports of OOM kills on this machine, from each of its sources in turn. Each OOM kill is provoked inside a small limited
//! cgroup of the test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use node_pressure_monitor::node::{CgroupVersion, Hierarchy};
use serde_json::Value;

/// Prints directly to stderr: the test harness shows output only of failed tests, and a skipped test must be visible.
macro_rules! tell {
    ($($text:tt)*) => {
        let _unheard = writeln!(std::io::stderr(), $($text)*);
    };
}

const PROGRAM: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");
const LIMIT: &str = "16777216";

/// Serializes these tests, because the kernel limits the rate of its OOM reports.
static TURN: Mutex<()> = Mutex::new(());

/// A limited cgroup with one cgroup inside. Both are removed at the end.
struct Cgroups {
    limited: PathBuf,
    victim: PathBuf,
    name: String,
    _turn: MutexGuard<'static, ()>,
}

impl Cgroups {
    fn make(test: &str) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let hierarchy = Hierarchy::detect(Path::new("/sys/fs/cgroup")).ok()?;
        let name = format!("npm-oom-{test}-{}.service", std::process::id());
        let limited = hierarchy.memory.join(&name);
        // Names of units often contain a backslash, which the kernel's log escapes.
        let victim = limited.join(r"inner\x2d1");
        if let Err(error) = fs::create_dir(&limited) {
            tell!("SKIPPED {test}: cannot make a cgroup: {error}");
            return None;
        }
        let limit_file = match hierarchy.version {
            CgroupVersion::V1 => "memory.limit_in_bytes",
            CgroupVersion::V2 => "memory.max",
        };
        fs::write(limited.join(limit_file), LIMIT).unwrap();
        let _v1_has_none = fs::write(limited.join("cgroup.subtree_control"), "+memory");
        let _not_everywhere = fs::write(limited.join("memory.swap.max"), "0");
        fs::create_dir(&victim).unwrap();
        Some(Self { limited, victim, name, _turn: turn })
    }

    /// Starts a process that allocates until it is killed; returns its id.
    fn provoke(&self) -> u32 {
        let script = format!("echo $$ > '{}/cgroup.procs'; exec tail /dev/zero", self.victim.display());
        let mut child =
            Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _over = child.kill();
                panic!("the limit killed no process");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.id()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for directory in [&self.victim, &self.limited] {
            let deadline = Instant::now() + Duration::from_secs(2);
            while fs::remove_dir(directory).is_err() && directory.exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// A running agent in observe mode.
struct Agent {
    child: Child,
    address: String,
    directory: tempfile::TempDir,
}

impl Agent {
    /// Starts the agent by `program` with these arguments before the agent's own; returns `None` if this machine cannot.
    fn start(program: &str, before: &[&str]) -> Option<Self> {
        let able = Command::new(program).args(before).arg(PROGRAM).arg("--version").output();
        if !able.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = directory.path().join("monitor.yaml");
        let journal = directory.path().join("incidents").display().to_string();
        let text = format!(
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nincidents: {{directory: {journal}}}\n"
        );
        fs::write(&config, text).unwrap();
        let child = Command::new(program)
            .args(before)
            .args([PROGRAM, "run", "--config"])
            .arg(&config)
            .args(["--mode", "observe", "--log-format", "json", "--listen", &address, "--lock-file"])
            .arg(directory.path().join("lock"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let agent = Self { child, address, directory };
        agent.wait_for("ready", |_| true);
        Some(agent)
    }

    /// Starts an agent whose source is the kernel log. If this machine cannot, prints SKIPPED and returns `None`.
    fn without_ebpf() -> Option<Self> {
        if fs::File::open("/dev/kmsg").is_err() {
            tell!("SKIPPED: the kernel's log cannot be read here");
            return None;
        }
        let less = ["--inh-caps=-all", "--bounding-set=-bpf,-perfmon,-sys_admin", "--"];
        let agent = Self::start("setpriv", &less);
        if agent.is_none() {
            tell!("SKIPPED: setpriv cannot drop capabilities here");
        }
        agent
    }

    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn wait_for(&self, event: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let records = self.records();
            if let Some(record) = records.iter().find(|record| record["event"] == event && is_it(record)) {
                return record.clone();
            }
            assert!(Instant::now() < deadline, "no {event} in {records:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns an incident from the journal, which has it a moment after the log, and the incident's text page.
    fn incident(&self, id: &str) -> (Value, String) {
        let journal = self.directory.path().join("incidents");
        let print = |arguments: &[&str]| {
            let mut command = Command::new(PROGRAM);
            let output = command.args(["incidents", "--directory"]).arg(&journal).args(arguments).output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(json) = print(&["--output", "json", id]) {
                return (serde_json::from_str(&json).unwrap(), print(&[id]).unwrap());
            }
            assert!(Instant::now() < deadline, "no incident {id}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn metrics(&self) -> String {
        let output = Command::new("curl").args(["-s", &format!("http://{}/metrics", self.address)]).output();
        output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}

/// Returns whether the kernel's log has the last line about this victim but no report before it, as beyond ten reports in five seconds.
fn is_held_back(log: &str, pid: u32) -> bool {
    let mut before = log.lines().rev().skip_while(|line| !line.contains(&format!("Killed process {pid} (")));
    let killed = before.next().is_some();
    let report = before.find(|line| line.contains("oom-kill:constraint=") || line.contains("Killed process "));
    killed && !report.is_some_and(|report| report.contains("oom-kill:") && report.contains(&format!(",pid={pid},")))
}

fn kernel_log() -> String {
    let log = Command::new("dmesg").output();
    log.map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log.stdout).into_owned())
}

/// Checks the facts of a kill that eBPF with the log reports, and that the log alone reports.
fn check_told(agent: &Agent, cgroups: &Cgroups, source: Option<&str>) {
    let mut kills = 1;
    let mut pid = cgroups.provoke();
    let mut record = agent.wait_for("oom_kill", |record| record["victim_pid"] == pid);
    // Other tests provoke OOM kills too, and the kernel suppresses reports beyond ten in five seconds. The last line remains: it shows that
    // a limit was hit, but not whose.
    while record["limit_cgroup_id"].is_null() && kills < 3 {
        std::thread::sleep(Duration::from_secs(6));
        kills += 1;
        pid = cgroups.provoke();
        record = agent.wait_for("oom_kill", |record| record["victim_pid"] == pid);
    }
    if record["limit_cgroup_id"].is_null() && is_held_back(&kernel_log(), pid) {
        tell!("SKIPPED: the kernel's log holds back its reports of OOM kills: too many are provoked here at once");
        return;
    }
    let id = |directory: &Path| fs::metadata(directory).unwrap().ino();
    assert_eq!(record["constraint"], "memcg", "{record:#}");
    assert_eq!(record["limit_cgroup_id"], id(&cgroups.limited), "{record:#}");
    assert_eq!(record["victim_cgroup_id"], id(&cgroups.victim), "{record:#}");
    assert_eq!(record["victim_workload"], cgroups.name.as_str(), "{record:#}");
    assert_eq!(record["victim_comm"], "tail");
    assert!(record["anon_rss_bytes"].as_u64().unwrap() > 1 << 20, "{record:#}");
    if let Some(source) = source {
        assert_eq!(record["source"], source);
    }
    let (incident, told) = agent.incident(record["incident"].as_str().unwrap());
    let kill = &incident["oomKill"];
    assert_eq!((&kill["constraint"], &kill["source"]), (&record["constraint"], &record["source"]), "{incident:#}");
    assert_eq!(kill["limit"]["cgroup"], cgroups.name.as_str(), "{incident:#}");
    assert_eq!(kill["limit"]["limitBytes"].to_string(), LIMIT, "{incident:#}");
    assert_eq!(kill["victims"][0]["pid"], pid, "{incident:#}");
    assert_eq!(kill["victims"][0]["workload"], cgroups.name.as_str(), "{incident:#}");
    assert_eq!(kill["trigger"]["pid"], pid, "{incident:#}");
    assert!(incident["steps"].as_array().unwrap().len() >= 2, "{incident:#}");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("The service reached its own memory limit of 16.0 MiB"), "{told}");
    assert!(told.contains("trigger tail") && told.contains("the victim itself"), "{told}");
    // A kill whose report was suppressed may be reported without its workload.
    let told_of = |record: &&Value| record["event"] == "oom_kill" && record["victim_workload"] == cgroups.name.as_str();
    let of_workload = agent.records().iter().filter(told_of).count();
    assert!((1..=kills).contains(&of_workload), "{of_workload} of {kills}");
    let series = format!("node_pressure_monitor_oom_kills_total{{workload=\"{}\"}} {of_workload}", cgroups.name);
    // The agent may serve a cached report once more.
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let metrics = agent.metrics();
        if metrics.is_empty() || metrics.lines().any(|line| line == series) {
            return;
        }
        assert!(Instant::now() < deadline, "{series} in {metrics}");
        std::thread::sleep(Duration::from_millis(150));
    }
}

#[test]
fn the_constraint_and_the_limits_owner_are_reported() {
    let Some(cgroups) = Cgroups::make("full") else { return };
    let agent = Agent::start("env", &[]).unwrap();
    check_told(&agent, &cgroups, None);
}

#[test]
fn without_ebpf_the_kernel_log_is_the_source() {
    let Some(cgroups) = Cgroups::make("log") else { return };
    let Some(agent) = Agent::without_ebpf() else { return };
    check_told(&agent, &cgroups, Some("kmsg"));
}

#[test]
fn without_ebpf_and_log_the_counters_are_the_source() {
    let Some(cgroups) = Cgroups::make("files") else { return };
    let hide = "mount --bind /dev/null /dev/kmsg && exec setpriv --inh-caps=-all --bounding-set=-bpf,-perfmon,-sys_admin -- \"$0\" \"$@\"";
    let Some(agent) = Agent::start("unshare", &["--mount", "sh", "-c", hide]) else {
        tell!("SKIPPED: this host's log cannot be hidden");
        return;
    };
    agent.wait_for("degraded", |record| record["reason"].as_str().is_some_and(|reason| reason.contains("/dev/kmsg")));
    // Another process keeps the workload alive, so that its kills can be counted.
    let holder = format!("echo $$ > '{}/cgroup.procs'; exec sleep 60", cgroups.victim.display());
    let mut holder = Command::new("sh").args(["-c", &holder]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    agent.metrics();
    cgroups.provoke();
    let mut found = None;
    let deadline = Instant::now() + Duration::from_secs(30);
    while found.is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(300));
        if agent.metrics().is_empty() {
            tell!("SKIPPED: no curl to ask for the metrics with");
            break;
        }
        // The victims of other tests are counted too.
        let is_it =
            |record: &Value| record["event"] == "oom_kills_counted" && record["workload"] == cgroups.name.as_str();
        found = agent.records().into_iter().find(is_it);
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    if let Some(record) = found {
        assert_eq!(record["kills"], 1, "{record:#}");
    } else {
        assert!(agent.metrics().is_empty(), "no counted kill was reported");
    }
}

/// Beyond ten reports in five seconds the kernel's log contains neither the limit nor the victim's cgroup. The agent then leaves these
/// unknown, and finds the workload by its counter.
#[test]
fn a_kill_with_a_suppressed_report_is_not_one_of_the_root() {
    let Some(cgroups) = Cgroups::make("held") else { return };
    let Some(agent) = Agent::without_ebpf() else { return };
    let mut held_back = Vec::new();
    for _ in 0..30 {
        let pid = cgroups.provoke();
        if is_held_back(&kernel_log(), pid) {
            held_back.push(pid);
        }
        if held_back.len() == 3 {
            break;
        }
    }
    if held_back.is_empty() {
        tell!("SKIPPED: this kernel reports every one of 30 OOM kills, or its log cannot be read");
        return;
    }
    for pid in held_back {
        let record = agent.wait_for("oom_kill", |record| record["victim_pid"] == pid);
        assert_eq!(record["constraint"], "memcg", "its own line says so: {record:#}");
        let id = &record["victim_cgroup_id"];
        assert!(id.is_null() || *id == fs::metadata(&cgroups.victim).unwrap().ino(), "{record:#}");
        for unknown in ["limit_cgroup_id", "trigger_pid", "trigger_cgroup_id", "trigger_comm"] {
            assert!(record[unknown].is_null(), "{unknown}: {record:#}");
        }
        // OOM kills of other tests at the same time make the workload unknown, which is right.
        let workload = record["victim_workload"].as_str().unwrap();
        assert!([cgroups.name.as_str(), "(none)"].contains(&workload), "{record:#}");
        tell!("a kill of which the kernel's log told no cgroup was told as one of {workload}");
        let (incident, told) = agent.incident(record["incident"].as_str().unwrap());
        assert!(incident["oomKill"]["trigger"].is_null(), "{incident:#}");
        assert!(incident["stallsSeconds"].is_null(), "without eBPF no stalls are counted: {incident:#}");
        assert!(told.contains("suppressed its report") && !told.contains("no workload stalled"), "{told}");
    }
}
