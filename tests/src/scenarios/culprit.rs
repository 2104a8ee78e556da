//! The last check of scenarios with containers: the culprit was evicted, and no other pod.

use std::time::Duration;

use anyhow::Result;

use crate::agent::Agent;
use crate::cgroups::Qos;
use crate::config::AgentConfig;
use crate::containers::{Node, NodePod};
use crate::stage::Stage;

/// The time after the eviction in which a second, wrong eviction would appear.
const AFTERMATH: Duration = Duration::from_secs(3);

/// Returns a configuration with one hard threshold, and without delays before garbage collection.
pub fn config(signal: &'static str, threshold: u64) -> AgentConfig {
    AgentConfig {
        hard: None,
        thresholds: vec![(signal, format!("\"{threshold}\""))],
        extra: "runtime: {minimumContainerAge: 0s, imageMinimumGCAge: 0s}\n".to_owned(),
        ..AgentConfig::default()
    }
}

/// Starts a pod with a few files on each filesystem: more than nothing, and less than the culprit has.
pub fn bystander(node: &Node, stage: &Stage<'_>, name: &str, qos: Qos) -> Result<NodePod> {
    let pod = node.pod(stage, name, qos, &["cache"])?;
    pod.run(
        "main",
        "echo here; dd if=/dev/zero of=/data bs=1M count=4; echo kept > /cache/file; while :; do sleep 5; done",
    )?;
    Ok(pod)
}

/// Returns the workloads that the agent's log reports as evicted, each once.
pub fn evicted(agent: &Agent) -> Vec<String> {
    let mut workloads = Vec::new();
    for record in agent.events("eviction") {
        let workload = record.text("workload").to_owned();
        if record.text("mode") == "enforce" && !workloads.contains(&workload) {
            workloads.push(workload);
        }
    }
    workloads
}

/// Waits until the culprit has exited; then asserts from the kernel, the runtime and the log that no other pod was evicted.
pub fn goes_alone(
    stage: &mut Stage<'_>,
    agent: &Agent,
    culprit: &NodePod,
    bystanders: &[&NodePod],
    limit: Duration,
) -> Result<()> {
    let gone = stage.until(limit, |_| culprit.is_gone());
    let left = culprit.cgroup.processes().len();
    stage.check(gone, || format!("{} still has {left} processes after {limit:?}", culprit.name));
    stage.pause(AFTERMATH);
    live_on(stage, bystanders)?;
    let evicted = evicted(agent);
    let alone = evicted.len() == 1;
    stage.check_equal("evicted", &evicted, &vec![culprit.workload().to_owned()]);
    if !alone {
        // The log's last lines show only the effects. The records of the evictions have the reasons.
        for record in agent.events("eviction") {
            stage.note(format!(
                "{}: {}; {}",
                record.text("workload"),
                record.text("explanation"),
                record.text("ranking")
            ));
        }
    }
    stage.check_no_oom_kill()
}

/// Asserts that the containers of these pods run.
pub fn live_on(stage: &mut Stage<'_>, pods: &[&NodePod]) -> Result<()> {
    for pod in pods {
        let runs = pod.is_running()?;
        stage.check(runs, || format!("{} does not run any more", pod.name));
    }
    Ok(())
}
