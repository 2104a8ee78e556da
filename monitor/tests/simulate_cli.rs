//! Runs the program with `simulate`: its exact output, its streaming, its errors.

#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

#[path = "simulate_cli/field_reports.rs"]
mod field_reports;
#[path = "simulate_cli/notes.rs"]
mod notes;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");

const KUBELET: &str = r#"
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
evictionSoft: {memory.available: 1Gi}
evictionSoftGracePeriod: {memory.available: 30s}
evictionMaxPodGracePeriod: 20
enforceNodeAllocatable: []
"#;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name)
}

struct Place(tempfile::TempDir);

impl Place {
    fn new(policy: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.write("policy.yaml", policy);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("simulate").arg("--config").arg(self.path("policy.yaml")).args(arguments);
        command
    }

    fn simulate(&self, trace: impl AsRef<[u8]>, arguments: &[&str]) -> Output {
        let trace = self.write("trace.jsonl", trace);
        self.command(arguments).arg(trace).output().unwrap()
    }

    /// Returns the answers, one for each line. stderr must be empty.
    fn answers(&self, trace: impl AsRef<[u8]>) -> Vec<Value> {
        let output = self.simulate(trace, &[]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn start(&self) -> (Child, ChildStdin, BufReader<ChildStdout>) {
        let mut command = self.command(&["-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        (child, stdin, BufReader::new(stdout))
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn at(second: u64) -> String {
    let (minutes, hours, days) = (second / 60, second / 3_600, second / 86_400);
    format!("2026-01-{:02}T{:02}:{:02}:{:02}Z", days + 1, hours % 24, minutes % 60, second % 60)
}

/// Returns a line with the memory of a 10Gi node and the two pods of a shop.
fn line(second: u64, available: i64) -> Value {
    let memory = |working_set: i64| json!({"time": at(second), "workingSetBytes": working_set});
    let stats = |name: &str, uid: &str, working_set: i64| {
        let container = json!({"name": "main", "memory": memory(working_set)});
        json!({"podRef": {"name": name, "namespace": "shop", "uid": uid}, "containers": [container], "memory": memory(working_set)})
    };
    json!({
        "time": at(second),
        "node": {"capacity": {"memory": "10Gi"}},
        "summary": {
            "node": {"memory": {"time": at(second), "availableBytes": available, "workingSetBytes": (10_i64 << 30) - available}},
            "pods": [stats("web", "u-web", 3 << 30), stats("db", "u-db", 2 << 30)],
        },
        "pods": [
            {"metadata": {"name": "db", "namespace": "shop", "uid": "u-db"}, "status": {"phase": "Running", "qosClass": "Guaranteed"},
             "spec": {"priority": 5, "containers": [{"name": "main", "resources": {"requests": {"memory": "2Gi"}}}]}},
            {"metadata": {"name": "web", "namespace": "shop", "uid": "u-web"}, "status": {"phase": "Running", "qosClass": "Burstable"},
             "spec": {"terminationGracePeriodSeconds": 60, "initContainers": [{"name": "setup"}],
                      "containers": [{"name": "main", "resources": {"requests": {"memory": "1Gi"}}}]}},
            {"metadata": {"name": "done", "namespace": "shop", "uid": "u-done"}, "status": {"phase": "Succeeded", "qosClass": "BestEffort"},
             "spec": {"containers": [{"name": "main"}], "ephemeralContainers": [{"name": "debugger"}]}},
        ],
    })
}

fn trace(lines: &[Value]) -> String {
    lines.iter().fold(String::new(), |mut all, line| {
        writeln!(all, "{line}").unwrap();
        all
    })
}

#[test]
fn an_answer_has_exactly_this_text() {
    let place = Place::new(KUBELET);
    let output = place.simulate(trace(&[line(0, 2 << 30), line(10, 50 << 20)]), &[]);
    let pods = r#""pods":{"shop/db":{"qosClass":"Guaranteed","oomScoreAdj":{"main":-997}},"shop/done":{"qosClass":"BestEffort","oomScoreAdj":{"main":1000}},"shop/web":{"qosClass":"Burstable","oomScoreAdj":{"main":900,"setup":999}}}"#;
    let expected = [
        format!(
            r#"{{"time":"2026-01-01T00:00:00Z","signals":{{"memory.available":{{"available":2147483648,"capacity":10737418240}}}},"thresholdsMet":[],"conditions":[],"garbageCollection":[],"ranking":[],"evict":null,"localStorageEvictions":[],{pods}}}"#
        ),
        format!(
            r#"{{"time":"2026-01-01T00:00:10Z","signals":{{"memory.available":{{"available":52428800,"capacity":10737418240}}}},"thresholdsMet":["memory.available<100Mi"],"conditions":["MemoryPressure"],"garbageCollection":[],"ranking":["shop/web","shop/db"],"evict":{{"pod":"shop/web","uid":"u-web","signal":"memory.available","gracePeriodSeconds":1,"reason":"Evicted","message":"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container main was using 3Gi, request is 1Gi, has larger consumption of memory. "}},"localStorageEvictions":[],{pods}}}"#
        ),
    ];
    let answers: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(answers, expected);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn a_soft_threshold_waits_and_gives_its_pod_a_grace_period() {
    let place = Place::new(KUBELET);
    let lines: Vec<Value> =
        (0..5).map(|index| line(index * 10, if index == 0 { 2 << 30 } else { 900 << 20 })).collect();
    let answers = place.answers(trace(&lines));
    let conditions: Vec<&Value> = answers.iter().map(|answer| &answer["conditions"]).collect();
    assert_eq!(conditions[0], &json!([]));
    assert!(conditions[1..].iter().all(|conditions| **conditions == json!(["MemoryPressure"])), "{conditions:?}");
    assert!(answers[..4].iter().all(|answer| answer["evict"].is_null() && answer["thresholdsMet"] == json!([])));
    assert_eq!(answers[4]["thresholdsMet"], json!(["memory.available<1Gi"]));
    assert_eq!(answers[4]["evict"]["gracePeriodSeconds"], 20);
}

#[test]
fn disks_garbage_and_local_storage() {
    let place = Place::new(KUBELET);
    let disk = |available: u64| json!({"node": {"fs": {"availableBytes": available, "capacityBytes": 1000, "inodesFree": 5, "inodes": 10}}});
    let mut low = line(0, 2 << 30);
    low["summary"] = disk(50);
    let mut freed = line(10, 2 << 30);
    freed["summary"] = disk(50);
    freed["summaryAfterGarbageCollection"] = disk(500);
    let mut limited = line(20, 2 << 30);
    limited["pods"][1]["spec"]["volumes"] = json!([{"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}}]);
    limited["summary"]["pods"][0]["volume"] = json!([{"name": "tmp", "usedBytes": 2 << 20}]);
    let answers = place.answers(trace(&[low, freed, limited]));
    assert_eq!(answers[0]["signals"]["nodefs.inodesFree"], json!({"available": 5, "capacity": 10}));
    let signals: Vec<&String> = answers[0]["signals"].as_object().unwrap().keys().collect();
    assert_eq!(signals, ["nodefs.available", "nodefs.inodesFree"]);
    assert_eq!(answers[0]["garbageCollection"], json!(["containers", "images"]));
    assert_eq!(answers[0]["conditions"], json!(["DiskPressure"]));
    assert_eq!(answers[0]["evict"]["signal"], "nodefs.available");
    assert_eq!(answers[1]["garbageCollection"], json!(["containers", "images"]));
    assert_eq!((&answers[1]["ranking"], &answers[1]["evict"]), (&json!([]), &Value::Null));
    assert_eq!(
        answers[2]["localStorageEvictions"],
        json!([{"pod": "shop/web", "uid": "u-web", "reason": "Evicted",
                "message": "Usage of EmptyDir volume \"tmp\" exceeds the limit \"1Mi\". "}])
    );
}

#[test]
fn without_the_nodes_memory_there_are_no_scores() {
    let place = Place::new(KUBELET);
    let mut unknown = line(0, 2 << 30);
    unknown["node"] = Value::Null;
    let answers = place.answers(trace(&[unknown, json!({"time": at(10)})]));
    assert_eq!(answers[0]["pods"]["shop/web"], json!({"qosClass": "Burstable"}));
    assert_eq!((&answers[1]["signals"], &answers[1]["pods"]), (&json!({}), &json!({})));
}

#[test]
fn marks_blank_lines_and_carriage_returns_are_accepted() {
    let place = Place::new(KUBELET);
    let (first, second) = (line(0, 2 << 30).to_string(), line(10, 50 << 20).to_string());
    let plain = place.simulate(format!("{first}\n{second}\n"), &[]);
    let windows = place.simulate(format!("\u{feff}{first}\r\n\r\n\n  {second}"), &[]);
    assert_eq!(text(&plain.stdout), text(&windows.stdout));
    assert_eq!(text(&plain.stdout).lines().count(), 2);
    assert_eq!(place.simulate("", &[]).status.code(), Some(0));
}

#[test]
fn the_chapter_comes_out_at_the_right_second() {
    let place = Place::new("");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("simulate").arg("--config").arg(fixture("chapter/node-config.yaml")).args(arguments);
        command.arg(fixture("chapter/trace.jsonl")).output().unwrap()
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stderr);
    let file = fixture("chapter/node-config.yaml").display().to_string();
    assert_eq!(told, format!("node-pressure-monitor: {file}: 1 warning; see `check-config {file}`\n"));
    assert_eq!(output.stdout, run(&[]).stdout, "equal input, byte-equal output");
    let answers: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let times = |filter: &dyn Fn(&Value) -> bool| -> Vec<&str> {
        answers.iter().filter(|answer| filter(answer)).map(|answer| answer["time"].as_str().unwrap()).collect()
    };
    let pressure = times(&|answer| answer["conditions"] == json!(["MemoryPressure"]));
    assert_eq!(pressure.first(), Some(&"2026-01-01T00:00:30Z"), "below 1Gi");
    assert_eq!(pressure.last(), Some(&"2026-01-01T00:06:20Z"), "five minutes after the last observation");
    assert_eq!(times(&|answer| !answer["evict"].is_null()), ["2026-01-01T00:01:00Z", "2026-01-01T00:01:30Z"]);
    let evicted = |index: usize| {
        let evict = &answers[index]["evict"];
        (evict["pod"].as_str().unwrap(), evict["gracePeriodSeconds"].as_i64().unwrap())
    };
    assert_eq!(answers[6]["thresholdsMet"], json!(["memory.available<1Gi"]));
    assert_eq!(evicted(6), ("batch/report", 0), "30 s below 1Gi: soft");
    assert_eq!(answers[9]["thresholdsMet"], json!(["memory.available<512Mi"]));
    assert_eq!(evicted(9), ("shop/web", 1), "below 512Mi: hard, at once");
    assert_eq!(answers[6]["pods"]["shop/db"]["oomScoreAdj"], json!({"main": -998}));
    drop(place);
}

#[test]
fn a_trace_shifted_in_time_changes_only_the_times() {
    let place = Place::new("");
    let trace = fs::read_to_string(fixture("chapter/trace.jsonl")).unwrap();
    let policy = fs::read_to_string(fixture("chapter/node-config.yaml")).unwrap();
    place.write("policy.yaml", policy);
    let shifted = trace.replace("2026-01-01T00:", "2031-07-15T18:");
    assert_ne!(trace, shifted);
    let answer = place.simulate(&trace, &[]);
    let shifted = place.simulate(&shifted, &[]);
    assert_eq!(text(&answer.stdout), text(&shifted.stdout).replace("2031-07-15T18:", "2026-01-01T00:"));
}

#[test]
fn rows_say_what_changes_and_why() {
    let output = Command::new(PROGRAM)
        .args(["simulate", "--output", "table", "--config"])
        .arg(fixture("chapter/node-config.yaml"))
        .arg(fixture("chapter/trace.jsonl"))
        .output()
        .unwrap();
    let rows: Vec<&str> = text(&output.stdout).lines().collect();
    assert!(rows[0].starts_with("TIME ") && rows[0].ends_with("DECISION"), "{}", rows[0]);
    let has = |time: &str, words: &str| {
        assert!(
            rows.iter().any(|row| row.starts_with(time) && row.contains(words)),
            "{time} {words}\n{}",
            rows.join("\n")
        );
    };
    has("2026-01-01T00:00:30Z", "MemoryPressure  waits for memory.available<1Gi to last 30s");
    has("2026-01-01T00:01:00Z", "evicts batch/report within 0 s for memory.available<1Gi");
    has("2026-01-01T00:01:30Z", "evicts shop/web within 1 s for memory.available<512Mi");
    has(" ", "why   batch/report uses 3.6 GiB: BestEffort, 3.6 GiB above it");
    has(" ", "told  The node was low on resource: memory. Threshold quantity: 1Gi, available: 820Mi.");
    has(" ", "… 28 more lines like this, until 2026-01-01T00:06:20Z");
}

#[test]
fn errors_have_a_place_and_earlier_lines_are_answered() {
    let place = Place::new(KUBELET);
    let good = line(0, 2 << 30).to_string();
    let split = json!({"time": at(10), "node": {"splitImageFs": true}}).to_string();
    let moved = json!({"time": at(10), "node": {"dedicatedImageFs": true}}).to_string();
    for (wrong, place_and_field, reason) in [
        (
            "{\"time\": \"2026-01-01T00:00:10Z\", \"pods\": [{}, 7]}",
            ":3:47: pods[1]: ",
            "invalid type: integer `7`, expected an object: Pod; a line is one JSON object {\"time\"",
        ),
        (
            "{\"time\": \"2026-01-01T00:00:10Z\", \"pods\": [[{}]]}",
            ":3:42: pods[0]: ",
            "invalid type: sequence, expected an object: Pod; ",
        ),
        ("{\"time\": \"2026-01-01T00:00:10Z\", \"summary\": {", ":3:45: summary: ", "cut off"),
        ("{\"time\": \"2026-01-01T00:00:10Z\"]", ":3:32: ", "not JSON"),
        ("{\"summary\": {}}", ":3:1: time: ", "missing"),
        ("{\"time\": \"today\"}", ":3:17: time: ", "\"today\" is not a time of RFC 3339"),
        ("[]", ":3:1: ", "expected an object, found '['"),
        (&split, ":3:1: node.splitImageFs: ", "without dedicatedImageFs"),
        (&moved, ":3:1: node: ", "the filesystems change in mid-trace: one for all since line 1"),
    ] {
        let output = place.simulate(format!("{good}\n\n{wrong}\n{good}\n"), &[]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        assert_eq!(text(&output.stdout).lines().count(), 1, "{wrong}");
        let begin = format!("node-pressure-monitor: {}{place_and_field}", place.path("trace.jsonl").display());
        assert!(error.starts_with(&begin), "{wrong}: {error}");
        assert!(error.contains(reason) && error.lines().count() == 1, "{wrong}: {error}");
    }
    let output = place.simulate(b"{\"time\": \"\xff\"}\n", &[]);
    assert!(text(&output.stderr).contains(":1:11: not UTF-8"), "{}", text(&output.stderr));
}

#[test]
fn exit_codes_distinguish_wrong_input_from_wrong_usage() {
    let place = Place::new("kind: MonitorConfiguration\n");
    let code = |output: &Output| output.status.code();
    assert_eq!(code(&place.simulate("", &[])), Some(1), "a wrong policy");
    assert_eq!(code(&place.simulate("", &["--output", "xml"])), Some(2));
    let place = Place::new(KUBELET);
    let output = place.command(&["/nonexistent/trace"]).output().unwrap();
    assert_eq!(code(&output), Some(2));
    assert!(text(&output.stderr).contains("/nonexistent/trace: cannot be read"), "{}", text(&output.stderr));
    let directory = place.path("").display().to_string();
    assert_eq!(code(&place.command(&[directory.as_str()]).output().unwrap()), Some(2));
    let missing = Command::new(PROGRAM).args(["simulate", "--config", "/nonexistent/policy", "-"]).output().unwrap();
    assert_eq!(code(&missing), Some(2));
    let help = Command::new(PROGRAM).args(["simulate", "--help"]).output().unwrap();
    assert!(text(&help.stdout).contains("Exit status: 0 the whole trace was answered"), "{}", text(&help.stdout));
}

#[test]
fn each_answer_comes_as_soon_as_its_line() {
    let place = Place::new(KUBELET);
    let (mut child, mut stdin, mut stdout) = place.start();
    let mut answer = String::new();
    let lines: Vec<String> = (0..3).map(|index| format!("{}\n", line(index * 10, 2 << 30))).collect();
    for (index, line) in lines.iter().enumerate() {
        // The first bytes of the next line are sent too.
        let (begun, rest) = line.split_at(if index == 0 { 0 } else { 5 });
        assert_eq!(begun.is_empty(), index == 0);
        let next = lines.get(index + 1).map_or("", |next| next.split_at(5).0);
        stdin.write_all(format!("{rest}{next}").as_bytes()).unwrap();
        answer.clear();
        stdout.read_line(&mut answer).unwrap();
        assert!(answer.contains(&at(u64::try_from(index).unwrap() * 10)), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

/// Returns the peak memory of a process in KiB.
fn peak(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_long_trace_takes_no_more_memory_than_a_short_one() {
    const LINES: u64 = 100_000;
    let place = Place::new(KUBELET);
    let (mut child, mut stdin, mut stdout) = place.start();
    let writer = std::thread::spawn(move || {
        for second in 0..LINES {
            let memory = json!({"availableBytes": (second % 3) << 30, "workingSetBytes": 1 << 30});
            let line = json!({"time": at(second), "summary": {"node": {"memory": memory}}, "pods": [{"metadata": {"name": second.to_string()}}]});
            writeln!(stdin, "{line}").unwrap();
        }
        stdin
    });
    let mut answer = String::new();
    let mut early = 0;
    for count in 1..=LINES {
        answer.clear();
        stdout.read_line(&mut answer).unwrap();
        assert!(answer.starts_with(&format!(r#"{{"time":"{}","#, at(count - 1))), "{answer}");
        if count == LINES / 20 {
            early = peak(&child);
        }
    }
    let late = peak(&child);
    drop(writer.join().unwrap());
    assert!(child.wait().unwrap().success());
    assert!(early > 0 && late < early + 4096, "{early} KiB after a twentieth, {late} KiB at the end");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let place = Place::new(KUBELET);
    let (mut child, mut stdin, mut stdout) = place.start();
    let writer = std::thread::spawn(move || {
        let line = line(0, 2 << 30).to_string();
        // The loop ends when the program has closed its input.
        while writeln!(stdin, "{line}").is_ok() {}
    });
    let mut answer = String::new();
    stdout.read_line(&mut answer).unwrap();
    drop(stdout);
    let status = child.wait().unwrap();
    writer.join().unwrap();
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!((status.code(), complaint.as_str()), (Some(0), ""));
}
