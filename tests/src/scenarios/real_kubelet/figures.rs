//! The agent's figures of a pod compared with the kubelet's, and the answers of the agent's commands in the agent's pod.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::ending::tidy;
use super::scene::{APP, BETWEEN_LOOKS, Scene, TIME_LIMIT, end, is_set_up, text, volume_file, work};
use crate::cgroups::Layout;
use crate::cluster::Cluster;
use crate::containers::runtime::Runtime;
use crate::control_plane::NODE;
use crate::http;
use crate::stage::Stage;
use crate::units::MIB;

const KUBELET_URL: &str = "https://127.0.0.1:10250";
/// The size of the file in the pod's volume, in MiB.
const FILE: u64 = 8;
/// The largest difference between the agent and the kubelet on a volume, in bytes: a block.
const BLOCK: u64 = 4 << 10;
/// MiB that the pod's workload holds.
const HELD: u64 = 64;
/// The container's first process and the pod's workload. Beside them the container runs `sleep`, again and again.
const PROCESSES: u64 = 2;
/// The number of measurements in succession at which the agent and the kubelet count the same processes. One alone may agree by chance.
const IN_SUCCESSION: u32 = 3;
/// The largest difference on a working set, in bytes. The agent and the kubelet measure at different times.
const APART: u64 = 8 * MIB;

pub fn figures(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, .. } = Scene::begin(stage, "")?;
    let worker = work(stage, &pod, &format!("hold --name {APP} --mib {HELD}"))?;
    stage.wait_resident(&worker, HELD)?;
    let file = volume_file(&uid, "file");
    fs::write(&file, vec![1; usize::try_from(FILE * MIB)?]).with_context(|| format!("write {file}"))?;

    let kubelet = || by_kubelet(&cluster, &uid);
    let own = || of_pod(&http::get(agent.address, "/stats/summary")?.1, &uid);
    let (mut theirs, mut ours) = (kubelet(), own());
    // The agent and the kubelet measure disks in the background, the kubelet every minute. The kubelet's other figures may be missing at first.
    let mut agreed = 0;
    let measured = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        (theirs, ours) = (kubelet(), own());
        let agree = sees_all(&theirs) && sees_all(&ours) && count_the_same(stage.layout(), &theirs, &ours);
        agreed = if agree { agreed + 1 } else { 0 };
        agreed == IN_SUCCESSION
    });
    let (theirs, ours) = (theirs.context("the kubelet's summary")?, ours.context("the agent's summary")?);
    stage.check(measured, || format!("a summary is incomplete, or the counts of processes differ: {theirs} {ours}"));
    stage.page(&format!("kubelet: {theirs}\nagent:   {ours}"));
    agree(stage, &theirs, &ours);

    for event in ["container_runtime", "degraded"] {
        agent.events(event).iter().for_each(|record| stage.note(format!("{event}: {}", record.text("message"))));
    }
    is_ranked(stage, &cluster, &name)?;
    is_set_up(stage, &cluster, "watch")?;
    end(stage, &worker);
    tidy(stage, &cluster)
}

/// Returns the kubelet's statistics of the pod with this UID.
pub fn by_kubelet(cluster: &Cluster, uid: &str) -> Result<Value> {
    // The API server is no proxy to a node on a loopback address.
    let itself = ["--server", KUBELET_URL, "--insecure-skip-tls-verify", "get", "--raw", "/stats/summary"];
    of_pod(&cluster.kubectl(&itself)?, uid)
}

/// Returns the statistics of the pod with this UID.
fn of_pod(summary: &str, uid: &str) -> Result<Value> {
    let summary: Value = serde_json::from_str(summary).context("the summary is not JSON")?;
    let pods = summary["pods"].as_array().cloned().unwrap_or_default();
    pods.into_iter().find(|pod| pod["podRef"]["uid"] == uid).context("the pod is not in the summary")
}

/// Returns whether a summary has the file, the memory and the processes of the workload.
fn sees_all(one: &Result<Value>) -> bool {
    let Ok(one) = one else { return false };
    let has_file = used(&one["ephemeral-storage"]) >= FILE * MIB;
    has_file && working_set(one) >= HELD * MIB && count(one).is_some()
}

/// Returns whether both count the same processes. On cgroup v1 the workload is in the hierarchies that the agent reads, and not in the one in
/// which the kubelet counts.
fn count_the_same(layout: Layout, theirs: &Result<Value>, ours: &Result<Value>) -> bool {
    let outside = u64::from(layout == Layout::V1);
    let [theirs, ours] = [theirs, ours].map(|one| one.as_ref().ok().and_then(count));
    ours == theirs.map(|count| count + outside)
}

fn working_set(of: &Value) -> u64 {
    of["memory"]["workingSetBytes"].as_u64().unwrap_or(0)
}

fn count(of: &Value) -> Option<u64> {
    of["process_stats"]["process_count"].as_u64()
}

pub fn used(of: &Value) -> u64 {
    of["usedBytes"].as_u64().unwrap_or(0)
}

/// Returns the largest difference on the pod's local storage in blocks, one more than was measured: the agent and the kubelet count different
/// directories. With CRI-O the kubelet leaves out the container's writable layer of nine blocks.
fn blocks_apart() -> u64 {
    match Runtime::here() {
        Runtime::Containerd => 4,
        Runtime::Crio => 11,
    }
}

fn agree(stage: &mut Stage<'_>, theirs: &Value, ours: &Value) {
    let names = |of: &Value, field: &str| -> Vec<String> {
        let mut names: Vec<String> = of[field].as_array().into_iter().flatten().map(|one| text(&one["name"])).collect();
        names.sort();
        names
    };
    stage.check_equal("the pod's containers", &names(ours, "containers"), &names(theirs, "containers"));
    let (all, own) = (names(theirs, "volume"), names(ours, "volume"));
    // The kubelet also lists the projected volume of the token.
    stage.check(own.iter().all(|name| all.contains(name)), || format!("volumes {own:?}, by the kubelet {all:?}"));
    let data = |of: &Value| {
        let volumes = of["volume"].as_array().into_iter().flatten();
        volumes.filter(|one| one["name"] == "data").map(used).next().unwrap_or(0)
    };
    for (what, [ours, theirs], least, apart) in [
        ("the volume", [data(ours), data(theirs)], FILE * MIB, BLOCK),
        (
            "ephemeral storage",
            [ours, theirs].map(|one| used(&one["ephemeral-storage"])),
            FILE * MIB,
            blocks_apart() * BLOCK,
        ),
        ("the working set", [ours, theirs].map(working_set), HELD * MIB, APART),
    ] {
        stage.note(format!("{what}: {ours} bytes, by the kubelet {theirs}"));
        stage.check(theirs >= least && ours.abs_diff(theirs) <= apart, || {
            format!("{what}: {ours} bytes, by the kubelet {theirs}")
        });
    }
    stage.check(count(theirs) >= Some(PROCESSES), || format!("process_count by the kubelet: {:?}", count(theirs)));
}

/// Asserts that `rank` in the agent's pod ranks this pod, and has the node's name, not that of the agent's pod.
fn is_ranked(stage: &mut Stage<'_>, cluster: &Cluster, pod: &str) -> Result<()> {
    let answer = cluster.in_agent(&["rank"])?;
    stage.check_equal("the node by rank in the agent's pod", &text(&answer["node"]), &NODE.to_owned());
    let mut ranking = answer["ranking"].as_array().into_iter().flatten();
    let is_listed = ranking.any(|row| text(&row["pod"]).ends_with(pod));
    stage.check(is_listed, || format!("rank in the agent's pod does not list {pod}: {answer}"));
    Ok(())
}
