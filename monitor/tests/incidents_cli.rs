//! Runs the program with `incidents` on complete, damaged, growing and missing journals.
#![expect(clippy::unwrap_used, reason = "a command that cannot be run fails its test")]

use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use node_pressure_monitor::incidents::journal::{Journal, write_fixture};
use node_pressure_monitor::incidents::model::{Eviction, RawJson, TraceCut};
use node_pressure_monitor::incidents::writer::Writer;
use node_pressure_monitor::incidents::{Draft, Incident, Kind};
use node_pressure_monitor::units::Bytes;
use serde_json::Value;

/// Prints past the test harness, which hides the output of passing tests: a skipped test must be visible.
macro_rules! report {
    ($($text:tt)*) => {
        let _sent = writeln!(std::io::stderr(), $($text)*);
    };
}

const SIZE: Bytes = Bytes(4 << 20);

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/incidents")
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"));
    command.arg("incidents").arg("--directory").arg(directory).args(arguments);
    command
}

fn texts(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    texts(&command(directory, arguments).output().unwrap())
}

fn json(directory: &Path, arguments: &[&str]) -> Vec<Value> {
    let (status, stdout, stderr) = run(directory, &[&["--output", "json"], arguments].concat());
    assert_eq!(status, 0, "{stderr}");
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn incident(id: &str, summary: &str) -> Incident {
    Incident {
        id: id.to_owned(),
        kind: Kind::Eviction,
        time: "2026-01-02T03:04:05Z".parse().unwrap(),
        summary: summary.to_owned(),
        ..Incident::default()
    }
}

fn append(journal: &mut Journal, incident: &Incident) {
    journal.append(&serde_json::to_vec(incident).unwrap()).unwrap();
}

#[test]
fn a_list_and_one_incident_are_shown() {
    let all = json(&fixture(), &[]);
    assert_eq!(all.len(), 5);
    let (status, list, stderr) = run(&fixture(), &[]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(list.lines().count(), 6, "{list}");
    for (incident, line) in all.iter().zip(list.lines().skip(1)) {
        for field in ["id", "summary"] {
            assert!(line.contains(incident[field].as_str().unwrap()), "{field}: {line}");
        }
    }
    let last = all[4]["id"].as_str().unwrap();
    for id in ["last", last, "20260102-0335"] {
        let (status, shown, stderr) = run(&fixture(), &[id]);
        assert_eq!(status, 0, "{stderr}");
        assert!(shown.starts_with(last) && shown.contains("WHAT TO DO"), "{shown}");
        assert_eq!(json(&fixture(), &[id]), all[4..]);
    }
    let (status, list, stderr) = run(&fixture(), &["--limit", "2"]);
    assert_eq!((status, list.lines().count()), (0, 3));
    assert!(stderr.contains("3 older incidents are not shown"), "{stderr}");
}

#[test]
fn missing_incidents_exit_with_1_and_wrong_usage_with_2() {
    let empty = tempfile::tempdir().unwrap();
    for (directory, arguments, status, expected) in [
        (fixture(), &["20260102"][..], 1, "5 ids begin with 20260102: "),
        (fixture(), &["no-such"], 1, "no incident has the id no-such"),
        (empty.path().to_owned(), &["last"], 1, "the journal has no incident"),
        (empty.path().to_owned(), &[], 0, "the journal has no incident"),
        (empty.path().join("none"), &[], 2, "cannot be read"),
        (fixture(), &["--output", "xml"], 2, "xml"),
        (fixture(), &["--follow", "last"], 2, "--follow"),
        (fixture(), &["--config", "/nonexistent.yaml", "--limit", "x"], 2, "x"),
    ] {
        let (code, stdout, stderr) = run(&directory, arguments);
        assert_eq!((code, stdout.as_str()), (status, ""), "{arguments:?} {stderr}");
        assert!(stderr.contains(expected), "{arguments:?} {stderr}");
    }
}

#[test]
fn the_configuration_names_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("monitor.yaml");
    let run = |text: String| {
        fs::write(&file, format!("apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n{text}"))
            .unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"));
        texts(&command.args(["incidents", "--output", "json", "--config"]).arg(&file).output().unwrap())
    };
    let (status, stdout, stderr) = run(format!("incidents: {{directory: {}}}\n", fixture().display()));
    assert_eq!((status, stdout.lines().count()), (0, 5), "{stderr}");
    let (status, _, stderr) = run("incidents: {maxSize: 1Mi, direktory: x}\n".to_owned());
    assert_eq!(status, 1);
    for part in ["maxSize", "write at least 4Mi", "direktory"] {
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn the_last_record_counts_and_damage_is_noted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(directory.path(), SIZE).unwrap();
    append(&mut journal, &incident("a", "underway"));
    append(&mut journal, &incident("b", "in between"));
    append(&mut journal, &incident("a", "gone"));
    let all = json(directory.path(), &[]);
    assert_eq!(all.iter().map(|it| it["summary"].as_str().unwrap()).collect::<Vec<_>>(), ["gone", "in between"]);
    let path = directory.path().join("incidents-00000001.journal");
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 1;
    bytes.extend_from_slice(b"0000");
    fs::write(&path, bytes).unwrap();
    let (status, stdout, stderr) = run(directory.path(), &[]);
    assert_eq!((status, stdout.lines().count()), (0, 3), "{stderr}");
    assert!(stderr.contains("damaged in 1") && stderr.contains("a crash cut it off"), "{stderr}");
}

#[test]
fn follow_prints_each_new_incident() {
    let directory = tempfile::tempdir().unwrap();
    // The command starts before the directory exists.
    let path = directory.path().join("journal");
    let mut child = command(&path, &["--follow", "--output", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut journal, _) = Journal::open(&path, SIZE).unwrap();
    for number in 0..3 {
        append(&mut journal, &incident(&number.to_string(), "now"));
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["id"], number.to_string());
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn traced(id: &str, lines: &[Value]) -> Incident {
    let eviction = Eviction {
        policy: Some(RawJson::of(&serde_json::json!({"kind": "MonitorConfiguration"})).unwrap()),
        trace: lines.iter().map(|line| RawJson::of(line).unwrap()).collect(),
        ..Eviction::default()
    };
    Incident { eviction: Some(eviction), ..incident(id, "evicted") }
}

#[test]
fn an_eviction_is_exported_as_trace_and_policy() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(&directory.path().join("journal"), SIZE).unwrap();
    let lines = [serde_json::json!({"time": 1}), serde_json::json!({"time": 2, "pods": []})];
    append(&mut journal, &traced("evicted", &lines));
    let expected = "{\"time\":1}\n{\"pods\":[],\"time\":2}\n";
    let export = |arguments: &[&str]| {
        let mut command = command(&directory.path().join("journal"), &[&["export"], arguments].concat());
        texts(&command.current_dir(directory.path()).output().unwrap())
    };
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let (status, stdout, stderr) = export(&["last"]);
    assert_eq!((status, stdout.as_str()), (0, expected), "{stderr}");
    assert_eq!(read("evicted.policy.json"), "{\"kind\":\"MonitorConfiguration\"}\n");
    let (status, stdout, stderr) = export(&["evi", "--policy", "p.json", "--output", "trace.jsonl"]);
    assert_eq!((status, stdout.as_str()), (0, ""), "{stderr}");
    assert_eq!((read("trace.jsonl").as_str(), read("p.json")), (expected, read("evicted.policy.json")));
    let (status, stdout, stderr) = export(&["last", "--output", "/nonexistent/trace"]);
    assert_eq!((status, stdout.as_str()), (1, ""));
    assert!(stderr.contains("/nonexistent/trace: cannot be written"), "{stderr}");
    for (arguments, code) in [(&["--output", "x"][..], 2), (&["none"], 1)] {
        assert_eq!(export(arguments).0, code, "{arguments:?}");
    }
    let (status, _, stderr) = run(&fixture(), &["export", "last"]);
    assert_eq!(status, 1);
    assert!(stderr.contains("has no trace to export"), "{stderr}");
    let (status, _, stderr) = run(&fixture(), &["--follow", "export", "last"]);
    assert_eq!(status, 2, "{stderr}");
}

fn wait_for(what: &str, is_so: &dyn Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_trace_above_the_limit_loses_its_oldest_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let (writer, _) = Writer::start(&path, SIZE).unwrap();
    let limit = usize::try_from(SIZE.0).unwrap() / 16;
    let line = Value::String("x".repeat(limit / 2 - 2));
    let incident = traced("long", &[Value::from(7), line.clone(), line]);
    writer.submit(Draft { incident, signal: None, samples: Vec::new() }).unwrap();
    wait_for("the record is on disk", &|| json(&path, &[]).len() == 1);
    let cut = &json(&path, &["long"])[0]["eviction"]["traceCut"];
    let expected = TraceCut { lines: 1, bytes: 1, limit_bytes: limit };
    assert_eq!(serde_json::from_value::<TraceCut>(cut.clone()).unwrap(), expected);
    let policy = directory.path().join("policy.json");
    let (status, stdout, stderr) = run(&path, &["export", "long", "--policy", policy.to_str().unwrap()]);
    assert_eq!((status, stdout.lines().count()), (0, 2), "{stderr}");
    assert!(stderr.contains("lacks its 1 oldest lines (1 bytes)"), "{stderr}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(&fixture(), &["--output", "json"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(texts(&output), (0, String::new(), String::new()));
}

/// Runs in a child process: writes incidents, the last one byte by byte, until the parent kills it.
#[test]
fn write_until_killed() {
    let Some(directory) = std::env::var_os("INCIDENTS_WRITTEN_TO") else { return };
    let directory = Path::new(&directory);
    let (mut journal, _) = Journal::open(directory, SIZE).unwrap();
    for number in 0..WRITTEN {
        append(&mut journal, &incident(&number.to_string(), &"x".repeat(number * 100)));
    }
    journal.sync().unwrap();
    drop(journal);
    let torn = serde_json::to_vec(&incident("torn", &"x".repeat(1 << 20))).unwrap();
    let aside = directory.join("torn");
    write_fixture(&aside, &[torn]).unwrap();
    let mut file = OpenOptions::new().append(true).open(directory.join("incidents-00000001.journal")).unwrap();
    writeln!(std::io::stdout(), "\nwritten").unwrap();
    for byte in fs::read(aside).unwrap() {
        file.write_all(&[byte]).unwrap();
    }
}

const WRITTEN: usize = 40;

#[test]
fn a_kill_during_a_write_loses_no_written_record() {
    let mut unfinished = 0;
    for round in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["write_until_killed", "--exact", "--nocapture"]).env("INCIDENTS_WRITTEN_TO", directory.path());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.by_ref().map_while(Result::ok).any(|line| line == "written"));
        std::thread::sleep(Duration::from_millis(round));
        child.kill().unwrap();
        child.wait().unwrap();
        let (status, stdout, stderr) = run(directory.path(), &["--output", "json"]);
        assert_eq!((status, stdout.lines().count()), (0, WRITTEN), "{stderr}");
        assert!(!stderr.contains("damaged"), "{stderr}");
        unfinished += usize::from(stderr.contains("a crash cut it off"));
        // The next start appends after the last complete record.
        let (mut journal, cut_off) = Journal::open(directory.path(), SIZE).unwrap();
        assert_eq!(cut_off > 0, stderr.contains("a crash cut it off"));
        append(&mut journal, &incident("next", ""));
        let (_, stdout, stderr) = run(directory.path(), &["--output", "json"]);
        assert_eq!((stdout.lines().count(), stderr.as_str()), (WRITTEN + 1, ""));
    }
    assert!(unfinished >= 5, "only {unfinished} of 10 were killed during a write");
}

#[test]
fn records_wait_for_room_on_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = |arguments: &[&str]| {
        Command::new("mount")
            .args(arguments)
            .arg(directory.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|it| it.success())
    };
    if !mounted(&["-t", "tmpfs", "-o", "size=256k", "tmpfs"]) {
        report!("SKIPPED records_wait_for_room_on_a_full_disk: no small filesystem can be mounted here");
        return;
    }
    let unmount = Unmount(directory.path());
    let ballast = directory.path().join("ballast");
    let (writer, missing) = Writer::start(&directory.path().join("journal"), SIZE).unwrap();
    assert_eq!(missing, None);
    let submit = |id: &str| {
        writer.submit(Draft { incident: incident(id, &"x".repeat(3000)), signal: None, samples: Vec::new() }).unwrap();
    };
    let stored = || json(&directory.path().join("journal"), &[]).len();
    submit("before");
    wait_for("there is room", &|| stored() == 1);
    let _full = fs::write(&ballast, vec![0; 1 << 20]);
    for number in 0..5 {
        submit(&number.to_string());
    }
    wait_for("the failed write is counted", &|| writer.report().write_failures > 0);
    wait_for("HTTP serves all records", &|| writer.index().heads(100).len() == 6);
    assert!(stored() >= 1, "the earlier record remains");
    fs::remove_file(&ballast).unwrap();
    submit("after");
    wait_for("all are written", &|| stored() == 7);
    assert_eq!(writer.report().dropped, 0);
    drop(writer);
    drop(unmount);
}

/// A mount. Dropping it unmounts.
struct Unmount<'p>(&'p Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _left = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
