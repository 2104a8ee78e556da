//! Runs the agent's program on this machine: its log, its HTTP pages, its refusals, and its degradations.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "support/agent.rs"]
mod agent;
#[path = "support/holder.rs"]
mod holder;
#[path = "support/named_process.rs"]
mod named_process;
#[macro_use]
#[path = "support/sleepers.rs"]
#[expect(dead_code, reason = "other tests evict")]
mod sleepers;

use agent::{Agent, PATIENCE, PROGRAM, configuration, free_address};
use holder::holder;
use named_process::NamedProcess;
use sleepers::Cgroups;

/// The allowed difference of two readings. They are not simultaneous, and other tests run on this machine.
const FLICKER: u64 = 192 << 20;

impl Agent {
    /// Returns the value of one series. `series` includes the labels as the agent prints them.
    fn metric(&self, series: &str) -> f64 {
        let text = self.get("/metrics");
        let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Returns the id of the first incident that is an eviction.
    fn first_eviction(&self) -> Option<String> {
        let list = self.get("/incidents");
        let list: serde_json::Value = serde_json::from_str(list.split("\r\n\r\n").nth(1)?).ok()?;
        let eviction = list.as_array()?.iter().find(|incident| incident["kind"] == "Eviction")?;
        Some(eviction["id"].as_str()?.to_owned())
    }

    fn stop(mut self) -> i32 {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

/// Runs the agent until it exits on its own.
fn refused(config: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("monitor.yaml");
    fs::write(&file, configuration(config)).unwrap();
    let lock = directory.path().join("lock");
    let listen = free_address().to_string();
    let mut all = vec!["run", "--config", file.to_str().unwrap(), "--log-format", "json"];
    for (name, value) in [("--lock-file", lock.to_str().unwrap()), ("--listen", listen.as_str())] {
        if !arguments.contains(&name) {
            all.extend([name, value]);
        }
    }
    all.extend(arguments);
    Command::new(PROGRAM).args(all).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn line_value(path: &Path, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.split([':', ' ']).next() == Some(key));
    let value = line.unwrap_or_else(|| panic!("no {key} in {}", path.display())).split_ascii_whitespace().nth(1);
    value.unwrap().parse().unwrap()
}

/// Returns the working set, computed as in config/README.md, "Checking the memory figures by hand".
fn working_set_by_hand() -> u64 {
    let v2 = Path::new("/sys/fs/cgroup/memory.stat");
    if v2.exists() {
        return line_value(v2, "anon") + line_value(v2, "file") - line_value(v2, "inactive_file");
    }
    let usage = fs::read_to_string("/sys/fs/cgroup/memory/memory.usage_in_bytes").unwrap();
    let usage: u64 = usage.trim().parse().unwrap();
    usage - line_value(Path::new("/sys/fs/cgroup/memory/memory.stat"), "total_inactive_file")
}

/// A directory stands for the cgroup tree: 1 GiB is in use, and the pods have all but 512 KiB of their 256 MiB.
#[test]
fn the_memory_of_all_pods_and_of_the_daemons_beside_them_is_observed() {
    let root = tempfile::tempdir().unwrap();
    let pods = root.path().join("kubepods.slice");
    fs::create_dir(&pods).unwrap();
    fs::write(root.path().join("cgroup.controllers"), "memory\n").unwrap();
    fs::write(root.path().join("memory.stat"), "anon 1073741824\nfile 0\ninactive_file 0\n").unwrap();
    fs::write(pods.join("memory.max"), "268435456\n").unwrap();
    fs::write(pods.join("memory.current"), "268959744\n").unwrap();
    fs::write(pods.join("memory.stat"), "anon 0\ninactive_file 1048576\nactive_file 0\n").unwrap();
    let config = format!(
        "cgroupRoot: {}\nevictionHard: {{memory.available: 1Mi}}\nenforceNodeAllocatable: [pods]\nsystemReserved: {{memory: 512Mi}}\n",
        root.path().display()
    );
    let mut agent = Agent::start(&config, "json");
    let metric = |series: &str| agent.metric(&format!("node_pressure_monitor_{series}"));
    let signal = "{signal=\"allocatableMemory.available\"}";
    for (series, expected) in [
        (format!("signal_available_bytes{signal}"), 524_288.0),
        (format!("signal_capacity_bytes{signal}"), 268_435_456.0),
        ("threshold_met{kind=\"hard\",signal=\"allocatableMemory.available\"}".to_owned(), 1.0),
        // 1 GiB less 255.5 MiB of pods and 512 MiB that are reserved.
        ("system_memory_above_reservation_bytes".to_owned(), 268_959_744.0),
    ] {
        let found = metric(&series);
        assert!((found - expected).abs() < 0.5, "{series}: {found}");
    }
    agent.wait("\"event\":\"system_above_reservation\"", 0);
    let summary = agent.get("/summary");
    assert!(
        summary.contains("system daemons exceed the 512.0 MiB that are reserved for them by 256.5 MiB"),
        "{summary}"
    );
    fs::write(pods.join("memory.max"), "max\n").unwrap();
    agent.wait("the cgroup of all pods has no limit", 0);
}

/// The threshold that applies by default shows up with the limit of all pods.
#[test]
fn without_a_limit_of_all_pods_their_threshold_is_not_shown() {
    let root = tempfile::tempdir().unwrap();
    let pods = root.path().join("kubepods");
    fs::create_dir(&pods).unwrap();
    for (name, text) in [
        ("cgroup.controllers", "memory\n"),
        ("memory.stat", "anon 1073741824\nfile 0\ninactive_file 0\n"),
        ("kubepods/memory.max", "max\n"),
        ("kubepods/memory.current", "1073741824\n"),
        ("kubepods/memory.stat", "anon 1073741824\ninactive_file 0\nactive_file 0\n"),
    ] {
        fs::write(root.path().join(name), text).unwrap();
    }
    let agent = Agent::start(&format!("cgroupRoot: {}\n", root.path().display()), "text");
    let is_shown = || agent.get("/summary").contains("allocatableMemory.available<100Mi");
    assert!(!is_shown() && !agent.get("/readyz").contains("allocatableMemory"), "{}", agent.get("/summary"));
    fs::write(pods.join("memory.max"), "2147483648\n").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !is_shown() {
        assert!(Instant::now() < deadline, "{}", agent.get("/summary"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_running_nohang_is_logged_and_counted_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let _nohang = NamedProcess::start("nohang", directory.path());
    let agent = Agent::start("evictionHard: {memory.available: 1Mi}\n", "json");
    let (log, value) = (agent.text("err"), agent.metric("node_pressure_monitor_other_killer{killer=\"nohang\"}"));
    let lines: Vec<_> = log.lines().filter(|line| line.contains("\"event\":\"other_killer\"")).collect();
    assert!(lines.iter().any(|line| line.contains("nohang (process ")), "{log}");
    assert!((value - 1.0).abs() < f64::EPSILON);
}

#[test]
fn summary_and_metrics_agree_with_this_machine() {
    let started = Instant::now();
    let agent = Agent::start("", "text");
    println!("ready after {:.0} ms (unoptimised build)", started.elapsed().as_secs_f64() * 1e3);
    let summary = agent.text("out");
    for part in
        ["mode        observe", "= MemAvailable", "= MemTotal", "memory.available<100Mi", "BestEffort", "attached"]
    {
        assert!(summary.contains(part), "{part:?} is missing in\n{summary}");
    }
    assert!(summary.contains(&format!("http://{}/metrics", agent.address)), "{summary}");

    let meminfo = Path::new("/proc/meminfo");
    let total = line_value(meminfo, "MemTotal") * 1024;
    let near = |what: &str, metric: f64, by_hand: u64| {
        let difference = (metric - by_hand as f64).abs();
        assert!(difference < FLICKER as f64, "{what}: {metric} in the metrics, {by_hand} by hand");
        println!("{what}: {metric} in the metrics, {by_hand} by hand");
    };
    let corrected = agent.metric("node_pressure_monitor_memory_available_bytes{semantics=\"corrected\"}");
    near("corrected", corrected, line_value(meminfo, "MemAvailable") * 1024);
    let kubelet = agent.metric("node_pressure_monitor_memory_available_bytes{semantics=\"kubelet\"}");
    near("kubelet", kubelet, total - working_set_by_hand());
    assert!((agent.metric("node_pressure_monitor_memory_capacity_bytes") - total as f64).abs() < 1.0);

    assert!(agent.get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(agent.get("/readyz").contains("\nready\n"));
    // The OOM killer may have killed a process of this machine meanwhile.
    let incidents = agent.get("/incidents");
    assert!(incidents.ends_with(']') && !incidents.contains("Eviction"), "{incidents}");
    assert!(agent.path("incidents/incidents-00000001.journal").exists());
    assert_eq!(agent.stop(), 0, "a clean end");
}

#[test]
fn a_dry_run_in_observe_mode_is_an_incident() {
    let Some(mut cgroups) = Cgroups::make("dry-run") else { return };
    holder(&mut cgroups, "web.service");
    // The threshold exceeds any machine's available memory, so it is met at once. The kubelet's rules evict a workload that is too small to end
    // such a shortage.
    let config = "semantics: kubelet\nevictionHard: {memory.available: 99%}\n\
                  evictions: {candidates: everything, actOnPresentPressure: true}\n";
    let agent = Agent::start(config, "json");
    let deadline = Instant::now() + PATIENCE;
    // The eviction is found by its kind: the last incident may be an OOM kill elsewhere on this machine.
    let id = loop {
        if let Some(id) = agent.first_eviction() {
            break id;
        }
        assert!(Instant::now() < deadline, "{}", agent.text("err"));
        std::thread::sleep(Duration::from_millis(50));
    };
    let record = agent.get(&format!("/incidents/{id}"));
    let json = record.split("\r\n\r\n").nth(1).unwrap();
    for part in [
        "\"kind\":\"Eviction\"",
        "\"outcome\":\"observed\"",
        "\"samples\":[[",
        "\"ranking\":[{\"place\":1",
        "\"step\":\"acted\"",
    ] {
        assert!(json.contains(part), "{part:?} is missing in\n{json}");
    }
    // The agent may serve a cached report once more.
    while agent.metric("node_pressure_monitor_incidents_total{kind=\"Eviction\"}") < 1.0 {
        assert!(Instant::now() < deadline, "not counted");
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = agent.get(&format!("/incidents/{id}?output=text"));
    assert!(told.contains("WHY THIS WORKLOAD") && told.contains("observe mode"), "{told}");
    let directory = agent.path("incidents").display().to_string();
    let print = || {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["incidents", "--directory", &directory, "--output", "json", &id]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let mut printed = print();
    // The journal contains the incident a moment later.
    while printed.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        printed = print();
    }
    assert_eq!(printed.trim_end(), json, "the journal and HTTP agree");
    assert_eq!(agent.stop(), 0);
}

#[test]
fn signals_other_than_memory_agree_with_this_machine() {
    let directory = tempfile::tempdir().unwrap();
    // The threshold is more process ids than exist, and imagefs is on procfs, a filesystem without a limit of inodes.
    let config = format!(
        "evictionHard: {{pid.available: 100Gi, nodefs.available: 1, imagefs.inodesFree: 1}}\n\
         filesystems: {{nodefs: {}, imagefs: /proc}}\n",
        directory.path().display()
    );
    let agent = Agent::start(&config, "json");
    let signal =
        |what: &str, signal: &str| agent.metric(&format!("node_pressure_monitor_signal_{what}{{signal=\"{signal}\"}}"));
    let number = |path: &str| fs::read_to_string(path).unwrap().trim().parse::<f64>().unwrap();
    let most = number("/proc/sys/kernel/pid_max").min(number("/proc/sys/kernel/threads-max"));
    let is = |found: f64, expected: f64| (found - expected).abs() < 0.5;
    assert!(is(signal("capacity_pids", "pid.available"), most));
    let left = signal("available_pids", "pid.available");
    assert!(left > 0.0 && left < most, "{left} of {most}");
    let statvfs = Command::new("stat").args(["-f", "-c", "%b %S"]).arg(directory.path()).output().unwrap();
    let statvfs = String::from_utf8(statvfs.stdout).unwrap();
    let capacity: f64 = statvfs.split_whitespace().map(|number| number.parse::<f64>().unwrap()).product();
    assert!(is(signal("capacity_bytes", "nodefs.available"), capacity), "{statvfs}");
    let readyz = agent.get("/readyz");
    assert!(readyz.contains("degraded: imagefs.inodesFree: proc at /proc has no limit of inodes"), "{readyz}");
    let deadline = Instant::now() + PATIENCE;
    while !agent.text("err").contains("\"event\":\"threshold_met\"") {
        assert!(Instant::now() < deadline, "{}", agent.text("err"));
        std::thread::sleep(Duration::from_millis(20));
    }
    let metrics = agent.get("/metrics");
    for (condition, status) in [("PIDPressure", 1), ("DiskPressure", 0), ("MemoryPressure", 0)] {
        let line = format!("node_pressure_monitor_condition{{condition=\"{condition}\"}} {status}");
        assert!(metrics.contains(&line), "{line} is missing in\n{metrics}");
    }
    assert_eq!(agent.stop(), 0);
}

#[test]
fn a_journal_that_cannot_be_written_is_a_degradation() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = file.path().join("incidents").display().to_string();
    let agent = Agent::start(&format!("incidents: {{directory: {refused}}}\n"), "json");
    let readyz = agent.get("/readyz");
    assert!(readyz.contains("degraded: incident journal: ") && readyz.contains("incidents.directory"), "{readyz}");
}

#[test]
fn a_second_instance_is_refused() {
    let first = Agent::start("", "json");
    let lock = first.path("lock");
    let second = refused("", &["--lock-file", lock.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(3));
    assert!(stderr(&second).contains(&format!("process {}", first.child.id())), "{}", stderr(&second));
}

#[test]
fn every_error_of_a_configuration_is_reported() {
    let output = refused("evictionHard: {memory.available: 100MM}\nsempling: {}\n", &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for part in ["monitor.yaml:3", "evictionHard.memory.available", "100MM", "monitor.yaml:4", "sempling", "sampling"] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn a_soft_threshold_without_a_grace_period_stops_the_start() {
    let output = refused("evictionSoft: {memory.available: 1Gi}\n", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("grace period must be specified"), "{}", stderr(&output));
}

#[test]
fn a_busy_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = refused("", &["--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(&address) && text.contains("--listen"), "{text}");
}

#[test]
fn an_unreadable_cgroup_tree_is_named() {
    let output = refused("cgroupRoot: /nonexistent\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("/nonexistent") && text.contains("cgroupRoot"), "{text}");
}

#[test]
fn without_nested_accounting_nothing_is_enforced() {
    let root = tempfile::tempdir().unwrap();
    let memory = root.path().join("memory");
    fs::create_dir(&memory).unwrap();
    fs::write(memory.join("memory.usage_in_bytes"), "1\n").unwrap();
    fs::write(memory.join("memory.use_hierarchy"), "0\n").unwrap();
    let output = refused(&format!("cgroupRoot: {}\nmode: enforce\n", root.path().display()), &[]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("memory.use_hierarchy is 0") && text.contains("because mode is enforce"), "{text}");
}

#[test]
fn missing_capabilities_are_reported() {
    let bare = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--", PROGRAM]).args(arguments);
        command
    };
    if !bare(&["--version"]).output().is_ok_and(|output| output.status.success()) {
        tell!("SKIPPED: setpriv cannot drop capabilities here");
        return;
    }
    let agent = Agent::start_by("", "json", bare);
    let readyz = agent.get("/readyz");
    assert!(readyz.contains("CAP_BPF"), "{readyz}");
    assert!(readyz.starts_with("HTTP/1.1 200"), "it still samples: {readyz}");
    assert!(agent.metric("node_pressure_monitor_memory_available_bytes{semantics=\"corrected\"}") > 0.0);
    let attached =
        agent.get("/metrics").lines().filter(|line| line.contains("probe_attached{") && line.ends_with(" 1")).count();
    assert_eq!(attached, 0);
    // Each signal has another source, and its metric names the source.
    let metrics = agent.get("/metrics");
    let sources: Vec<&str> = metrics.lines().filter(|line| line.contains("_signal_source{")).collect();
    assert_eq!(sources.len(), 5, "{sources:?}");
    assert!(sources.iter().all(|line| !line.contains("ebpf")), "{sources:?}");
    assert!(
        !agent.text("err").contains("source_changed"),
        "where they stand at start is no change: {}",
        agent.text("err")
    );
}

#[test]
fn the_other_figures_agree_with_this_machine() {
    let condition = "pressureConditions: [{condition: Busy, scope: system, resource: cpu, kind: some, \
                     set: {level: 0.01%, for: 0s}, clear: {level: 0.01%, for: 1h}}]\n";
    let agent = Agent::start(condition, "json");
    let stat = rustix::fs::statvfs("/").unwrap();
    let metrics = agent.get("/metrics");
    let of_root = |line: &&str| line.contains("_filesystem_inodes{") && line.contains("mountpoint=\"/\"");
    if let Some(line) = metrics.lines().find(of_root) {
        assert_eq!(line.rsplit(' ').next().unwrap().parse::<u64>().ok(), Some(stat.f_files), "{line}");
    } else {
        tell!("SKIPPED: the root filesystem of this machine is no local one that counts its inodes");
    }
    let swap = line_value(Path::new("/proc/meminfo"), "SwapTotal") * 1024;
    assert!((agent.metric("node_pressure_monitor_swap_bytes") - swap as f64).abs() < 1.0);
    assert!(agent.metric("node_pressure_monitor_memory_correction_bytes{correction=\"watermarks\"}") > 0.0);
    // The slope needs two samples, and each scrape is one.
    std::thread::sleep(Duration::from_millis(1100));
    assert!(agent.metric("node_pressure_monitor_exhaustion_seconds{signal=\"memory.available\"}") > 0.0);
    let page = agent.get("/summary");
    for part in ["\nmode        observe", "\nexhaustion  memory.available ", "\nsources     memory.available by "] {
        assert!(page.contains(part), "{part:?} is missing in\n{page}");
    }
    if Path::new("/proc/pressure/cpu").exists() {
        assert!(page.contains("\npressure    system "), "{page}");
        let deadline = Instant::now() + PATIENCE;
        while !agent.text("err").contains("Busy is now true") {
            assert!(Instant::now() < deadline, "{}", agent.text("err"));
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!((agent.metric("node_pressure_monitor_condition{condition=\"Busy\"}") - 1.0).abs() < 0.5);
    } else {
        tell!("SKIPPED: no PSI on this machine");
    }
}

#[test]
fn without_btf_the_probes_still_count() {
    let hide = "mount --bind /dev/null /sys/kernel/btf/vmlinux && exec \"$0\" \"$@\"";
    let hidden = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", hide, PROGRAM]).args(arguments);
        command
    };
    if !hidden(&["--version"]).output().is_ok_and(|output| output.status.success()) {
        tell!("SKIPPED: this host's BTF cannot be hidden");
        return;
    }
    let agent = Agent::start_by("", "json", hidden);
    let readyz = agent.get("/readyz");
    assert!(readyz.contains("BTF"), "{readyz}");
}
