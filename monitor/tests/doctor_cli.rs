//! Runs the program with `doctor` on this machine.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a command that cannot be run fails its test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use node_pressure_monitor::actions::KeptState;
use node_pressure_monitor::commands::instance::InstanceLock;
use node_pressure_monitor::config::{Threshold, ThresholdValue, threshold::Percentage};
use node_pressure_monitor::eviction::decider::Kept;
use node_pressure_monitor::units::{Bytes, Monotonic, Signal};
use serde_json::{Value, json};

#[path = "support/named_process.rs"]
mod named_process;

use named_process::NamedProcess;

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn lock(&self) -> PathBuf {
        self.directory.path().join("lock")
    }

    /// Runs doctor with a configuration that does not touch this machine's own agent.
    fn doctor(&self, config: &str, arguments: &[&str]) -> (i32, String, String) {
        let file = self.directory.path().join("monitor.yaml");
        let place = self.directory.path().display();
        fs::write(
            &file,
            format!("{HEAD}lockFile: {place}/lock\nincidents: {{directory: {place}/incidents}}\n{config}"),
        )
        .unwrap();
        run(&[&["--config", file.to_str().unwrap()], arguments].concat())
    }

    fn json(&self, config: &str) -> (i32, Value) {
        let (status, stdout, stderr) = self.doctor(config, &["--output", "json"]);
        (status, serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")))
    }
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let output: Output =
        Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor")).arg("doctor").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn sentences(answer: &Value, severity: &str) -> Vec<String> {
    let findings = answer["findings"].as_array().unwrap().iter();
    let of_kind = findings.filter(|finding| finding["severity"] == severity);
    of_kind.map(|finding| finding["sentence"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_exit_status_tells_whether_enforcing_is_safe() {
    let machine = Machine::new();
    let (status, answer) = machine.json("");
    let is_unsafe = !sentences(&answer, "unsafe").is_empty();
    assert_eq!((status, answer["enforcing"].as_str().unwrap()), if is_unsafe { (1, "unsafe") } else { (0, "safe") });
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(answer["kernel"]["release"], release.trim());
    for field in [
        "version",
        "mode",
        "cgroup",
        "probes",
        "oomKillsToldBy",
        "pressureStallInformation",
        "kernelLog",
        "swapBytes",
        "capabilities",
        "privateNamespaces",
        "filesystems",
        "filesystemLayout",
        "kubelet",
        "runtimes",
        "otherInstance",
        "otherKillers",
        "setUp",
    ] {
        assert!(answer.get(field).is_some(), "{field}: {answer}");
    }
    assert!(answer["filesystems"].as_array().unwrap().iter().any(|it| it["role"] == "nodefs"), "{answer}");
    let (text_status, text, stderr) = machine.doctor("", &[]);
    assert_eq!(text_status, status, "{stderr}");
    assert!(text.contains(release.trim()) && text.contains("\nVERDICT\n"), "{text}");
    assert_eq!(stderr.contains("enforcing would be unsafe here"), is_unsafe, "{stderr}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_running_agent_is_found_and_not_disturbed() {
    let machine = Machine::new();
    let (_, answer) = machine.json("");
    assert_eq!(answer["otherInstance"], Value::Null);
    let left: Vec<_> = fs::read_dir(machine.directory.path()).unwrap().flatten().map(|it| it.file_name()).collect();
    assert_eq!(left, ["monitor.yaml"], "neither lock nor journal");
    let held = InstanceLock::take(&machine.lock()).unwrap();
    let (_, answer) = machine.json("");
    // On an overlay, /proc/locks names another device than stat, and the running agent is not found.
    if !answer["otherInstance"].is_null() {
        assert_eq!(answer["otherInstance"], std::process::id());
        assert!(sentences(&answer, "note").iter().any(|it| it.contains("another agent runs already")), "{answer}");
    }
    drop(held);
    InstanceLock::take(&machine.lock()).unwrap();
}

#[test]
fn what_an_agent_of_this_boot_has_left_is_shown() {
    let machine = Machine::new();
    assert_eq!(machine.json("").1["decisions"], Value::Null, "no file");
    let threshold = |amount: u64| Threshold {
        signal: Signal::MemoryAvailable,
        value: ThresholdValue::bytes(Bytes(amount)),
        grace_period: Duration::ZERO,
        min_reclaim: None,
    };
    let now = Monotonic::now().0;
    let kept = json!({
        "arming": {
            "armed": [{"threshold": threshold(1 << 20), "capacity": 1_u64 << 34}],
            "waiting": [{"threshold": threshold(1 << 30), "available": 5, "since": now.saturating_sub(90_000_000_000)}],
        },
        "budget": {"charges": [{"class": "HardMemory", "id": 7, "at": now}, {"class": "Soft", "id": 8, "at": 0}]},
    });
    let (mut state, ..) = KeptState::beside(&machine.lock()).unwrap();
    state.keep(&serde_json::from_value::<Kept>(kept).unwrap().into_memory());
    drop(state);
    let config = "evictionHard: {memory.available: 1Mi}\nevictions: {maxPerMinute: 6}\n";
    let (_, answer) = machine.json(config);
    let found = &answer["decisions"];
    assert_eq!((&found["unused"], &found["armed"]), (&Value::Null, &json!(["hard memory.available<1Mi"])), "{found}");
    let waiting = &found["waiting"][0];
    assert_eq!(waiting["threshold"], "hard memory.available<1Gi");
    // This machine may have been up for less than 90 s.
    assert!((1..200).contains(&waiting["sinceSeconds"].as_u64().unwrap()), "{waiting}");
    let spent: Vec<_> = found["budgets"].as_array().unwrap().iter().map(|it| it["spent"].as_u64().unwrap()).collect();
    assert_eq!(spent, [1, 0, 0, 0], "{found}");
    let (_, text, _) = machine.doctor(config, &[]);
    assert!(text.contains("armed: hard memory.available<1Mi\n"), "{text}");
    assert!(text.contains("not armed: hard memory.available<1Gi, met at its arrival 1m3"), "{text}");
    assert!(text.contains("evictions left in this minute for hard thresholds on memory: 5 of 6\n"), "{text}");

    // An armed threshold stays armed: an agent that starts now acts on it at once. Most machines have this threshold met.
    let place = machine.directory.path().display();
    let config = format!("filesystems: {{nodefs: {place}}}\nevictionHard: {{nodefs.available: 50%}}\n");
    let is_unarmed =
        |answer: &Value| sentences(answer, "unsafe").iter().any(|it| it.contains("nodefs.available<50% is met now"));
    let (_, answer) = machine.json(&config);
    assert_eq!(is_unarmed(&answer), answer["thresholds"][0]["met"], "{answer}");
    let half = ThresholdValue::Percentage(Percentage::whole(50));
    let armed = Threshold { signal: Signal::NodeFsAvailable, value: half, ..threshold(0) };
    let capacity = &answer["thresholds"][0]["capacity"];
    let armed = json!({"arming": {"armed": [{"threshold": armed, "capacity": capacity}]}});
    let (mut state, ..) = KeptState::beside(&machine.lock()).unwrap();
    state.keep(&serde_json::from_value::<Kept>(armed).unwrap().into_memory());
    drop(state);
    assert!(!is_unarmed(&machine.json(&config).1));

    let file = machine.directory.path().join("lock.decisions");
    for (text, reason) in [("{", "it is damaged"), (r#"{"version": 9}"#, "it has version 9, not 1")] {
        fs::write(&file, text).unwrap();
        let (_, answer) = machine.json("");
        assert!(answer["decisions"]["unused"].as_str().unwrap().starts_with(reason), "{answer}");
        assert!(sentences(&answer, "note").iter().any(|it| it.contains(reason) && it.contains("is not used")));
    }
    let other = r#"{"version": 1, "boot": "b", "writtenMonoNs": 1, "kept": {}}"#;
    fs::write(&file, other).unwrap();
    assert!(sentences(&machine.json("").1, "note").iter().any(|it| it.contains("it is of another boot")));
}

#[test]
fn a_running_earlyoom_is_found() {
    let machine = Machine::new();
    let _earlyoom = NamedProcess::start("earlyoom", machine.directory.path());
    let (_, answer) = machine.json("evictionHard: {memory.available: 10Mi}\nmode: enforce\n");
    let killers = answer["otherKillers"].as_array().unwrap();
    let found = killers.iter().find(|it| it["name"] == "earlyoom").unwrap();
    assert_eq!(found["thresholds"][0], "memory.available<10%", "{found}");
    let degraded = sentences(&answer, "degraded");
    assert!(degraded.iter().any(|it| it.contains("for memory.available it acts before this agent")), "{degraded:?}");
}

#[test]
fn an_invisible_machine_is_unsafe_to_enforce_on() {
    let machine = Machine::new();
    let (status, answer) = machine.json("cgroupRoot: /nonexistent\n");
    assert_eq!(status, 1);
    let found = sentences(&answer, "unsafe");
    assert!(found.iter().any(|it| it.contains("no cgroup hierarchy") && it.contains("mount one there")), "{found:?}");
    assert_eq!(answer["cgroup"], Value::Null);
    let cgroups = tempfile::tempdir().unwrap();
    fs::create_dir(cgroups.path().join("memory")).unwrap();
    for (file, text) in [("memory.usage_in_bytes", "1\n"), ("memory.use_hierarchy", "0\n")] {
        fs::write(cgroups.path().join("memory").join(file), text).unwrap();
    }
    let (status, answer) = machine.json(&format!("cgroupRoot: {}\n", cgroups.path().display()));
    assert_eq!(status, 1);
    assert!(sentences(&answer, "unsafe").iter().any(|it| it.contains("memory.use_hierarchy is 0")), "{answer}");
    let (status, answer) = machine.json("procRoot: /nonexistent\n");
    assert_eq!(status, 1);
    assert!(sentences(&answer, "unsafe").iter().any(|it| it.contains("set procRoot")), "{answer}");
}

#[test]
fn unknown_limits_are_reported_unless_pods_is_set() {
    let machine = Machine::new();
    let is_reported =
        |config| sentences(&machine.json(config).1, "note").iter().any(|it| it.contains("limits of local storage"));
    assert!(is_reported(""));
    assert!(!is_reported("pods: /run/pods.json\n"));
    assert!(!is_reported("localStorageCapacityIsolation: false\n"));
}

#[test]
fn invalid_files_exit_with_1_and_unreadable_ones_with_2() {
    let machine = Machine::new();
    let (status, stdout, stderr) = machine.doctor("mode: maybe\n", &[]);
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.contains("mode: \"maybe\""), "{stderr}");
    assert_eq!(run(&["--config", "/nonexistent.yaml"]).0, 2);
    assert_eq!(run(&["--output", "xml"]).0, 2);
}

#[test]
fn thresholds_that_cannot_be_meant_are_unsafe() {
    let machine = Machine::new();
    let place = machine.directory.path().display();
    // The example of OpenShift's documentation, on a filesystem with inodes.
    let nodefs = format!("filesystems: {{nodefs: {place}}}\n");
    let config = format!("{nodefs}evictionHard: {{nodefs.inodesFree: 100Mi, memory.available: 900Ti}}\n");
    let (status, answer) = machine.json(&config);
    let found = sentences(&answer, "unsafe");
    let has = |text: &str| found.iter().any(|it| it.contains(text));
    assert_eq!((status, answer["enforcing"].as_str()), (1, Some("unsafe")));
    assert!(has("hard memory.available<900Ti cannot be meant for this node"), "{found:?}");
    let thresholds = answer["thresholds"].as_array().unwrap();
    if thresholds.iter().any(|it| it["threshold"] == "nodefs.inodesFree<100Mi") {
        assert!(has("hard nodefs.inodesFree<100Mi cannot be meant for this node"), "{found:?}");
        assert!(has("it stands for 104857600"), "{found:?}");
    }
    let waived = format!("{config}evictions: {{actOnPresentPressure: true}}\n");
    assert!(sentences(&machine.json(&waived).1, "unsafe").iter().any(|it| it.contains("would evict at once")));
    let (_, text, _) = machine.doctor("evictionHard: {memory.available: 1Mi}\n", &[]);
    assert!(text.contains("\nthreshold     hard memory.available<1Mi: "), "{text}");
}

/// A threshold that nothing reports must not look as if it guarded something.
#[test]
fn a_threshold_whose_signal_is_not_observed_is_named() {
    let machine = Machine::new();
    let none = "filesystems: {imagefs: /nonexistent/images}\n";
    let config =
        format!("evictionHard: {{memory.available: 1Mi, imagefs.available: 1%, imagefs.inodesFree: 1%}}\n{none}");
    let (_, answer) = machine.json(&config);
    let unobserved = answer["unobserved"].as_array().unwrap();
    let named: Vec<&str> = unobserved.iter().map(|it| it["threshold"].as_str().unwrap()).collect();
    assert_eq!(named, ["imagefs.available<1%", "imagefs.inodesFree<1%"], "{answer}");
    assert!(unobserved[0]["reason"].as_str().unwrap().contains("/nonexistent/images"), "{answer}");
    let (_, text, _) = machine.doctor(&config, &[]);
    assert!(text.contains("hard imagefs.available<1%: not observed, and cannot be met"), "{text}");
}
