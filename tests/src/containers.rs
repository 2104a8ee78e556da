//! A node with containerd, and pods that are made through CRI as the kubelet makes them. No kubelet runs.

mod call;
pub mod cri;
pub mod daemon;
pub mod manifests;
mod pod;
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
use crate::init::ARCHIVES;
use crate::stage::Stage;
use cri::Image;

pub use pod::NodePod;
pub use storage::Storage;

/// The time limit of a step of containerd.
const PATIENCE: Duration = Duration::from_secs(60);
/// The image of sandboxes, and the image of pods.
const IN_USE: [&str; 2] = ["pause", "busybox"];
/// containerd's configuration. runc lets systemd manage cgroups, as by the kubelet's default. The disabled plugins do not apply here.
const CONFIG: &str = "\
version = 2
disabled_plugins = [\"io.containerd.snapshotter.v1.aufs\", \"io.containerd.snapshotter.v1.btrfs\",
    \"io.containerd.snapshotter.v1.devmapper\", \"io.containerd.snapshotter.v1.zfs\", \"io.containerd.internal.v1.opt\"]
[plugins.\"io.containerd.grpc.v1.cri\"]
  sandbox_image = \"localhost/pause:1\"
  [plugins.\"io.containerd.grpc.v1.cri\".cni]
    bin_dir = \"/usr/lib/cni\"
  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
    runtime_type = \"io.containerd.runc.v2\"
    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]
      SystemdCgroup = true
";

/// Returns the name under which CRI lists an imported archive.
pub fn image_name(archive: &str) -> String {
    format!("localhost/{archive}:1")
}

/// A running containerd. Dropping it removes every pod, and every image that no pod uses.
#[derive(Debug)]
pub struct Node {
    scenario: &'static str,
}

impl Node {
    /// Starts containerd. The disks are formatted again only if the last scenario used another layout.
    pub fn start(stage: &Stage<'_>, storage: Storage) -> Result<Self> {
        let boot = stage.boot;
        if boot.storage.get() != Some(storage) {
            systemctl(&["stop", "containerd.service"])?;
            boot.storage.set(None);
            storage.arrange()?;
            fs::create_dir_all("/etc/containerd").context("create /etc/containerd")?;
            fs::write("/etc/containerd/config.toml", CONFIG).context("write /etc/containerd/config.toml")?;
            boot.storage.set(Some(storage));
        }
        let node = Self { scenario: stage.name };
        node.start_runtime()?;
        for archive in IN_USE {
            node.import(archive)?;
        }
        Ok(node)
    }

    pub fn start_runtime(&self) -> Result<()> {
        systemctl(&["start", "containerd.service"])?;
        wait_for("containerd's answer", PATIENCE, || Ok(cri::version().is_ok()))
    }

    /// Stops containerd. The containers continue to run.
    pub fn stop_runtime(&self) -> Result<()> {
        systemctl(&["stop", "containerd.service"])
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
        run("ctr", &["-n", "k8s.io", "images", "import", &format!("{ARCHIVES}/{archive}.tar")])?;
        // CRI learns of the new image by an event, some time after the import.
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
        // containerd frees layers when it collects garbage. The next scenario measures free space, so the collection runs now.
        for words in [&["create", "--id", "tidy"][..], &["delete", "--sync", "tidy"]] {
            run("ctr", &[&["-n", "k8s.io", "leases"][..], words].concat())?;
        }
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
