//! `oom_score_adj` by QoS class, which directs the kernel's OOM killer if it acts before the agent.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cgroups::{Layout, Pod, PodSpec};
use crate::config::AgentConfig;
use crate::evidence::meminfo;
use crate::stage::Stage;
use crate::units::MIB;

const REQUEST_MIB: u64 = 96;
/// The processes of each pod: a parent and its children.
const PROCESSES: usize = 6;

pub fn scores(stage: &mut Stage<'_>) -> Result<()> {
    let pods = [
        stage.pod("guaranteed", PodSpec::guaranteed(96))?,
        stage.pod("burstable", PodSpec::burstable(REQUEST_MIB))?,
        stage.pod("besteffort", PodSpec::best_effort())?,
    ];
    for pod in &pods {
        stage.work(pod, &format!("hold --name {} --mib 8 --children {}", pod.label, PROCESSES - 1))?;
    }
    let complete =
        stage.until(Duration::from_secs(10), |_| pods.iter().all(|pod| pod.cgroup.processes().len() == PROCESSES));
    stage.check(complete, || "the pods do not have their processes".to_owned());

    let observer = stage.agent(&AgentConfig::observe())?;
    let reported = stage.until(Duration::from_secs(15), |_| !observer.events("oom_score_adj_drift").is_empty());
    stage.check(reported, || "observe mode has no record with event=oom_score_adj_drift".to_owned());
    for pod in &pods {
        stage.check_equal(&format!("observe: {}", pod.label), &scores_of(pod)?, &vec![0; PROCESSES]);
    }
    let mut drift = 0.0;
    // The agent may serve a cached report once more.
    stage.until(Duration::from_secs(5), |_| {
        drift = observer.metrics().ok().and_then(|metrics| metrics.sum("oom_score_adj_drift", &[])).unwrap_or(0.0);
        drift >= 18.0
    });
    stage.check(drift >= 18.0, || format!("oom_score_adj_drift is {drift}; 18 processes have the wrong score"));
    stage.stop(&observer);

    let enforcer = stage.agent(&AgentConfig::default())?;
    let expected = [-997, burstable_score(stage)?, 1000];
    stage.until(Duration::from_secs(15), |_| {
        pods.iter()
            .zip(expected)
            .all(|(pod, score)| scores_of(pod).is_ok_and(|scores| scores.iter().all(|found| near(*found, score))))
    });
    for (pod, score) in pods.iter().zip(expected) {
        let scores = scores_of(pod)?;
        stage.check(scores.len() == PROCESSES && scores.iter().all(|found| near(*found, score)), || {
            format!("enforce: {}: found {scores:?}, expected {score}", pod.label)
        });
    }
    let drift = enforcer.metrics()?.sum("oom_score_adj_drift", &[]).unwrap_or(0.0);
    stage.check_equal("oom_score_adj_drift after enforcing", &drift, &0.0);
    // The agent restores a score that was lowered, and leaves one that was raised: that process offers itself to the OOM killer.
    let first = |pod: Option<&Pod>| pod.and_then(|pod| pod.cgroup.processes().first().copied());
    if let Some((volunteer, lowered)) = first(pods.first()).zip(first(pods.last())) {
        let write = |pid: i32| {
            let path = format!("/proc/{pid}/oom_score_adj");
            fs::write(&path, "300").with_context(|| format!("write {path}"))
        };
        // One write at a time: the probe reports the first of several writes within a moment, and the others wait for a whole audit.
        write(lowered)?;
        let mended = stage.until(Duration::from_secs(15), |_| score_of(lowered).is_ok_and(|score| score == 1000));
        stage.check(mended, || "a score lowered to 300 behind the agent's back stays 300".to_owned());
        write(volunteer)?;
        stage.pause(Duration::from_secs(3));
        stage.check_equal("a score raised to 300", &score_of(volunteer)?, &300);
    }
    stage.stop(&enforcer);
    Ok(())
}

/// Returns whether two scores differ by at most one, because the kubelet rounds differently.
fn near(found: i32, expected: i32) -> bool {
    found.abs_diff(expected) <= 1
}

/// Returns 1000 - 1000 * request / capacity, limited to 3..=999. On v1 no file holds the request.
fn burstable_score(stage: &Stage<'_>) -> Result<i32> {
    let request = if stage.layout() == Layout::V2 { REQUEST_MIB * MIB } else { 0 };
    let capacity = meminfo("MemTotal")?;
    let score = 1000_u64.saturating_sub(1000 * request / capacity).clamp(3, 999);
    i32::try_from(score).context("score")
}

fn scores_of(pod: &Pod) -> Result<Vec<i32>> {
    pod.cgroup.processes().into_iter().map(score_of).collect()
}

pub fn score_of(pid: i32) -> Result<i32> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    text.trim().parse().with_context(|| format!("{path}: {text:?}"))
}
