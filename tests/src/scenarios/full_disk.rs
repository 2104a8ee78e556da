//! Pods that fill a filesystem: with bytes in the writable layer, with inodes, or in a volume above its own limit.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::culprit::{bystander, config, evicted, goes_alone, live_on};
use crate::cgroups::Qos;
use crate::config::AgentConfig;
use crate::containers::storage::{CONTAINERD, KUBELET, available, free_inodes};
use crate::containers::{Node, Storage};
use crate::stage::Stage;
use crate::units::{MIB, milliseconds_between, monotonic_ns};

/// The time limit for filling the disk.
const FILLING: Duration = Duration::from_secs(120);
/// The time limit from the crossing to the end of the pod.
const EVICTION: Duration = Duration::from_secs(30);
/// The time limit until the disk's space is free again. The runtime has to remove the layer first.
const RECOVERY: Duration = Duration::from_secs(90);

pub fn on_the_shared_disk(stage: &mut Stage<'_>) -> Result<()> {
    writable_layer(stage, Storage::Shared, "nodefs.available", KUBELET)
}

pub fn on_the_images_disk(stage: &mut Stage<'_>) -> Result<()> {
    writable_layer(stage, Storage::DedicatedImages, "imagefs.available", CONTAINERD)
}

/// Writes about 20 MiB a second, 200 MiB in all. The threshold is 60 MiB below the free space.
fn writable_layer(stage: &mut Stage<'_>, storage: Storage, signal: &'static str, place: &str) -> Result<()> {
    let node = Node::start(stage, storage)?;
    let quiet = bystander(&node, stage, "quiet", Qos::BestEffort)?;
    let busy = bystander(&node, stage, "busy", Qos::Burstable)?;
    let culprit = node.pod(stage, "filler", Qos::BestEffort, &[])?;
    stage.pause(Duration::from_secs(1));
    let threshold = available(place)?.saturating_sub(60 * MIB);
    let agent = stage.agent(&config(signal, threshold))?;
    culprit.run(
        "main",
        "for i in $(seq 50); do dd if=/dev/zero of=/fill$i bs=1M count=4; sleep 0.2; done; while :; do sleep 5; done",
    )?;
    let crossed = stage.until(FILLING, |_| available(place).is_ok_and(|bytes| bytes < threshold));
    stage.check(crossed, || format!("{signal} did not pass the threshold within {FILLING:?}"));
    let crossed_ns = monotonic_ns();
    let gone = stage.until(EVICTION, |_| culprit.is_gone());
    if gone {
        stage.figure("crossing_to_gone_ms", milliseconds_between(crossed_ns, monotonic_ns()), "ms");
    }
    goes_alone(stage, &agent, &culprit, &[&quiet, &busy], Duration::ZERO)?;
    // The runtime answers after the last process has ended.
    let by_runtime =
        stage.until(EVICTION, |_| agent.events("pod_stopped").iter().any(|record| record.text("uid") == culprit.uid));
    stage.check(by_runtime, || "the runtime was not asked to stop it".to_owned());
    let back = stage.until(RECOVERY, |_| available(place).is_ok_and(|bytes| bytes >= threshold));
    stage.check(back, || format!("{signal} did not come back within {RECOVERY:?}"));
    stage.stop(&agent);
    Ok(())
}

/// Makes 100,000 tiny files on a filesystem with 98,304 inodes.
pub fn tiny_files(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let quiet = bystander(&node, stage, "quiet", Qos::BestEffort)?;
    let culprit = node.pod(stage, "hoarder", Qos::BestEffort, &[])?;
    let free = free_inodes(KUBELET)?;
    let threshold = free / 10;
    let agent = stage.agent(&config("nodefs.inodesFree", threshold))?;
    let begun = monotonic_ns();
    culprit.run(
        "main",
        // The first files are made quickly, because only the last ones matter.
        "mkdir /d; cd /d; seq 70000 | xargs touch; i=70000; while [ $i -lt 100000 ]; do : > f$i; i=$((i+1)); done; while :; do sleep 5; done",
    )?;
    let mut lowest = free;
    let crossed = stage.until(Duration::from_secs(240), |_| {
        lowest = lowest.min(free_inodes(KUBELET).unwrap_or(u64::MAX));
        lowest < threshold || culprit.is_gone()
    });
    stage.check(crossed, || format!("{lowest} inodes are still free"));
    let crossed_ns = monotonic_ns();
    stage.figure("filling", milliseconds_between(begun, crossed_ns) / 1e3, "s");
    let gone = stage.until(EVICTION, |_| {
        lowest = lowest.min(free_inodes(KUBELET).unwrap_or(u64::MAX));
        culprit.is_gone()
    });
    if gone {
        stage.figure("crossing_to_gone_ms", milliseconds_between(crossed_ns, monotonic_ns()), "ms");
    }
    let decided = agent.events("eviction").first().and_then(|record| record.number("decided_mono_ns"));
    stage.check(decided.is_some(), || "no eviction was decided".to_owned());
    if let Some(decided) = decided {
        stage.figure("crossing_to_decision_ms", milliseconds_between(crossed_ns, decided.max(crossed_ns)), "ms");
    }
    stage.figure("lowest_inodes_free", f64::from(u32::try_from(lowest)?), "inodes");
    stage.check(lowest > 0, || "the file system ran out of inodes before the agent acted".to_owned());
    goes_alone(stage, &agent, &culprit, &[&quiet], Duration::ZERO)?;
    let back = stage.until(RECOVERY, |_| free_inodes(KUBELET).is_ok_and(|inodes| inodes > 2 * threshold));
    stage.check(back, || format!("nodefs.inodesFree did not come back within {RECOVERY:?}"));
    stage.stop(&agent);
    Ok(())
}

/// Fills a volume above its sizeLimit on a node with enough free space.
pub fn volume_limit(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let free = node.pod(stage, "unlimited", Qos::BestEffort, &["cache"])?;
    let culprit = node.pod(stage, "limited", Qos::Burstable, &["cache"])?;
    let within = node.pod(stage, "within", Qos::BestEffort, &["cache"])?;
    let pods = [
        (&free.name, &free.uid, None),
        (&culprit.name, &culprit.uid, Some("16Mi")),
        (&within.name, &within.uid, Some("64Mi")),
    ];
    let items: Vec<String> = pods.iter().map(|(name, uid, limit)| pod_json(name, uid, *limit)).collect();
    let file = "/tmp/pods.json";
    let list = format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{}]}}"#, items.join(","));
    fs::write(file, list).with_context(|| format!("write {file}"))?;
    let config = config("nodefs.available", MIB);
    let agent = stage.agent(&AgentConfig { extra: format!("{}pods: {file}\n", config.extra), ..config })?;
    for (pod, mib) in [(&free, 40), (&within, 32), (&culprit, 24)] {
        pod.run("main", &format!("dd if=/dev/zero of=/cache/file bs=1M count={mib}; while :; do sleep 5; done"))?;
    }
    goes_alone(stage, &agent, &culprit, &[&free, &within], Duration::from_secs(90))?;
    live_on(stage, &[&free, &within])?;
    stage.check_equal("evicted", &evicted(&agent).len(), &1);
    stage.stop(&agent);
    Ok(())
}

fn pod_json(name: &str, uid: &str, limit: Option<&str>) -> String {
    let volume = limit.map_or_else(|| "{}".to_owned(), |limit| format!(r#"{{"sizeLimit":"{limit}"}}"#));
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{uid}"}},"spec":{{"containers":[{{"name":"main","resources":{{}}}}],"volumes":[{{"name":"cache","emptyDir":{volume}}}]}},"status":{{"phase":"Running"}}}}"#
    )
}
