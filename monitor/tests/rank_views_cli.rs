//! Runs the program with the views of `rank` on what the scheduler and the descheduler would do.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name).display().to_string()
}

/// Runs `rank` on the pods of a fixture.
fn rank(pods: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"));
    command.args(["rank", "--pods", &fixture(pods)]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn answer(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names<'a>(list: &'a Value, name: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|row| row[name].as_str().unwrap()).collect()
}

const PODS: &str = "scheduling/pods.json";

#[test]
fn pods_of_lower_priority_are_listed_with_those_that_suffice() {
    let on = ["--node", "worker-1", "--output", "json", "--preemption-for"];
    let output = rank(PODS, &[&on[..], &["10000"]].concat());
    let said = text(&output.stderr);
    assert!(said.contains("3 of 10 pods are not on worker-1") && said.contains("PodDisruptionBudgets"), "{said}");
    let listed = answer(&output);
    let order = ["batch/import", "batch/report", "shop/web-2", "shop/web-1"];
    assert_eq!((names(&listed["candidates"], "pod"), &listed["spared"]), (order.to_vec(), &json!(2)));
    assert_eq!((&listed["fits"], &listed["candidates"][0]["preempted"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&listed["candidates"][0]["terminating"], &listed["candidates"][1]["terminating"]),
        (&json!(true), &json!(false))
    );

    let nodes = fixture("scheduling/nodes.json");
    let of = |priority: &str, requests: &str| {
        answer(&rank(PODS, &[&on[..], &[priority, "--nodes", &nodes, "--requests", requests]].concat()))
    };
    let preempted = |answer: &Value| {
        let rows = answer["candidates"].as_array().unwrap().iter();
        rows.filter(|row| row["preempted"] == true).map(|row| row["pod"].clone()).collect::<Vec<Value>>()
    };
    let some = of("10000", "cpu=1,memory=1Gi");
    assert_eq!((&some["fits"], preempted(&some)), (&json!("afterPreemption"), vec![json!("batch/report")]));
    assert_eq!(some["candidates"][1]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    let none = of("-10", "cpu=100m");
    assert_eq!((&none["fits"], &none["candidates"]), (&json!("withoutPreemption"), &json!([])));
    let never = of("system-node-critical", "cpu=4");
    assert_eq!(
        (&never["fits"], &never["insufficient"], preempted(&never)),
        (&json!("never"), &json!({"cpu": "3900m"}), vec![])
    );
}

#[test]
fn unknown_priorities_and_cordoned_nodes_are_noted() {
    let output = rank("chapter/pods.json", &["--preemption-for", "1"]);
    let told = (text(&output.stdout), text(&output.stderr));
    assert!(
        told.1.contains("the priority of 3 of 3 pods is not known: spec.priority is missing, and counts as 0"),
        "{told:?}"
    );
    assert!(
        told.0.starts_with("node node-1: a pending pod of priority 1 may preempt 3 of 3 pods; 0 of equal"),
        "{told:?}"
    );
    let nodes = fixture("scheduling/nodes.json");
    let on = ["--node", "worker-4", "--preemption-for", "1", "--requests", "cpu=5", "--nodes", &nodes];
    let output = rank(PODS, &on);
    assert!(text(&output.stderr).contains("node worker-4 is unschedulable"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("cpu 4 would be free then"), "{}", text(&output.stdout));
}

#[test]
fn nodes_are_listed_from_the_fullest_to_the_emptiest() {
    let nodes = fixture("scheduling/nodes.json");
    let of = |more: &[&str]| rank(PODS, &[&["--utilization", "--nodes", &nodes, "--output", "json"], more].concat());
    let output = of(&[]);
    assert!(text(&output.stderr).contains("1 of 10 pods are on no node of --nodes and left out: on (no node)"));
    let listed = answer(&output);
    assert_eq!(names(&listed["nodes"], "node"), ["worker-1", "worker-2", "worker-3", "worker-4", "worker-5"]);
    let verdict = |answer: &Value, node: usize| answer["nodes"][node]["verdict"].clone();
    let verdicts = ["overutilized", "appropriately utilized", "underutilized", "appropriately utilized"];
    assert_eq!(
        [0, 1, 2, 3].map(|node| verdict(&listed, node)),
        verdicts.map(Value::from),
        "the fourth is unschedulable"
    );
    assert_eq!(verdict(&listed, 4), Value::Null, "not ready");
    let cpu = json!({"requested": "3900m", "allocatable": "4", "percent": 97.5});
    assert_eq!(listed["nodes"][0]["utilization"]["cpu"], cpu);
    let listed = answer(&of(&["--thresholds", "cpu=4", "--target-thresholds", "cpu=97.5"]));
    assert_eq!(
        [0, 2].map(|node| verdict(&listed, node)),
        ["appropriately utilized", "appropriately utilized"].map(Value::from)
    );
}

/// The descheduler's numberOfNodes, as OpenShift's chapter on it explains: the strategy acts above this number of underutilized nodes.
#[test]
fn as_many_underutilized_nodes_as_accepted_evict_nothing() {
    let nodes = fixture("scheduling/nodes.json");
    for (number, expected) in [
        ("0", "LowNodeUtilization would evict pods from worker-1, to make the scheduler use worker-3"),
        ("1", "LowNodeUtilization would evict nothing: 1 underutilized, and numberOfNodes accepts up to 1"),
        ("3", "LowNodeUtilization would evict nothing: 1 underutilized, and numberOfNodes accepts up to 3"),
    ] {
        let of = |more: &[&str]| {
            rank(PODS, &[&["--utilization", "--nodes", &nodes, "--number-of-nodes", number], more].concat())
        };
        let answer = answer(&of(&["--output", "json"]));
        assert_eq!((&answer["conclusion"], answer["numberOfNodes"].to_string()), (&json!(expected), number.to_owned()));
        assert!(text(&of(&[]).stdout).contains(expected), "{number}");
    }
}

#[test]
fn errors_name_the_option_or_the_file_and_the_fix() {
    let directory = tempfile::tempdir().unwrap();
    let wrong = directory.path().join("nodes.json").display().to_string();
    fs::write(&wrong, r#"[{"metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "x"}}}]"#).unwrap();
    let (nodes, pods) = (fixture("scheduling/nodes.json"), fixture(PODS));
    let for_1 = ["--preemption-for", "1", "--node", "worker-1"];
    for (arguments, code, words) in [
        (&["--utilization"][..], 2, "--nodes <NODES.json>"),
        (&["--nodes", &nodes], 2, "--utilization"),
        (&["--utilization", "--nodes", &nodes, "--signal", "pid.available"], 2, "cannot be used with '--signal"),
        (&["--utilization", "--nodes", &nodes, "--preemption-for", "1"], 2, "cannot be used with '--preemption-for"),
        (
            &["--utilization", "--nodes", &nodes, "--thresholds", "cpu=90"],
            2,
            "--thresholds: cpu=90: above its target threshold 50",
        ),
        (
            &["--utilization", "--nodes", &pods],
            1,
            "items[0]: a Pod, not a Node; write it with: kubectl get nodes -o json",
        ),
        (&["--utilization", "--nodes", &wrong], 1, "nodes.json:1:66: [0].status.allocatable.cpu: "),
        (&["--utilization", "--nodes", "/nonexistent"], 2, "/nonexistent: cannot be read"),
        (&["--thresholds", "cpu=20"], 2, "--utilization"),
        (&["--preemption-for", "high"], 2, "kubectl get priorityclasses prints the numbers"),
        (
            &["--preemption-for", "1"],
            2,
            "the pods are on several nodes: worker-1, worker-2, worker-3; choose one with --node NAME",
        ),
        (&["--preemption-for", "1", "--signal", "pid.available"], 2, "cannot be used with '--signal"),
        (&[&for_1[..], &["--requests", "cpu=1"]].concat(), 2, "--nodes <NODES.json>"),
        (&[&for_1[..], &["--config", "x.yaml"]].concat(), 2, "--config describes this node"),
        (
            &["--preemption-for", "1", "--node", "w", "--requests", "cpu=1", "--nodes", &nodes],
            1,
            "nodes.json: no node \"w\", only: worker-1",
        ),
    ] {
        let output = rank(PODS, arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), ""), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// A node of 16Gi, as `kubectl get nodes -o json` prints it.
const NODE: &str = r#"{"items": [{"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
    "conditions": [{"type": "Ready", "status": "True"}]}}]}"#;

/// Returns a pod on that node that asks for so much memory, with a status.
fn resizing(asks: &str, status: &Value) -> Value {
    let container = json!({"name": "app", "resources": {"requests": {"memory": asks, "cpu": "100m"}}});
    json!({"metadata": {"name": "grow", "namespace": "shop"}, "spec": {"nodeName": "n1", "priority": 0, "containers": [container]}, "status": status})
}

/// kubernetes/kubernetes#122602 (a node at 406%), #125559, #135107 (deferred resizes take the room of others, as the scheduler has it), #129532 (a
/// smaller request is pending while a larger one is carried out).
#[test]
fn a_resize_counts_as_the_scheduler_counts_it() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| {
        fs::write(place.path().join(name), text).unwrap();
        place.path().join(name).display().to_string()
    };
    let nodes = write("nodes.json", NODE.to_owned());
    let status = |allocated: &str, in_force: &str, reason: &str| {
        let status = json!({"name": "app", "allocatedResources": {"memory": allocated, "cpu": "100m"},
                            "resources": {"requests": {"memory": in_force, "cpu": "100m"}}});
        json!({"phase": "Running", "containerStatuses": [status], "conditions": [{"type": "PodResizePending", "reason": reason}]})
    };
    let other = json!({"metadata": {"name": "other", "namespace": "shop"}, "spec": {"nodeName": "n1", "priority": 0,
                       "containers": [{"name": "app", "resources": {"requests": {"memory": "1Gi"}}}]}, "status": {"phase": "Running"}});
    for (asks, status, percent, fits, note) in [
        ("64Gi", status("1Gi", "1Gi", "Infeasible"), 12.5, "withoutPreemption", "memory 406.2%"),
        ("10Ti", status("512Mi", "512Mi", "Infeasible"), 9.375, "withoutPreemption", "overutilized"),
        ("12Gi", status("1Gi", "1Gi", "Deferred"), 81.25, "afterPreemption", ""),
        ("1Gi", status("2Gi", "12Gi", ""), 81.25, "afterPreemption", "memory 12.5%"),
        ("1Gi", status("12Gi", "2Gi", "Deferred"), 81.25, "afterPreemption", "memory 12.5%"),
        ("4Gi", json!({"phase": "Running"}), 31.25, "withoutPreemption", ""),
    ] {
        let pods = write("pods.json", json!({"items": [resizing(asks, &status), other]}).to_string());
        let run = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_node-pressure-monitor"));
            command.args(["rank", "--pods", &pods, "--nodes", &nodes, "--output", "json"]).args(more);
            command.stdin(Stdio::null()).output().unwrap()
        };
        let output = run(&["--utilization"]);
        assert_eq!(answer(&output)["nodes"][0]["utilization"]["memory"]["percent"], percent, "{asks} {status}");
        let said = text(&output.stderr);
        assert!(said.contains(note) && said.is_empty() == note.is_empty(), "{asks}: {said}");
        let output = run(&["--preemption-for", "1000", "--requests", "memory=4Gi"]);
        assert_eq!(answer(&output)["fits"], fits, "{asks} {status}");
    }
}
