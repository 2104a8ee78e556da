//! containerd stops during an eviction and starts again.

use std::time::Duration;

use anyhow::Result;

use super::culprit::{bystander, config, evicted, live_on};
use crate::cgroups::Qos;
use crate::containers::storage::{CONTAINERD, available};
use crate::containers::{Node, Storage, cri};
use crate::stage::Stage;
use crate::units::MIB;

const LIMIT: Duration = Duration::from_secs(60);

/// Stops containerd before the eviction. The agent cannot collect garbage without the runtime, but it can still end the pod. After the
/// restart of containerd, the dead pod's containers are removed through it.
pub fn outage(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::DedicatedImages)?;
    let quiet = bystander(&node, stage, "quiet", Qos::BestEffort)?;
    let culprit = node.pod(stage, "filler", Qos::BestEffort, &[])?;
    stage.pause(Duration::from_secs(1));
    let threshold = available(CONTAINERD)?.saturating_sub(60 * MIB);
    let agent = stage.agent(&config("imagefs.available", threshold))?;
    let id = culprit.run("main", "sleep 8; for i in $(seq 50); do dd if=/dev/zero of=/fill$i bs=1M count=4; sleep 0.2; done; while :; do sleep 5; done")?;
    node.stop_runtime()?;
    let gone = stage.until(LIMIT, |_| culprit.is_gone());
    stage.check(gone, || format!("the filler lives {LIMIT:?} after it began"));
    // The agent may notice the loss only at its next use of the runtime.
    let named = stage
        .until(LIMIT, |_| agent.events("degraded").iter().any(|record| record.text("capability").contains("runtime")));
    stage.check(named, || "the loss of the runtime is not logged: no degraded record names it".to_owned());
    stage.check_equal("evicted", &evicted(&agent), &vec![culprit.workload().to_owned()]);
    node.start_runtime()?;
    let tidied =
        stage.until(LIMIT, |_| cri::containers().is_ok_and(|all| all.iter().all(|container| container.id != id)));
    stage.check(tidied, || format!("the dead container is still there {LIMIT:?} after containerd came back"));
    let back = stage.until(LIMIT, |_| available(CONTAINERD).is_ok_and(|bytes| bytes >= threshold));
    stage.check(back, || "imagefs.available did not come back".to_owned());
    live_on(stage, &[&quiet])?;
    stage.check_equal("evicted in the end", &evicted(&agent).len(), &1);
    stage.stop(&agent);
    Ok(())
}
