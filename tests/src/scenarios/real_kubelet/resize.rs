//! Pods that are resized in place: what the kubelet allocates counts, not what a pod asks for. The API server (1.36) refuses a resize beyond what
//! the node has at all.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::ending::tidy;
use super::preemption::{requests_equal_kubectls, write_pods_and_nodes};
use super::scene::{
    BETWEEN_LOOKS, ENFORCING, Scene, TIME_LIMIT, end, ends_as_evicted, is_killed, leak, long_pressure, text, work,
};
use crate::cluster::{Cluster, container_id, is_ready};
use crate::stage::Stage;
use crate::units::MIB;

/// A pod that asks for almost all memory of the node, which the kubelet defers while another pod runs.
const GREEDY: &str = "greedy";
/// A pod whose resize the kubelet grants.
const GRANTED: &str = "granted";
/// The request of both at first, and what the second asks for later.
const REQUEST: &str = "32Mi";
const ASKED: &str = "128Mi";
/// The bytes of the node for which the greedy pod does not ask.
const SPARED: u64 = 32 * MIB;
/// The requests that are in force then.
const IN_FORCE: [(&str, u64); 2] = [(GREEDY, 32 * MIB), (GRANTED, 128 * MIB)];
/// MiB that the granted pod holds: more than it requested at first, less than now.
const HELD: u64 = 64;

pub fn resize(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, .. } = Scene::with(stage, ENFORCING, long_pressure)?;
    let [greedy, granted] = [start(stage, &cluster, GREEDY)?, start(stage, &cluster, GRANTED)?];
    ask(&cluster, GRANTED, ASKED)?;
    ask(&cluster, GREEDY, &(allocatable(&cluster)? - SPARED).to_string())?;
    are_answered(stage, &cluster)?;
    let holder = work(stage, &granted, &format!("hold --name {GRANTED} --mib {HELD}"))?;
    stage.wait_resident(&holder, HELD)?;
    let leaker = leak(stage, &greedy)?;
    are_ranked(stage, &cluster)?;
    write_pods_and_nodes(&cluster)?;
    requests_equal_kubectls(stage, &cluster)?;
    is_killed(stage, &agent, &leaker)?;
    ends_as_evicted(stage, &cluster, GREEDY, &text(&greedy["metadata"]["uid"]))?;
    stage.check_alive(&[&holder]);
    end(stage, &holder);
    cluster.kubectl(&["-n", "default", "delete", "pod", GREEDY, GRANTED, "--wait"])?;
    tidy(stage, &cluster)
}

/// Creates a pod, and waits until it is ready.
fn start(stage: &mut Stage<'_>, cluster: &Cluster, name: &str) -> Result<Value> {
    cluster.apply(&format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: localhost/busybox:1
      imagePullPolicy: Never
      command: [sh, -c, 'while :; do sleep 5; done']
      resources: {{requests: {{memory: {REQUEST}}}}}
"
    ))?;
    let mut last = Value::Null;
    let came = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        last = cluster.admin.find_pod(name).ok().flatten().unwrap_or_default();
        is_ready(&last) && container_id(&last).is_ok()
    });
    ensure!(came, "{name} is not ready: {}", last["status"]);
    Ok(last)
}

/// Asks the kubelet to give a pod this memory.
fn ask(cluster: &Cluster, name: &str, memory: &str) -> Result<()> {
    let patch = format!(
        r#"{{"spec":{{"containers":[{{"name":"main","resources":{{"requests":{{"memory":"{memory}"}}}}}}]}}}}"#
    );
    cluster.kubectl(&["-n", "default", "patch", "pod", name, "--subresource", "resize", "--patch", &patch]).map(drop)
}

/// Returns the bytes of memory that the node has for pods.
fn allocatable(cluster: &Cluster) -> Result<u64> {
    let memory = text(&cluster.admin.node()?["status"]["allocatable"]["memory"]);
    let kib = memory.strip_suffix("Ki").and_then(|kib| kib.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("the node has {memory:?} of memory"))? << 10)
}

/// Waits until the kubelet has granted one resize and deferred the other.
fn are_answered(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let status = |name: &str| cluster.admin.pod(name).map(|pod| pod["status"].clone()).unwrap_or_default();
    let is_granted = |status: &Value| status["containerStatuses"][0]["resources"]["requests"]["memory"] == ASKED;
    let is_deferred = |status: &Value| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "PodResizePending" && one["reason"] == "Deferred")
    };
    let mut last = (Value::Null, Value::Null);
    let came = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        last = (status(GRANTED), status(GREEDY));
        is_granted(&last.0) && is_deferred(&last.1)
    });
    ensure!(came, "the kubelet has not answered the resizes: {} {}", last.0, last.1);
    stage.note("the kubelet has granted one resize, and deferred the other");
    Ok(())
}

/// Asserts that `rank` in the agent's pod counts the requests in force, and places the greedy pod first as soon as it is above its own.
fn are_ranked(stage: &mut Stage<'_>, cluster: &Cluster) -> Result<()> {
    let mut answer = Value::Null;
    let row_of = |answer: &Value, name: &str| {
        let mut rows = answer["ranking"].as_array().into_iter().flatten().cloned().enumerate();
        rows.find(|(_, row)| text(&row["pod"]) == format!("default/{name}"))
    };
    // The agent's copy of the pods follows the API server's, and the greedy pod has to grow.
    let came = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        answer = cluster.in_agent(&["rank"]).unwrap_or_default();
        let is_known = |(name, bytes): (&str, u64)| {
            row_of(&answer, name).is_some_and(|(_, row)| row["request"].as_u64() == Some(bytes))
        };
        IN_FORCE.into_iter().all(is_known)
            && row_of(&answer, GREEDY).is_some_and(|(_, row)| row["usage"].as_u64() > Some(32 * MIB))
    });
    stage.check(came, || format!("rank does not count the requests in force: {answer}"));
    let place = |name: &str| row_of(&answer, name).map(|(place, _)| place).with_context(|| format!("{name} in rank"));
    let (greedy, granted) = (place(GREEDY)?, place(GRANTED)?);
    stage.check(greedy < granted, || format!("{GREEDY} is at {greedy}, {GRANTED} at {granted} of the ranking"));
    Ok(())
}
