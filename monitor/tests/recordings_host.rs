//! What a user records beside an agent, once a second, names in `simulate` the victim that the agent chose: the same configuration, the
//! statistics of a kubelet, and the pods. The agent runs in observe mode on nodes that are made of files.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[path = "support/agent.rs"]
#[expect(dead_code, reason = "other tests ask the agent's pages")]
mod agent;
#[path = "support/node_of_files.rs"]
#[expect(dead_code, reason = "other tests limit the pods")]
mod node_of_files;
#[path = "support/recorded_nodes.rs"]
mod recorded_nodes;

use node_of_files::{MIB, Node, STEP};
use recorded_nodes::{Growing, THRESHOLD, by_seed, named};

/// A user records a line this often.
const EVERY: Duration = Duration::from_secs(1);
/// No node is recorded for longer.
const LONGEST: Duration = Duration::from_secs(30);
/// So many of a hundred evictions have the same victim.
const SAME_PERCENT: usize = 95;

/// What was recorded beside one eviction.
struct Recording {
    /// The lines that `simulate` reads. The last one has what was available at the eviction, and the pods of the line before: a second is
    /// longer than the agent needs.
    lines: Vec<Value>,
    /// The agent's record.
    eviction: Value,
}

fn record(growing: &Growing) -> Recording {
    let mut node = Node::new(growing.pods(), growing.available(), None);
    let agent = node.start(THRESHOLD, growing.rest);
    let (begun, mut last, mut lines) = (Instant::now(), Instant::now(), Vec::new());
    while begun.elapsed() < LONGEST {
        if begun.elapsed() >= EVERY * u32::try_from(lines.len()).unwrap() {
            lines.push(line(&node));
        }
        std::thread::sleep(STEP);
        let passed = i64::try_from(last.elapsed().as_micros()).unwrap();
        last = Instant::now();
        for (pod, rate) in node.pods.iter_mut().zip(growing.rates()) {
            let grown = rate * passed / 1_000_000;
            pod.anon += grown;
            node.available -= grown;
        }
        node.update();
        let log = agent.text("err");
        let mut records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(eviction) = records.find(|record| record["event"] == "eviction") {
            lines.push(at_eviction(lines.last().unwrap(), &eviction));
            return Recording { lines, eviction };
        }
    }
    Recording { lines, eviction: Value::Null }
}

/// Returns the node as a kubelet tells it.
fn line(node: &Node) -> Value {
    let now = jiff::Timestamp::now().to_string();
    let statistics = |pod: &node_of_files::Pod| {
        let memory = json!({"time": now, "workingSetBytes": pod.anon, "rssBytes": pod.anon});
        let name = pod.name.as_str();
        json!({"podRef": {"name": name, "namespace": "ns", "uid": name}, "memory": memory, "containers": [{"name": "c", "memory": memory}]})
    };
    let pods: Vec<Value> = node.pods.iter().map(statistics).collect();
    let capacity = 16 << 10;
    let used = capacity * MIB - node.available;
    json!({
        "time": now,
        "node": {"capacity": {"memory": format!("{capacity}Mi")}},
        "summary": {
            "node": {"memory": {"time": now, "availableBytes": node.available, "workingSetBytes": used}},
            "pods": pods,
        },
        "pods": node.pods.iter().map(node_of_files::Pod::object).collect::<Vec<_>>(),
    })
}

fn at_eviction(before: &Value, eviction: &Value) -> Value {
    let mut line = before.clone();
    line["time"].clone_from(&eviction["timestamp"]);
    let memory = &mut line["summary"]["node"]["memory"];
    memory["time"].clone_from(&eviction["timestamp"]);
    memory["availableBytes"].clone_from(&eviction["available_bytes"]);
    line
}

fn text_of(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns the answers of `simulate` to the trace.
fn simulate(config: &Path, trace: &Path) -> Vec<Value> {
    let mut command = Command::new(agent::PROGRAM);
    let output = command.arg("simulate").arg("--config").arg(config).arg(trace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Records the node and replays the recording. Returns the difference, if there is one.
fn difference(growing: &Growing) -> Option<String> {
    let recording = record(growing);
    let directory = tempfile::tempdir().unwrap();
    let (config, trace) = (directory.path().join("monitor.yaml"), directory.path().join("trace.jsonl"));
    fs::write(&config, growing.configuration()).unwrap();
    fs::write(&trace, text_of(&recording.lines)).unwrap();
    if let Some(kept) = std::env::var_os("KEEP_RECORDINGS") {
        let kept = Path::new(&kept);
        fs::write(kept.join(format!("{}.yaml", growing.name)), growing.configuration()).unwrap();
        fs::write(kept.join(format!("{}.jsonl", growing.name)), text_of(&recording.lines)).unwrap();
    }
    let answers = simulate(&config, &trace);
    let answer = answers.last().unwrap();
    let (chosen, simulated) = (&recording.eviction["pod"], &answer["evict"]["pod"]);
    let why = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    (chosen != simulated || chosen.is_null()).then(|| {
        format!(
            "{}: the agent chose {chosen} ({}), simulate {simulated} ({}); not applied: {}; {growing:?}",
            growing.name,
            why(&recording.eviction["benefit"]),
            why(&answer["evict"]["worth"]),
            answers
                .iter()
                .map(|answer| &answer["notApplied"])
                .filter(|it| !it.is_null())
                .map(Value::to_string)
                .collect::<String>(),
        )
    })
}

/// Returns the differences, with four nodes at a time.
fn differences(all: &[Growing]) -> Vec<String> {
    let mut found = Vec::new();
    for some in all.chunks(4) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|growing| scope.spawn(|| difference(growing))).collect();
            found.extend(threads.into_iter().filter_map(|thread| thread.join().unwrap()));
        });
    }
    found
}

/// Recordings of `named`, kept by `KEEP_RECORDINGS=DIRECTORY`, and whom the agent chose.
#[test]
fn kept_recordings_name_the_victim_of_the_agent() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/recordings");
    for (name, victim) in
        [("bystanders", "ns/leaker"), ("warm-up", "ns/idle0"), ("swarm", "ns/giant"), ("protected", "ns/idle0")]
    {
        let answers = simulate(&kept.join(format!("{name}.yaml")), &kept.join(format!("{name}.jsonl")));
        let named: Vec<&Value> = answers.iter().map(|answer| &answer["evict"]["pod"]).collect();
        assert_eq!(named.last(), Some(&&json!(victim)), "{name}: {named:?}");
    }
}

#[test]
fn a_recording_names_the_victim_of_the_agent() {
    let differences = differences(&named());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
#[ignore = "takes minutes"]
fn nearly_all_recordings_of_random_nodes_name_the_victim_of_the_agent() {
    let all: Vec<Growing> = (1..=60).map(by_seed).collect();
    let differences = differences(&all);
    let same = all.len() - differences.len();
    println!("simulate: {same} of {} evictions name the same victim\n{}", all.len(), differences.join("\n"));
    assert!(same * 100 >= all.len() * SAME_PERCENT, "{}", differences.join("\n"));
}
