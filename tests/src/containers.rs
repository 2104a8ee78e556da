//! A node with a container runtime, and pods that are made through CRI as the kubelet makes them. No kubelet runs.

mod call;
pub mod cri;
pub mod daemon;
pub mod manifests;
mod pod;
pub mod runtime;
pub mod stand_in;
pub mod storage;
pub mod translation;
pub mod volumes;
pub mod wire;

use std::fs;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cgroups::{Qos, pod_uid};
use crate::console;
use crate::stage::Stage;
use cri::Image;
use runtime::Runtime;

pub use pod::NodePod;
pub use storage::Storage;

/// The time limit of a step of the runtime.
const PATIENCE: Duration = Duration::from_secs(60);
/// The image of sandboxes, and the image of pods.
const IN_USE: [&str; 2] = ["pause", "busybox"];
/// Returns the name under which CRI lists an imported archive.
pub fn image_name(archive: &str) -> String {
    format!("localhost/{archive}:1")
}

/// A running container runtime. Dropping it removes every pod, and every image that no pod uses.
#[derive(Debug)]
pub struct Node {
    scenario: &'static str,
    runtime: Runtime,
}

impl Node {
    /// Starts the runtime. The disks are formatted again only if the last scenario used another layout.
    pub fn start(stage: &Stage<'_>, storage: Storage) -> Result<Self> {
        let boot = stage.boot;
        let runtime = Runtime::here();
        if boot.storage.get() != Some(storage) {
            runtime.configure()?;
            runtime.stop()?;
            boot.storage.set(None);
            storage.arrange(runtime)?;
            boot.storage.set(Some(storage));
        }
        let node = Self { scenario: stage.name, runtime };
        node.start_runtime()?;
        for archive in IN_USE {
            node.import(archive)?;
        }
        Ok(node)
    }

    pub fn start_runtime(&self) -> Result<()> {
        self.runtime.start()?;
        wait_for(&format!("{}'s answer", self.runtime.name()), PATIENCE, || Ok(cri::version().is_ok()))
    }

    /// Stops the runtime. The containers continue to run.
    pub fn stop_runtime(&self) -> Result<()> {
        self.runtime.stop()
    }

    /// Imports an archive, unless its image is already present.
    pub fn import(&self, archive: &str) -> Result<()> {
        self.import_as(archive, &image_name(archive)).map(drop)
    }

    /// Imports an archive whose image has another name than xtask gives its own images.
    pub fn import_as(&self, archive: &str, name: &str) -> Result<Image> {
        let find = || {
            Ok::<_, anyhow::Error>(cri::images()?.into_iter().find(|image| image.names.iter().any(|one| one == name)))
        };
        if let Some(image) = find()? {
            return Ok(image);
        }
        self.runtime.import(archive, name)?;
        // containerd's CRI learns of the new image by an event, some time after the import.
        let mut found = None;
        wait_for(&format!("image {name}"), PATIENCE, || {
            found = find()?;
            Ok(found.is_some())
        })?;
        found.with_context(|| format!("no image {name}"))
    }

    pub fn image(&self, archive: &str) -> Result<Option<Image>> {
        let name = image_name(archive);
        Ok(cri::images()?.into_iter().find(|image| image.names.contains(&name)))
    }

    /// Makes a sandbox with these emptyDir volumes, each mounted at its name.
    pub fn pod(&self, stage: &Stage<'_>, name: &str, qos: Qos, empty_dirs: &[&str]) -> Result<NodePod> {
        self.pod_of(stage, name, &pod_uid(stage.next_pod()), qos, empty_dirs)
    }

    /// Makes such a sandbox for a pod with a given UID.
    pub fn pod_of(&self, stage: &Stage<'_>, name: &str, uid: &str, qos: Qos, empty_dirs: &[&str]) -> Result<NodePod> {
        NodePod::create(stage.layout(), name, uid, qos, empty_dirs)
    }

    fn tidy(&self) -> Result<()> {
        self.start_runtime()?;
        for sandbox in cri::sandboxes()? {
            if sandbox.ready {
                cri::stop_sandbox(&sandbox.id)?;
            }
            cri::remove_sandbox(&sandbox.id)?;
        }
        // The next scenario measures free space, so the collection runs now.
        self.runtime.collect_garbage()?;
        let used: Vec<String> = IN_USE.iter().map(|archive| image_name(archive)).collect();
        for image in cri::images()? {
            if !image.names.iter().any(|name| used.contains(name)) {
                cri::remove_image(&image.id)?;
            }
        }
        for directory in [&format!("{}/pods", storage::KUBELET), storage::LOGS] {
            if fs::exists(directory).unwrap_or(false) {
                storage::empty(directory)?;
            }
        }
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Err(error) = self.tidy() {
            console::note(self.scenario, format!("tidying the node: {error:#}"));
        }
    }
}

pub fn systemctl(arguments: &[&str]) -> Result<()> {
    run("systemctl", arguments)
}

/// Runs a program; the error has its standard error.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| format!("start {program}"))?;
    if !output.status.success() {
        let story = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}: {}", arguments.join(" "), output.status, story.trim());
    }
    Ok(())
}

/// Waits until it is there.
pub fn wait_for(what: &str, limit: Duration, mut there: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !there().with_context(|| format!("wait for {what}"))? {
        if Instant::now() > deadline {
            bail!("no {what} after {limit:?}");
        }
        sleep(Duration::from_millis(100));
    }
    Ok(())
}
