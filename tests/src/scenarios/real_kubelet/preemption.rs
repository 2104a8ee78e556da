//! The views of `rank` on scheduling, compared with the real scheduler and with `kubectl describe node`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::ending::show;
use super::scene::{BETWEEN_LOOKS, TIME_LIMIT, events_in, text};
use crate::agent;
use crate::cluster::{Cluster, is_ready};
use crate::control_plane::NODE;
use crate::stage::Stage;

/// The label of this scenario's pods.
const APP: &str = "preemption";
/// The priority of the pods that wait, which is also that of `equal`.
const PENDING: u32 = 1000;
/// The classes, with their priorities.
const CLASSES: [(&str, u32); 3] = [("low", 100), ("middle", 200), ("high", PENDING)];
/// The pods that run first, with their classes. Each requests this percentage of the node's CPUs.
const RUNNING: [(&str, &str); 4] = [("older", "low"), ("younger", "low"), ("better", "middle"), ("equal", "high")];
const EACH: u64 = 20;
/// The pods that wait then, with the percentage that they request, and the pods that have to be preempted. For the first one pod suffices: the
/// youngest of those with the lowest priority.
const WAITING: [(&str, u64, &[&str]); 2] = [("first", 35, &["younger"]), ("second", 40, &["better", "older"])];
const PODS: &str = "/tmp/pods.json";
const NODES: &str = "/tmp/nodes.json";

pub fn preemption(stage: &mut Stage<'_>) -> Result<()> {
    let cluster = Cluster::of(stage)?;
    // A scenario before this one may have failed, and its pods would count.
    cluster.kubectl(&["-n", "default", "delete", "deployments,pods", "--all", "--wait"])?;
    let outcome = preempted(stage, &cluster);
    cluster.kubectl(&["delete", "pods", "-l", &format!("app={APP}"), "--wait"])?;
    let classes = CLASSES.map(|(name, _)| name);
    cluster.kubectl(&[&["delete", "priorityclass", "--ignore-not-found"][..], &classes].concat())?;
    outcome
}

fn preempted(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    for (name, value) in CLASSES {
        cluster.apply(&format!(
            "{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: {name}}}, value: {value}}}"
        ))?;
    }
    for (name, class) in RUNNING {
        start(stage, cluster, name, class, EACH)?;
        // The API has the time at which a pod started in whole seconds.
        stage.pause(Duration::from_millis(1_100));
    }
    write_pods_and_nodes(cluster)?;
    let answer = requests_equal_kubectls(stage, cluster)?;
    stage.check_equal(
        "the node and its verdict, by rank",
        &(&answer["nodes"][0]["node"], &answer["nodes"][0]["verdict"]),
        &(&NODE.into(), &"overutilized".into()),
    );
    let mut expected = BTreeSet::new();
    for (name, percent, leave) in WAITING {
        write_pods_and_nodes(cluster)?;
        let foreseen = foreseen(stage, cluster, percent)?;
        stage.check_equal("pods that are preempted, by rank", &foreseen, &owned(leave));
        let before = uids(cluster)?;
        start(stage, cluster, name, "high", percent)?;
        let now = uids(cluster)?;
        let gone: BTreeMap<_, _> = before.into_iter().filter(|(name, _)| !now.contains_key(name)).collect();
        stage.check_equal("pods that the scheduler has preempted", &gone.keys().cloned().collect(), &foreseen);
        expected.extend(gone.into_values());
    }
    // The scheduler sends its events in the background.
    let reported = || -> Result<BTreeSet<String>> {
        let events = events_in(cluster, "default")?.into_iter().filter(|event| event["reason"] == "Preempted");
        Ok(events.map(|event| text(&event["involvedObject"]["uid"])).filter(|uid| expected.contains(uid)).collect())
    };
    stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        reported().is_ok_and(|pods| pods == expected)
    });
    stage.check_equal("pods with an event Preempted", &reported()?, &expected);
    stage.screen("\n$ kubectl get events --field-selector reason=Preempted");
    stage.screen(&cluster.kubectl(&["get", "events", "--field-selector", "reason=Preempted"])?);
    stage.screen("");
    show(stage, cluster)
}

fn owned(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Creates a pod, and waits until it is ready: of two with the same priority the scheduler spares the one that started first.
fn start(stage: &mut Stage<'_>, cluster: &Cluster, name: &str, class: &str, percent: u64) -> Result<()> {
    let cpu = millicores(cluster, percent)?;
    cluster.apply(&format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default, labels: {{app: {APP}}}}}
spec:
  priorityClassName: {class}
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: localhost/busybox:1
      imagePullPolicy: Never
      command: [sh, -c, 'while :; do sleep 5; done']
      resources: {{requests: {{cpu: {cpu}m, memory: 32Mi}}}}
"
    ))?;
    let mut last = Value::Null;
    let came = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        last = cluster.admin.find_pod(name).ok().flatten().unwrap_or_default();
        is_ready(&last)
    });
    ensure!(came, "{name} is not ready: {}", last["status"]);
    Ok(())
}

/// Returns a share of the node's CPUs in thousandths of a CPU.
fn millicores(cluster: &Cluster, percent: u64) -> Result<u64> {
    let cpus = text(&cluster.admin.node()?["status"]["allocatable"]["cpu"]);
    let all = match cpus.strip_suffix('m') {
        Some(milli) => milli.parse(),
        None => cpus.parse::<u64>().map(|whole| whole * 1000),
    };
    Ok(all.with_context(|| format!("the node has {cpus:?} CPUs"))? * percent / 100)
}

/// Returns this scenario's pods that are not terminating: the UID by the name.
fn uids(cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let pods = cluster.pods_of("default", &format!("app={APP}"))?;
    let stay = pods.iter().map(|pod| &pod["metadata"]).filter(|metadata| metadata["deletionTimestamp"].is_null());
    Ok(stay.map(|metadata| (text(&metadata["name"]), text(&metadata["uid"]))).collect())
}

/// Writes the files that `rank` reads.
pub fn write_pods_and_nodes(cluster: &Cluster) -> Result<()> {
    fs::write(PODS, cluster.kubectl(&["get", "pods", "-A", "-o", "json"])?).context("write the pods")?;
    fs::write(NODES, cluster.kubectl(&["get", "nodes", "-o", "json"])?).context("write the nodes")
}

/// Runs `rank` on these files, and shows its table. Returns its JSON output.
fn rank(stage: &Stage<'_>, words: &[&str]) -> Result<Value> {
    let ask = |more: &[&str]| {
        let mut command = Command::new(agent::PROGRAM);
        command.args(["rank", "--pods", PODS, "--nodes", NODES]).args(words).args(more);
        let output = command.output().context("start rank")?;
        ensure!(output.status.success(), "rank: {}", String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    };
    stage.screen(&format!("\n$ node-pressure-monitor rank --pods pods.json --nodes nodes.json {}", words.join(" ")));
    stage.screen(&String::from_utf8_lossy(&ask(&[])?));
    serde_json::from_slice(&ask(&["--output", "json"])?).context("what rank prints is not JSON")
}

/// Returns the pods that a pod of the high priority which requests this much would preempt, by `rank`.
fn foreseen(stage: &mut Stage<'_>, cluster: &Cluster, percent: u64) -> Result<BTreeSet<String>> {
    let (priority, requests) = (PENDING.to_string(), format!("cpu={}m,memory=32Mi", millicores(cluster, percent)?));
    let answer = rank(stage, &["--node", NODE, "--preemption-for", &priority, "--requests", &requests])?;
    stage.check_equal("whether the pod fits, by rank", &text(&answer["fits"]), &"afterPreemption".to_owned());
    let rows = answer["candidates"].as_array().into_iter().flatten().filter(|row| row["preempted"] == true);
    Ok(rows.map(|row| text(&row["pod"]).trim_start_matches("default/").to_owned()).collect())
}

/// Asserts that `rank --utilization` and `kubectl describe node` name the same sums of requests. Returns rank's answer.
pub fn requests_equal_kubectls(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<Value> {
    let answer = rank(stage, &["--utilization"])?;
    let page = cluster.kubectl(&["describe", "node", NODE])?;
    let allocated: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("Allocated resources:")).collect();
    for resource in ["cpu", "memory"] {
        let line = allocated.iter().find(|line| line.trim_start().starts_with(resource)).copied().unwrap_or_default();
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [_, requested, percent, ..] = columns.as_slice() else {
            bail!("kubectl describe node does not list {resource}: {page}")
        };
        let ours = &answer["nodes"][0]["utilization"][resource];
        let shown = (text(&ours["requested"]), format!("({:.0}%)", ours["percent"].as_f64().unwrap_or(-1.0).floor()));
        stage.check_equal(
            &format!("requests of {resource}, and kubectl's"),
            &shown,
            &((*requested).to_owned(), (*percent).to_owned()),
        );
    }
    Ok(answer)
}
