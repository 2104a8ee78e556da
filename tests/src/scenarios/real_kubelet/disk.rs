//! A pod fills the node's file system: the agent and the kubelet stop it.

use std::fs::File;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::ending::tidy;
use super::scene::{
    ENFORCING, PATIENCE, Scene, ends_as_evicted, events_of, ready_pod, tell_events, tell_since, volume_file,
};
use super::times::{Victim, tell_steps};
use crate::cluster::container_id;
use crate::containers::cri;
use crate::containers::storage::KUBELET;
use crate::stage::Stage;
use crate::units::monotonic_ns;

/// Per mille of the file system that the pod leaves: below the agent's `imagefs.available` (17 %), above the kubelet's (15 %). The
/// file system is both `nodefs` and `imagefs`.
const LEAVES: u64 = 160;

pub fn disk(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, story } = Scene::begin(stage, ENFORCING)?;
    let container = container_id(&pod)?;
    let begun = monotonic_ns();
    fill(&uid)?;
    let decided = stage.until(PATIENCE, |_| !agent.events("eviction").is_empty());
    stage.check(decided, || format!("no eviction: {}", agent.tail(10).join(" / ")));
    let restarts = ends_as_evicted(stage, &cluster, &name, &uid)?;
    stage.check_equal("restarts of the evicted pod's container", &restarts, &0);
    ready_pod(stage, &cluster, &uid)?;
    tell_events(stage, &cluster, &name)?;
    // Only the kubelet tears down the sandbox.
    let events = events_of(&cluster, &name)?;
    let failed = events.iter().filter(|event| event["reason"] == "FailedKillPod").count();
    stage.check_equal("events FailedKillPod", &failed, &0);
    let last = cluster.admin.pod(&name)?;
    let reason = last["status"]["containerStatuses"][0]["state"]["terminated"]["reason"].as_str();
    stage.check(reason.is_some_and(|it| it != "ContainerStatusUnknown"), || {
        "the kubelet did not see the container's end".to_owned()
    });
    let recovered =
        stage.until(PATIENCE, |_| statvfs(KUBELET).is_ok_and(|all| all.f_bavail * 1000 > all.f_blocks * 200));
    stage.check(recovered, || "the pod's data is still on the disk".to_owned());
    // The kubelet keeps it until the pod is deleted.
    let is_removed = || cri::containers().is_ok_and(|all| all.iter().all(|other| other.id != container));
    let removed = stage.until(PATIENCE, |_| is_removed());
    stage.check(removed, || "the evicted pod's container is still on the disk".to_owned());
    stage.check_equal("evictions by the agent", &agent.events("eviction").len(), &1);
    tell_steps(
        stage,
        "the pod began to fill the disk",
        (begun, None),
        "MonitorDiskPressure",
        Victim::hog(&name, &uid),
    )?;
    tell_since(stage, begun, &story)?;
    tidy(stage, &cluster)
}

/// Allocates a file in the pod's volume.
fn fill(uid: &str) -> Result<()> {
    let all = statvfs(KUBELET).context("statvfs of the kubelet's directory")?;
    let bytes = all.f_bavail.saturating_sub(all.f_blocks * LEAVES / 1000) * all.f_frsize;
    let path = volume_file(uid, "file");
    let file = File::create(&path).with_context(|| format!("create {path}"))?;
    fallocate(file, FallocateFlags::empty(), 0, bytes).with_context(|| format!("allocate {bytes} bytes for {path}"))
}
