//! Runs the program with `rank` on the output of `kubectl`.

#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_node-pressure-monitor");

fn fixture(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(name);
    path.display().to_string()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn rank(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("rank").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs `rank` on the output of `kubectl`, with more arguments.
fn of_kubectl(arguments: &[&str]) -> Output {
    let (pods, summary) = (fixture("kubectl/pods.json"), fixture("kubectl/summary.json"));
    rank(&[&["--pods", &pods, "--summary", &summary], arguments].concat())
}

fn answer(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn of<'a>(answer: &'a Value, pod: &str) -> &'a Value {
    let ranking = answer["ranking"].as_array().unwrap();
    ranking.iter().find(|ranked| ranked["pod"].as_str().unwrap().starts_with(pod)).unwrap()
}

fn order(answer: &Value) -> Vec<&str> {
    let name =
        |ranked: &'_ Value| ranked["pod"].as_str().map(|name| name.split('-').next().unwrap_or(name)).map(str::len);
    let names = answer["ranking"].as_array().unwrap().iter();
    names
        .map(|ranked| (ranked["pod"].as_str().unwrap(), name(ranked).unwrap()))
        .map(|(name, end)| name.split_at(end).0)
        .collect()
}

fn policy(directory: &tempfile::TempDir, yaml: &str) -> String {
    let path = directory.path().join("policy.yaml");
    fs::write(&path, yaml).unwrap();
    path.display().to_string()
}

#[test]
fn by_default_the_class_decides_before_the_request() {
    let output = of_kubectl(&["--output", "json"]);
    let answer = answer(&output);
    assert!(text(&output.stderr).contains("3 of 12 pods are not on worker-1 and left out: on (no node), worker-2"));
    assert!(text(&output.stderr).contains("the statistics are "), "{}", text(&output.stderr));
    assert_eq!(answer["signal"], "memory.available");
    assert_eq!(answer["node"], "worker-1");
    assert_eq!(answer["time"], "2026-01-01T01:00:09Z");
    assert_eq!(answer["available"], 420 << 20);
    let threshold = json!({"threshold": "memory.available<100Mi", "kind": "hard", "gracePeriodSeconds": 0, "quantity": 100 << 20, "met": false});
    assert_eq!(answer["thresholds"], json!([threshold]));
    assert_eq!(
        order(&answer),
        [
            "batch/report",
            "shop/web",
            "shop/cache",
            "kube",
            "logging/fluent",
            "shop/search",
            "shop/db",
            "monitoring/node"
        ],
        "by what their end gives back, not by the working set"
    );
    assert_eq!(answer["first"], "batch/report-29453760-tz5rk");
    assert_eq!(answer["gracePeriodSeconds"], 0, "the agent kills at once");
    assert_eq!(
        answer["message"],
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 420Mi. \
         Container report was using 600Mi, request is 0, has larger consumption of memory. "
    );
}

/// The user's chapter: the share of the node's memory that a container uses, plus its `oom_score_adj`, is its score.
#[test]
fn the_kernels_victim_is_named_beside_the_agents() {
    let output = of_kubectl(&["--oom", "--output", "json"]);
    let answer = answer(&output);
    assert!(text(&output.stderr).contains("a container's figures are those of all its processes"));
    let oom = &answer["oom"];
    // Of 4,080,218,112 bytes: rss 503,316,480 are 123 thousandths; BestEffort is 1000.
    let victim = json!({"pod": "batch/report-29453760-tz5rk", "container": "report", "usage": 503_316_480,
        "usageThousandths": 123, "oomScoreAdj": 1000, "score": 1123});
    assert_eq!((&oom["victim"], &oom["total"]), (&victim, &json!(4_080_218_112_u64)));
    let order = oom["order"].as_array().unwrap();
    let score = |row: &Value| row["score"].as_i64().unwrap();
    assert!(order.windows(2).all(|two| score(&two[0]) >= score(&two[1])), "{order:?}");
    let of = |pod: &str| order.iter().find(|row| row["pod"].as_str().unwrap().starts_with(pod)).unwrap();
    assert_eq!((&of("shop/db")["oomScoreAdj"], &of("shop/db")["usageThousandths"]), (&json!(-997), &json!(185)));
    assert_eq!(answer["first"], "batch/report-29453760-tz5rk", "the ranking is as without the option");
    let table = of_kubectl(&["--oom"]);
    let words =
        "the kernel would kill container report of batch/report-29453760-tz5rk; the first that would be evicted, too";
    assert!(text(&table.stdout).contains(words), "{}", text(&table.stdout));
    for (arguments, words) in [
        (&["--oom", "--signal", "nodefs.available"][..], "the kernel kills for memory, not for nodefs.available"),
        (&["--oom", "--signal", "pid.available"], "the kernel kills for memory, not for pid.available"),
        (&["--oom", "--preemption-for", "5"], "cannot be used with"),
    ] {
        let output = of_kubectl(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn without_a_configuration_the_rules_of_the_agent_hold() {
    let answer = answer(&of_kubectl(&["--output", "json"]));
    let web = of(&answer, "shop/web");
    assert_eq!(web["usage"], 437_046_476, "what its end gives back");
    let above = 437_046_476 - (320 << 20);
    let keys = json!({"preference": "none", "qosClass": "Burstable", "exceedsRequests": true, "priority": 0, "usageAboveRequest": above});
    assert_eq!(web["keys"], keys);
    assert_eq!(
        of(&answer, "logging/fluent-bit")["exempt"],
        "it uses no more than it requested, and another uses more",
        "its caches are no usage"
    );
}

#[test]
fn every_key_of_every_pod_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let config = policy(&directory, &format!("{KUBELET}evictionHard: {{memory.available: 100Mi}}\n"));
    let answer = answer(&of_kubectl(&["--config", &config, "--output", "json"]));
    let web = of(&answer, "shop/web");
    assert_eq!(web["qosClass"], "Burstable");
    assert_eq!(
        (&web["usage"], &web["request"]),
        (&json!(521 << 20), &json!(320 << 20)),
        "the sidecar counts, the init container does not"
    );
    assert_eq!(web["exempt"], Value::Null);
    let keys = json!({"exceedsRequests": true, "priority": 0, "usageAboveRequest": 201 << 20});
    assert_eq!(web["keys"], keys);
    assert_eq!(of(&answer, "shop/cache")["request"], 512 << 20, "the request of the pod, not of its containers");
    assert_eq!(of(&answer, "shop/search")["request"], 820 << 20, "the request includes the overhead");
    assert_eq!(of(&answer, "shop/search")["usage"], 0, "statistics without memory");
    assert_eq!(of(&answer, "kube-system/kube-proxy")["exempt"], "mirror pod");
    assert_eq!(of(&answer, "kube-system/kube-proxy")["usage"], 49 << 20, "statistics under the UID of the static pod");
    assert_eq!(of(&answer, "monitoring/node-exporter")["exempt"], "critical priority 2000001000");
    assert!(of(&answer, "shop/db")["explanation"].as_str().unwrap().contains("within its request, priority 100000"));
}

#[test]
fn the_table_marks_the_victim() {
    let output = of_kubectl(&[]);
    let rows: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(rows[0], "node worker-1: memory.available was 420.0 MiB of 3.8 GiB at 2026-01-01T01:00:09Z");
    assert_eq!(rows[1], "  hard memory.available<100Mi  not met: 320.0 MiB above it");
    let has = |name: &str, words: &[&str]| {
        let row = rows.iter().find(|row| row.contains(name)).unwrap();
        assert!(words.iter().all(|words| row.contains(words)), "{row}");
    };
    has("POD ", &["QOS CLASS", "EXCEEDS REQUEST", "PRIORITY", "ABOVE REQUEST", "USAGE", "REQUEST"]);
    has("1  batch/report", &["BestEffort", "yes", "480.8 MiB", "<- would be evicted first"]);
    has("4  kube-system/", &["2000001000", "exempt: mirror pod"]);
    assert_eq!(text(&output.stdout).matches("would be evicted first").count(), 1);
    assert!(
        rows.iter()
            .any(|row| row.starts_with("for memory.available<100Mi: once that is met: killed at once, message:")),
        "{rows:?}"
    );
}

#[test]
fn a_kubelet_gives_a_hard_threshold_its_second() {
    let directory = tempfile::tempdir().unwrap();
    let config = policy(&directory, &format!("{KUBELET}evictionHard: {{memory.available: 100Mi}}\n"));
    let of_kubelet = |more: &[&str]| of_kubectl(&[&["--config", &config], more].concat());
    assert_eq!(answer(&of_kubelet(&["--output", "json"]))["gracePeriodSeconds"], 1);
    let table = of_kubelet(&[]);
    assert!(text(&table.stdout).contains("once that is met: grace period 1 s, message:"), "{}", text(&table.stdout));
}

#[test]
fn other_signals_other_nodes_other_filesystems() {
    let directory = tempfile::tempdir().unwrap();
    let policy = policy(
        &directory,
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {nodefs.available: 60%}\n",
    );
    let disk = answer(&of_kubectl(&["--config", &policy, "--signal", "nodefs.available", "--output", "json"]));
    assert_eq!((&disk["available"], &disk["capacity"]), (&json!(32_u64 << 30), &json!(64_u64 << 30)));
    assert_eq!(disk["thresholds"][0]["met"], true);
    assert_eq!(disk["first"], "batch/report-29453760-tz5rk", "this pod exceeds its disk request most");
    let (single, dedicated) = (of(&disk, "batch/report"), ["--layout", "dedicated"]);
    assert_eq!(single["usage"], 302 << 20);
    let arguments = ["--config", &policy, "--signal", "nodefs.available", "--output", "json"];
    let disk = answer(&of_kubectl(&[&arguments[..], &dedicated].concat()));
    assert_eq!(of(&disk, "batch/report")["usage"], 2 << 20, "the usage is that of the logs");

    let pids = answer(&of_kubectl(&["--config", &policy, "--signal", "pid.available", "--output", "json"]));
    assert_eq!((&pids["available"], &pids["thresholds"], &pids["message"]), (&json!(31956), &json!([]), &Value::Null));
    assert_eq!(order(&pids)[0], "shop/web", "the pod with most processes at the lowest priority");
    assert_eq!(of(&pids, "shop/web")["request"], Value::Null);

    let output = of_kubectl(&["--signal", "allocatableMemory.available", "--node", "worker-2"]);
    assert!(
        text(&output.stderr).contains("the summary is of node worker-1, not of worker-2"),
        "{}",
        text(&output.stderr)
    );
    assert!(text(&output.stdout).contains("no statistics"), "{}", text(&output.stdout));
    let empty = directory.path().join("empty.json").display().to_string();
    fs::write(&empty, "{}").unwrap();
    let unobserved = rank(&["--pods", &fixture("kubectl/pods.json"), "--summary", &empty]);
    assert!(text(&unobserved.stdout).starts_with("memory.available is not observed"), "{}", text(&unobserved.stdout));
    assert!(text(&unobserved.stderr).contains("the summary names no node: all pods count"));
}

#[test]
fn openshift_3_explains_why_a_guaranteed_pod_is_evicted() {
    let (config, summary) = (fixture("chapter/node-config.yaml"), fixture("chapter/summary.json"));
    let run =
        |pods: &str| answer(&rank(&["--config", &config, "--pods", pods, "--summary", &summary, "--output", "json"]));
    let all = run(&fixture("chapter/pods.json"));
    assert_eq!(order(&all), ["batch/report", "shop/web", "shop/db"]);
    assert_eq!(all["thresholds"].as_array().unwrap().len(), 2);
    assert_eq!((&all["thresholds"][0]["met"], &all["thresholds"][1]["met"]), (&json!(false), &json!(true)));
    assert!(all["message"].as_str().unwrap().contains("Threshold quantity: 1Gi"), "{}", all["message"]);
    let words = of(&all, "shop/db")["explanation"].as_str().unwrap();
    assert!(words.ends_with("; Guaranteed: goes only when nothing else is left"), "{words}");

    let directory = tempfile::tempdir().unwrap();
    let greedy = directory.path().join("summary.json");
    let mut changed: Value = serde_json::from_str(&fs::read_to_string(&summary).unwrap()).unwrap();
    changed["node"]["memory"]["workingSetBytes"] = json!(10_u64 << 30);
    changed["pods"] = json!([]);
    fs::write(&greedy, changed.to_string()).unwrap();
    let pods = fixture("chapter/pods.json");
    let arguments = ["--config", &config, "--pods", &pods, "--output", "json", "--summary", greedy.to_str().unwrap()];
    let all = answer(&rank(&arguments));
    let words = of(&all, "shop/db")["explanation"].as_str().unwrap();
    assert!(words.ends_with("or because system daemons exceed their reservation, now by 8.0 GiB"), "{words}");
}

#[test]
fn errors_are_reported_with_their_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).unwrap();
        directory.path().join(name).display().to_string()
    };
    let (pods, summary) = (fixture("kubectl/pods.json"), fixture("kubectl/summary.json"));
    let wrong = file(
        "wrong.json",
        "{\"kind\": \"PodList\", \"items\": [\n  {\"spec\": {\"containers\": [{\"resources\": {\"requests\": {\"memory\": \"1GB\"}}}]}}\n]}",
    );
    for (pods, summary, code, words) in [
        (
            wrong.as_str(),
            summary.as_str(),
            1,
            "wrong.json:2:70: items[0].spec.containers[0].resources.requests.memory: ",
        ),
        (
            &summary,
            &summary,
            1,
            "neither a Pod nor a list of them: it has no kind and no items; write it with: kubectl get pods -A -o json",
        ),
        (
            &pods,
            &pods,
            1,
            "a List, not a Summary; write it with: kubectl get --raw /api/v1/nodes/NODE/proxy/stats/summary",
        ),
        (&pods, "/nonexistent", 2, "/nonexistent: cannot be read: No such file or directory"),
        ("-", "-", 2, "only one of them can be standard input"),
        (&pods, "/dev/zero", 2, "/dev/zero: larger than 256 MiB; check the path"),
    ] {
        let output = rank(&["--pods", pods, "--summary", summary]);
        assert_eq!(output.status.code(), Some(code), "{words}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "");
    }
    assert_eq!(rank(&["--pods", &pods]).status.code(), Some(2));
    let output = of_kubectl(&["--signal", "memory.free"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("unsupported eviction signal memory.free; write one of memory.available, "));
}

#[test]
fn an_unwritable_stderr_keeps_the_answer() {
    let (pods, summary) = (fixture("kubectl/pods.json"), fixture("kubectl/summary.json"));
    let run = |arguments: &[&str]| {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("rank").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full).output().unwrap()
    };
    let output = run(&["--pods", &pods, "--summary", &summary]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, of_kubectl(&[]).stdout);
    assert_eq!(run(&["--pods", "/nonexistent", "--summary", &summary]).status.code(), Some(2));
}

#[test]
fn names_cannot_send_control_characters_to_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, value: &Value| {
        fs::write(directory.path().join(name), value.to_string()).unwrap();
        directory.path().join(name).display().to_string()
    };
    let odd = "a\u{1b}[2Jb\nc\u{9b}d";
    let memory = json!({"time": "2026-01-01T00:00:00Z", "workingSetBytes": 1000});
    let node =
        json!({"nodeName": odd, "memory": {"time": "2026-01-01T00:00:00Z", "availableBytes": 5, "workingSetBytes": 5}});
    let summary = json!({"node": node, "pods": [
        {"podRef": {"name": odd, "namespace": odd, "uid": "u"}, "memory": memory, "containers": [{"name": odd, "memory": memory}]}
    ]});
    let pod = |node: &str, uid: &str| {
        json!({"kind": "Pod", "metadata": {"name": odd, "namespace": odd, "uid": uid}, "status": {"phase": "Running"},
               "spec": {"nodeName": node, "containers": [{"name": odd}]}})
    };
    let pods = file("pods.json", &json!([pod(odd, "u"), pod("e\u{1b}f", "v")]));
    let summary = file("summary.json", &summary);
    let output = rank(&["--pods", &pods, "--summary", &summary]);
    assert_eq!(output.status.code(), Some(0));
    for told in [text(&output.stdout), text(&output.stderr)] {
        assert!(told.chars().all(|letter| letter == '\n' || !letter.is_control()), "{told:?}");
    }
    let shown = "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d";
    assert!(text(&output.stdout).contains(&format!("first: {shown}/{shown} ")), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains(&format!("Container {shown} was using")), "{}", text(&output.stdout));
    let json = answer(&rank(&["--pods", &pods, "--summary", &summary, "--output", "json"]));
    assert_eq!(json["first"], format!("{odd}/{odd}"), "JSON has the name unchanged");

    let kind = file("kind.json", &json!({"kind": odd}));
    let output = rank(&["--pods", &kind, "--summary", &summary]);
    assert!(text(&output.stderr).contains(&format!("a {shown}, not a Pod")), "{}", text(&output.stderr));
}

const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

#[test]
fn policy_warnings_are_counted_and_swap_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file =
        policy(&directory, &format!("{KUBELET}failSwapOn: false\nevictionHard: {{memory.available: \"1.500\"}}\n"));
    let output = of_kubectl(&["--config", &file]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains(&format!("warning: {file}:3: failSwapOn: \"false\": swap may be used on this node")),
        "{told}"
    );
    let counted = told.lines().find(|line| line.contains("warning") && line.contains("`check-config "));
    assert!(counted.is_some_and(|line| line.contains(&format!("{file}: "))), "{told}");
    let quiet = policy(&directory, &format!("{KUBELET}evictionMaxPodGracePeriod: 5\n"));
    assert!(!text(&of_kubectl(&["--config", &quiet]).stderr).contains("warning"));
}

#[test]
fn swap_of_the_node_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let summary = |available: u64, usage: u64| {
        let swap = json!({"swapAvailableBytes": available, "swapUsageBytes": usage});
        let path = directory.path().join("summary.json");
        fs::write(&path, json!({"node": {"swap": swap}}).to_string()).unwrap();
        let output = rank(&["--pods", &fixture("kubectl/pods.json"), "--summary", path.to_str().unwrap()]);
        text(&output.stderr).to_owned()
    };
    assert!(!summary(0, 0).contains("swap"));
    let told = summary(1 << 30, 1 << 30);
    assert!(told.contains("swap is on (1.0 GiB of 2.0 GiB used), and memory.available is blind to it"), "{told}");
    assert!(summary(u64::MAX, 1).contains("swap is on"));
}

#[test]
fn the_policy_may_be_standard_input() {
    let (pods, summary) = (fixture("kubectl/pods.json"), fixture("kubectl/summary.json"));
    let directory = tempfile::tempdir().unwrap();
    let file = policy(&directory, &format!("{KUBELET}evictionHard: {{memory.available: 1Gi}}\n"));
    let run = |pods: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["rank", "--config", "-", "--pods", pods, "--summary", &summary]);
        command.stdin(File::open(&file).unwrap()).output().unwrap()
    };
    assert_eq!(run(&pods).stdout, of_kubectl(&["--config", &file]).stdout);
    assert_eq!(run("-").status.code(), Some(2));
}
