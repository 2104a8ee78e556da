//! A pod fills the node's file system: the agent evicts it, or the kubelet.

use std::fs::File;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use serde_json::Value;

use super::ending::tidy;
use super::figures::{by_kubelet, used};
use super::scene::{
    BETWEEN_LOOKS, ENFORCING, LASTS, Scene, TIME_LIMIT, check_evicted_event, dead_pods, ends_as_evicted, event_count,
    events_of, is_evicted_once, print_since, ready_pod, start_many, text, volume_file,
};
use super::set_ups::{OTHER_PODS, OTHERS};
use super::times::{Victim, record_steps};
use crate::cluster::{Cluster, NAME, container_id, is_ready};
use crate::containers::cri;
use crate::containers::storage::KUBELET;
use crate::control_plane::NODE;
use crate::stage::Stage;
use crate::units::monotonic_ns;

/// The share of the file system that the pod leaves, in per mille: below the agent's `imagefs.available` (17 %), above the kubelet's (15 %). The
/// file system is both `nodefs` and `imagefs`.
const LEAVES: u64 = 160;
/// Shares of the file system above both thresholds, and below both, in per mille.
const LEAVES_AT_FIRST: u64 = 200;
const LEAVES_BELOW_BOTH: u64 = 130;
/// The kubelet as the source of events.
const KUBELET_NAME: &str = "kubelet";
/// The share of the file system that each of the other pods uses, in per mille: enough to be a candidate.
const OTHER_USES: u64 = 20;

pub fn disk(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, pod, name, uid, history } = Scene::begin(stage, ENFORCING)?;
    let container = container_id(&pod)?;
    let begun = monotonic_ns();
    fill(&uid, "file", LEAVES)?;
    let decided = stage.until(TIME_LIMIT, |_| !agent.events("eviction").is_empty());
    stage.check(decided, || format!("no eviction: {}", agent.tail(10).join(" / ")));
    let restarts = ends_as_evicted(stage, &cluster, &name, &uid)?;
    stage.check_equal("restarts of the evicted pod's container", &restarts, &0);
    ready_pod(stage, &cluster, &uid)?;
    check_evicted_event(stage, &cluster, &name)?;
    // Only the kubelet tears down the sandbox.
    let events = events_of(&cluster, &name)?;
    let failed = events.iter().filter(|event| event["reason"] == "FailedKillPod").count();
    stage.check_equal("events FailedKillPod", &failed, &0);
    kubelet_has_seen_the_end(stage, &cluster, &name)?;
    let recovered =
        stage.until(TIME_LIMIT, |_| statvfs(KUBELET).is_ok_and(|all| all.f_bavail * 1000 > all.f_blocks * 200));
    stage.check(recovered, || "the pod's data is still on the disk".to_owned());
    // The kubelet alone would keep the container until the pod is deleted.
    let is_removed = || cri::containers().is_ok_and(|all| all.iter().all(|other| other.id != container));
    let removed = stage.until(TIME_LIMIT, |_| is_removed());
    stage.check(removed, || "the evicted pod's container is still on the disk".to_owned());
    // The kubelet would report a container that is removed too early some seconds later.
    stage.pause(LASTS);
    kubelet_has_seen_the_end(stage, &cluster, &name)?;
    is_evicted_once(stage, &cluster, &agent)?;
    record_steps(
        stage,
        "the pod began to fill the disk",
        (begun, None),
        "MonitorDiskPressure",
        Victim::hog(&name, &uid),
    )?;
    print_since(stage, begun, &history)?;
    tidy(stage, &cluster)
}

/// Checks that the kubelet has seen the container's end, and has not started it again.
fn kubelet_has_seen_the_end(stage: &mut Stage<'_>, cluster: &Cluster, name: &str) -> Result<()> {
    let last = cluster.admin.pod(name)?;
    let container = &last["status"]["containerStatuses"][0];
    let reason = container["state"]["terminated"]["reason"].as_str();
    stage.check(reason.is_some_and(|it| it != "ContainerStatusUnknown"), || {
        format!("the kubelet did not see the container's end: {container}")
    });
    stage.check_equal("restarts of the evicted pod's container", &container["restartCount"], &Value::from(0));
    Ok(())
}

/// A pod crosses the thresholds of the agent and of the kubelet at once. The agent leaves the eviction to the kubelet: until the space is free,
/// either would evict a second pod.
pub fn disk_below_both(stage: &mut Stage<'_>) -> Result<()> {
    let Scene { cluster, agent, name, uid, history, .. } = Scene::begin(stage, ENFORCING)?;
    let others = start_many(stage, &cluster, OTHERS, OTHER_PODS)?;
    for pod in &others {
        allocate(&volume_file(&text(&pod["metadata"]["uid"]), "file"), share(OTHER_USES)?)?;
    }
    fill(&uid, "first", LEAVES_AT_FIRST)?;
    // The kubelet measures volumes every minute, and would choose a victim without that measurement.
    let (mut summary, least) = (Ok(Value::Null), share(OTHER_USES * 2)?);
    let measured = stage.until(TIME_LIMIT, |stage| {
        stage.pause(BETWEEN_LOOKS);
        summary = by_kubelet(&cluster, &uid);
        summary.as_ref().is_ok_and(|pod| used(&pod["ephemeral-storage"]) > least)
    });
    stage.check(measured, || format!("the kubelet has not measured the pod: {summary:?}"));
    let expected_events = [
        (NODE, NAME, "MonitorHasDiskPressure", 1),
        (NODE, KUBELET_NAME, "NodeHasDiskPressure", 1),
        (&name, NAME, "Evicted", 0),
        (&name, KUBELET_NAME, "Evicted", 1),
    ];
    // Scenarios before this one have events of the node, too.
    let before = expected_events.iter().map(|&(about, by, reason, _)| event_count(&cluster, about, by, reason));
    let before = before.collect::<Result<Vec<u64>>>()?;
    let begun = monotonic_ns();
    fill(&uid, "second", LEAVES_BELOW_BOTH)?;
    ends_as_evicted(stage, &cluster, &name, &uid)?;
    ready_pod(stage, &cluster, &uid)?;
    print_since(stage, begun, &history)?;
    for ((about, by, reason, expected), before) in expected_events.into_iter().zip(before) {
        let count = event_count(&cluster, about, by, reason)? - before;
        stage.check_equal(&format!("events {reason} of {about} from {by}"), &count, &expected);
    }
    stage.check_equal("evictions by the agent", &agent.events("eviction").len(), &0);
    let is_left = !agent.events("left_to_kubelet").is_empty();
    stage.check(is_left, || "the agent has not recorded that it leaves the eviction to the kubelet".to_owned());
    let dead: Vec<String> = dead_pods(&cluster)?.iter().map(|pod| text(&pod["metadata"]["name"])).collect();
    stage.check_equal("pods that are Failed and Evicted", &dead, &vec![name.clone()]);
    let left = cluster.pods_of("default", &format!("app={OTHERS}"))?;
    for pod in &others {
        let uid = &pod["metadata"]["uid"];
        let runs_on = left.iter().any(|now| now["metadata"]["uid"] == *uid && is_ready(now));
        stage.check(runs_on, || format!("{} does not run any more", pod["metadata"]["name"]));
    }
    tidy(stage, &cluster)
}

/// Allocates a file in the pod's volume, so that this share of the file system is left.
fn fill(uid: &str, name: &str, per_mille: u64) -> Result<()> {
    let all = statvfs(KUBELET).context("statvfs of the kubelet's directory")?;
    allocate(&volume_file(uid, name), (all.f_bavail * all.f_frsize).saturating_sub(share(per_mille)?))
}

/// Returns a share of the file system in bytes.
fn share(per_mille: u64) -> Result<u64> {
    let all = statvfs(KUBELET).context("statvfs of the kubelet's directory")?;
    Ok(all.f_blocks * per_mille / 1000 * all.f_frsize)
}

fn allocate(path: &str, bytes: u64) -> Result<()> {
    let file = File::create(path).with_context(|| format!("create {path}"))?;
    fallocate(file, FallocateFlags::empty(), 0, bytes).with_context(|| format!("allocate {bytes} bytes for {path}"))
}
