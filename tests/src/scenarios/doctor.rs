//! Output of `doctor` and `rank` on a node with containerd. The scenario prints it when it runs alone.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::culprit::bystander;
use super::scores::score_of;
use crate::agent::{Agent, PROGRAM};
use crate::cgroups::Qos;
use crate::config::AgentConfig;
use crate::containers::storage::{CONTAINERD, KUBELET};
use crate::containers::{Node, NodePod, Storage};
use crate::stage::Stage;

/// The number of files in the volume. The other pods of the node have a few dozen.
const FILES: usize = 2000;
const RANK_CONFIG: &str = "/tmp/doctor-rank.yaml";

pub fn doctor(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::DedicatedImages)?;
    bystander(&node, stage, "quiet", Qos::BestEffort)?;
    let hoarder = hoarder(&node, stage)?;
    let agent = stage.agent(&AgentConfig::observe())?;
    let before = condition_of(&agent)?;
    let output = Command::new(PROGRAM).arg("doctor").output().context("start doctor")?;
    let text = String::from_utf8_lossy(&output.stdout);
    stage.page("$ node-pressure-monitor doctor");
    stage.page(&text);
    stage.check_equal("doctor's exit status", &output.status.code(), &Some(0));
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    for word in [
        "containerd",
        ", CRI v1, at",
        KUBELET,
        CONTAINERD,
        "ext4",
        "xfs",
        &kernel,
        "project quotas off",
        "imagefs is not nodefs",
    ] {
        stage.check(text.contains(word), || format!("{word:?} is not in what doctor says"));
    }
    let json = Command::new(PROGRAM).args(["doctor", "--output", "json"]).output().context("start doctor")?;
    stage.check_equal("exit status of doctor --output json", &json.status.code(), &Some(0));
    let parsed = serde_json::from_slice::<serde_json::Value>(&json.stdout);
    stage.check(parsed.is_ok(), || "doctor --output json: not JSON".to_owned());
    let answer = parsed.unwrap_or_default();
    stage.check_equal("the version of CRI", &answer["runtimes"][0]["apiVersion"].as_str(), &Some("v1"));
    stage.check_equal("the layout", &answer["filesystemLayout"].as_str(), &Some("dedicatedImageFs"));
    rank(stage, &hoarder)?;
    stage.check_equal("the agent at work beside it", &condition_of(&agent)?, &before);
    stage.stop(&agent);
    Ok(())
}

/// Returns facts that a second program must not change: attached probes, degradations, the agent's own score.
fn condition_of(agent: &Agent) -> Result<(f64, usize, i32)> {
    let attached = agent.metrics()?.sum("probe_attached", &[]).context("no probe_attached")?;
    Ok((attached, agent.events("degraded").len(), score_of(agent.pid)?))
}

/// Starts a pod that makes small files in a volume. Writable layers are on another filesystem here.
fn hoarder(node: &Node, stage: &mut Stage<'_>) -> Result<NodePod> {
    let pod = node.pod(stage, "hoarder", Qos::BestEffort, &["cache"])?;
    let script =
        format!("i=0; while [ $i -lt {FILES} ]; do : > /cache/$i; i=$((i+1)); done; while :; do sleep 5; done");
    pod.run("main", &script)?;
    let cache = pod.empty_dir("cache");
    let made = stage.until(Duration::from_secs(60), |_| fs::read_dir(&cache).is_ok_and(|files| files.count() >= FILES));
    stage.check(made, || format!("the hoarder has not made its {FILES} files"));
    Ok(pod)
}

/// Runs `rank` on this node, without files as input and while an agent runs.
fn rank(stage: &mut Stage<'_>, hoarder: &NodePod) -> Result<()> {
    let thresholds = vec![("nodefs.inodesFree", "\"5%\"".to_owned())];
    let config = AgentConfig { thresholds, ..AgentConfig::observe() };
    fs::write(RANK_CONFIG, config.yaml()).with_context(|| format!("write {RANK_CONFIG}"))?;
    let arguments = ["rank", "--signal", "nodefs.inodesFree", "--config", RANK_CONFIG];
    let output = Command::new(PROGRAM).args(arguments).output().context("start rank")?;
    stage.page(&format!("$ node-pressure-monitor {}", arguments.join(" ")));
    stage.page(&String::from_utf8_lossy(&output.stderr));
    stage.page(&String::from_utf8_lossy(&output.stdout));
    stage.check_equal("rank's exit status", &output.status.code(), &Some(0));
    let json = Command::new(PROGRAM).args(arguments).args(["--output", "json"]).output().context("start rank")?;
    let answer: serde_json::Value = serde_json::from_slice(&json.stdout).context("rank --output json: not JSON")?;
    let first = answer.get("first").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
    stage.check_equal("first", &first, &format!("default/{}", hoarder.name));
    let ranking = answer.get("ranking").and_then(serde_json::Value::as_array);
    let used = ranking.and_then(|rows| rows.first()?.get("usage")?.as_u64()).unwrap_or(0);
    stage.check(usize::try_from(used).is_ok_and(|used| used >= FILES), || {
        format!("the hoarder has {used} inodes by rank's count")
    });
    Ok(())
}
