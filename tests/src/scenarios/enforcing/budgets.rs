//! A budget for each kind of eviction: none refuses because of another.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use serde_json::json;

use super::super::cache::mounted;
use super::{Crowd, LIMIT, config, note_evictions};
use crate::cgroups::{Pod, PodSpec};
use crate::config::AgentConfig;
use crate::containers::storage::KUBELET;
use crate::init::EXT4;
use crate::stage::{Stage, Worker};

/// The evictions that one minute allows by default.
const PODS: u32 = 6;
const FILE: &str = "/tmp/limits.json";
/// The agent measures small volumes within seconds.
const MEASURED: Duration = Duration::from_secs(60);

/// The kubelet's directory on a disk. Dropping it unmounts it.
#[derive(Debug)]
struct KubeletDisk;

impl KubeletDisk {
    fn mount() -> Result<Self> {
        let source = format!("{EXT4}/kubelet");
        for directory in [source.as_str(), KUBELET] {
            fs::create_dir_all(directory).with_context(|| format!("create {directory}"))?;
        }
        mount_bind(source.as_str(), KUBELET).with_context(|| format!("bind {source} to {KUBELET}"))?;
        Ok(Self)
    }
}

impl Drop for KubeletDisk {
    fn drop(&mut self) {
        // If this fails, the next scenario finds the kubelet's directory on a disk.
        let _ = unmount(KUBELET, UnmountFlags::DETACH);
    }
}

/// Six pods exceed the limits of their own volumes. Then memory runs short.
pub fn limits_and_memory(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let disk = KubeletDisk::mount()?;
    let mut crowd = Crowd::with_ballast(stage, 400)?;
    let pods = (1..=PODS)
        .map(|number| stage.pod(&format!("limited-{number}"), PodSpec::best_effort()))
        .collect::<Result<Vec<Pod>>>()?;
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": pods.iter().map(object).collect::<Vec<_>>()});
    fs::write(FILE, list.to_string()).with_context(|| format!("write {FILE}"))?;
    let agent = stage.agent(&AgentConfig { extra: format!("pods: {FILE}\n"), ..config() })?;
    let mut limited: Vec<(Worker, String)> = Vec::new();
    for pod in pods {
        let directory = format!("{KUBELET}/pods/{}", pod.uid);
        let volume = Path::new(&directory).join("volumes/kubernetes.io~empty-dir/cache");
        fs::create_dir_all(&volume).with_context(|| format!("create {}", volume.display()))?;
        fs::write(volume.join("file"), vec![1; 2 << 20]).with_context(|| format!("fill {}", volume.display()))?;
        let work = format!("hold --name {} --mib 1", pod.label);
        limited.push((crowd.pod(pod, stage, &work)?, directory));
    }
    let evicted = stage.until(MEASURED, |stage| {
        // The kubelet removes the volumes of a pod that has ended.
        let is_over = |(pod, directory): &(Worker, String)| {
            let ended = stage.reaper.ended(pod.pid).is_some();
            let _ = ended.then(|| fs::remove_dir_all(directory));
            ended
        };
        limited.iter().map(is_over).filter(|over| *over).count() == limited.len()
    });
    stage.check(evicted, || "not every pod above its sizeLimit was evicted".to_owned());
    let leaker = crowd.leak(stage, "leaker", PodSpec::burstable(32), (60, "--fast-until 180"))?;
    stage.until(LIMIT, |stage| stage.reaper.ended(leaker.pid).is_some());
    // The limited pods end by SIGTERM.
    stage.check_killed(&leaker);
    let dead = crowd.dead(stage)?.len();
    stage.check_equal("dead pods", &dead, &(limited.len() + 1));
    note_evictions(stage, &agent);
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    drop(disk);
    Ok(())
}

fn object(pod: &Pod) -> serde_json::Value {
    json!({
        "metadata": {"name": pod.label, "namespace": "default", "uid": pod.uid},
        "spec": {
            "containers": [{"name": "main", "resources": {}}],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1Mi"}}],
        },
        "status": {"phase": "Running"},
    })
}
