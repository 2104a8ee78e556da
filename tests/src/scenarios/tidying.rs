//! The agent collects garbage before it evicts.

use std::time::Duration;

use anyhow::{Context, Result};

use super::culprit::{bystander, config, evicted, live_on};
use crate::cgroups::Qos;
use crate::config::AgentConfig;
use crate::containers::storage::{CONTAINERD, KUBELET, available};
use crate::containers::{Node, Storage, cri};
use crate::stage::Stage;
use crate::units::{MIB, mib};

const JUNK: [&str; 3] = ["junk-1", "junk-2", "junk-3"];
/// The minimum space of one image. It is 32 MiB unpacked.
const ONE_IMAGE: u64 = 30 * MIB;
const LIMIT: Duration = Duration::from_secs(60);

/// Unused images fill their filesystem. The agent removes as many as needed, and evicts no pod.
pub fn unused_images(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::DedicatedImages)?;
    let pods = [bystander(&node, stage, "quiet", Qos::BestEffort)?, bystander(&node, stage, "busy", Qos::Burstable)?];
    let before = available(CONTAINERD)?;
    for archive in JUNK {
        node.import(archive)?;
    }
    let full = available(CONTAINERD)?;
    let taken = mib(before.saturating_sub(full));
    stage.check(before >= full + 3 * ONE_IMAGE, || format!("three images took {taken:.1} MiB only"));
    // One image is too small to reach the threshold; two suffice.
    let threshold = full + ONE_IMAGE + 10 * MIB;
    only_lists(stage, &node, threshold)?;
    let agent = stage.agent(&config("imagefs.available", threshold))?;
    let enough = stage.until(LIMIT, |_| available(CONTAINERD).is_ok_and(|bytes| bytes >= threshold));
    let now = mib(available(CONTAINERD)?);
    stage.check(enough, || format!("{now:.1} MiB available after {LIMIT:?}, the threshold is {:.1}", mib(threshold)));
    stage.pause(Duration::from_secs(5));
    let left = JUNK.iter().filter_map(|archive| node.image(archive).transpose()).collect::<Result<Vec<_>>>()?;
    stage.check_equal("unused images left, for two were enough", &left.len(), &1);
    for archive in ["busybox", "pause"] {
        let there = node.image(archive)?.is_some();
        stage.check(there, || format!("image {archive} is in use and gone"));
    }
    live_on(stage, &[&pods[0], &pods[1]])?;
    stage.check_equal("evicted", &evicted(&agent), &Vec::new());
    stage.figure("available_before", mib(full), "MiB");
    stage.figure("available_after", mib(available(CONTAINERD)?), "MiB");
    stage.stop(&agent);
    Ok(())
}

/// Observe mode removes nothing; it reports what it would remove and how much that frees.
fn only_lists(stage: &mut Stage<'_>, node: &Node, threshold: u64) -> Result<()> {
    let config = config("imagefs.available", threshold);
    let agent = stage.agent(&AgentConfig { enforce: false, ..config })?;
    let listed = stage.until(LIMIT, |_| !agent.events("garbage_collected").is_empty());
    stage.check(listed, || format!("nothing was listed within {LIMIT:?}"));
    for record in agent.events("garbage_collected") {
        stage.check_equal("outcome", &record.text("outcome"), &"listed");
        let (images, frees) = (record.number("images").unwrap_or(0), record.number("frees_bytes").unwrap_or(0));
        stage.check(images >= 3, || format!("{images} images listed"));
        // containerd reports an image's size as downloaded, and these images compress to almost nothing.
        stage.check(frees > 0, || "the record says that nothing would be freed".to_owned());
    }
    for archive in JUNK {
        let there = node.image(archive)?.is_some();
        stage.check(there, || format!("observe mode removed {archive}"));
    }
    stage.stop(&agent);
    Ok(())
}

/// The agent removes a dead container's layer and log before images and pods. The scenario starts another attempt first, because the
/// kubelet still reads the last attempt.
pub fn dead_containers(stage: &mut Stage<'_>) -> Result<()> {
    let node = Node::start(stage, Storage::Shared)?;
    let pod = bystander(&node, stage, "restarting", Qos::BestEffort)?;
    node.import(JUNK[0])?;
    let before = available(KUBELET)?;
    // The container leaves 8 MiB of log and a layer of 40 MiB.
    let line = "x".repeat(1000);
    let script =
        format!("i=0; while [ $i -lt 8192 ]; do echo {line}; i=$((i+1)); done; dd if=/dev/zero of=/big bs=1M count=40");
    let id = pod.run("once", &script)?;
    let dead = |id: &str| -> Result<Option<bool>> {
        Ok(cri::containers()?.into_iter().find(|container| container.id == id).map(|container| !container.running))
    };
    let ended = stage.until(LIMIT, |_| dead(&id).is_ok_and(|dead| dead == Some(true)));
    stage.check(ended, || format!("the container did not end within {LIMIT:?}"));
    pod.run("once", "while :; do sleep 5; done")?;
    let log = pod.log("once");
    let logged = log.metadata().with_context(|| format!("stat {}", log.display()))?.len();
    stage.figure("log", mib(logged), "MiB");
    let full = available(KUBELET)?;
    let threshold = full + 20 * MIB;
    stage.check(before > threshold, || {
        format!("the dead container took {:.1} MiB only", mib(before.saturating_sub(full)))
    });
    let agent = stage.agent(&config("nodefs.available", threshold))?;
    let enough = stage.until(LIMIT, |_| available(KUBELET).is_ok_and(|bytes| bytes >= threshold));
    let now = mib(available(KUBELET)?);
    stage.check(enough, || format!("{now:.1} MiB available after {LIMIT:?}, the threshold is {:.1}", mib(threshold)));
    stage.pause(Duration::from_secs(5));
    let left = dead(&id)?;
    stage.check_equal("the dead container", &left, &None);
    stage.check(!log.exists(), || format!("{} outlived its container", log.display()));
    let image = node.image(JUNK[0])?.is_some();
    stage.check(image, || "an image went though the dead container was enough".to_owned());
    live_on(stage, &[&pod])?;
    stage.check_equal("evicted", &evicted(&agent), &Vec::new());
    stage.stop(&agent);
    Ok(())
}
