//! What `doctor` says of a node with containerd; run by itself the scenario prints it.

use std::process::Command;

use anyhow::{Context, Result};

use super::culprit::bystander;
use crate::agent::PROGRAM;
use crate::cgroups::Qos;
use crate::config::AgentConfig;
use crate::containers::storage::{CONTAINERD, KUBELET};
use crate::containers::{Node, Storage};
use crate::stage::Stage;

pub fn doctor(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::DedicatedImages)?;
    bystander(&node, stage, "quiet", Qos::BestEffort)?;
    // It must not disturb an agent at work.
    let agent = stage.agent(&AgentConfig::observe())?;
    let output = Command::new(PROGRAM).arg("doctor").output().context("start doctor")?;
    let text = String::from_utf8_lossy(&output.stdout);
    stage.page("$ node-pressure-monitor doctor");
    stage.page(&text);
    stage.check_equal("doctor's exit status", &output.status.code(), &Some(0));
    for word in [
        "containerd",
        ", CRI v1, at",
        KUBELET,
        CONTAINERD,
        "ext4",
        "xfs",
        "6.12",
        "project quotas off",
        "imagefs is not nodefs",
    ] {
        stage.check(text.contains(word), || format!("{word:?} is not in what doctor says"));
    }
    let json = Command::new(PROGRAM).args(["doctor", "--output", "json"]).output().context("start doctor")?;
    let parsed = serde_json::from_slice::<serde_json::Value>(&json.stdout);
    stage.check(parsed.is_ok(), || "doctor --output json: not JSON".to_owned());
    let answer = parsed.unwrap_or_default();
    stage.check_equal("the version of CRI", &answer["runtimes"][0]["apiVersion"].as_str(), &Some("v1"));
    stage.check_equal("the layout", &answer["filesystemLayout"].as_str(), &Some("dedicatedImageFs"));
    let degraded = agent.events("degraded").len();
    stage.note(format!("degraded records of the agent beside it: {degraded}"));
    stage.stop(&agent);
    Ok(())
}
