//! Checks that the agent finds pods that are made through CRI as it finds the kubelet's pods.

use std::fs;
use std::time::Duration;

use anyhow::Result;

use crate::cgroups::Qos;
use crate::config::AgentConfig;
use crate::containers::{Node, Storage, cri};
use crate::stage::Stage;

/// The number of files that the pod makes in its volume.
const FILES: u32 = 20;

pub fn containers(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    stage.note(cri::version()?);
    let agent = stage.agent(&AgentConfig::observe())?;
    let pod = node.pod(stage, "first", Qos::BestEffort, &["cache"])?;
    let script =
        format!("echo hello; for i in $(seq {FILES}); do echo $i > /cache/$i; done; while :; do sleep 1; done");
    let id = pod.run("main", &script)?;
    let scope = pod.cgroup.directory().join(format!("cri-containerd-{id}.scope"));
    stage.check(scope.is_dir(), || format!("{} is not there", scope.display()));
    let log = pod.log("main");
    let is_logged =
        stage.until(Duration::from_secs(20), |_| fs::read_to_string(&log).is_ok_and(|text| text.contains("hello")));
    stage.check(is_logged, || format!("{}: nothing of the container's", log.display()));
    let mut found = None;
    stage.until(Duration::from_secs(20), |_| {
        let metrics = agent.metrics().unwrap_or_default();
        found = metrics.sum("inodes_created_total", &[("workload", pod.workload())]);
        found >= Some(f64::from(FILES))
    });
    stage.check(found >= Some(f64::from(FILES)), || {
        format!("inodes made by the pod: {found:?}, expected {FILES} at least")
    });
    let last = pod.empty_dir("cache").join(FILES.to_string());
    stage.check(last.is_file(), || format!("{} is not there", last.display()));
    let running = pod.is_running()?;
    stage.check(running, || "containerd says that the pod does not run".to_owned());
    drop(node);
    stage.check(pod.is_gone(), || "the pod outlived its removal".to_owned());
    stage.stop(&agent);
    Ok(())
}
