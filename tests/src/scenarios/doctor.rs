//! What `doctor` says of a node with containerd; run by itself the scenario prints it.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::culprit::bystander;
use crate::agent::{Agent, PROGRAM};
use crate::cgroups::Qos;
use crate::config::AgentConfig;
use crate::containers::storage::{CONTAINERD, KUBELET};
use crate::containers::{Node, Storage};
use crate::stage::Stage;

pub fn doctor(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::DedicatedImages)?;
    bystander(&node, stage, "quiet", Qos::BestEffort)?;
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
    stage.check_equal("the agent at work beside it", &condition_of(&agent)?, &before);
    stage.stop(&agent);
    Ok(())
}

/// What must be as it was when somebody else has looked: probes attached, degradations said, the agent's own score.
fn condition_of(agent: &Agent) -> Result<(f64, usize, String)> {
    let attached = agent.metrics()?.sum("probe_attached", &[]).context("no probe_attached")?;
    let path = format!("/proc/{}/oom_score_adj", agent.pid);
    let score = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    Ok((attached, agent.events("degraded").len(), score))
}
