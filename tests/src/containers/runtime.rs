//! The container runtimes that a guest may have. The kernel's command line selects one.

use std::fs;

use anyhow::{Context, Result};

use super::{run, storage, systemctl};
use crate::console;
use crate::init::{self, ARCHIVES};

/// A container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Containerd,
    Crio,
}

/// containerd's configuration. runc lets systemd manage cgroups, as by the kubelet's default. The disabled plugins do not apply here.
const CONTAINERD: &str = "\
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

/// CRI-O's configuration. Each container's conmon is in the pod's cgroup, as on OpenShift. Ports of the host would need iptables.
/// Debian 12's crun (1.8.1) refuses the version of the specification that CRI-O 1.37 writes, and its runc does not.
const CRIO: &str = "\
[crio]
storage_driver = \"overlay\"
[crio.runtime]
cgroup_manager = \"systemd\"
pinns_path = \"/opt/kubernetes/pinns\"
disable_hostport_mapping = true
default_runtime = \"runc\"
[crio.runtime.runtimes.runc]
runtime_path = \"/usr/bin/runc\"
monitor_path = \"/usr/bin/conmon\"
monitor_cgroup = \"pod\"
monitor_env = [\"PATH=/usr/sbin:/usr/bin:/sbin:/bin\"]
[crio.image]
pause_image = \"localhost/pause:1\"
pause_command = \"\"
[crio.network]
plugin_dirs = [\"/usr/lib/cni\"]
";

/// The unit of CRI-O, which no package of Debian has.
const CRIO_UNIT: &str = "\
[Service]
Type=notify
ExecStart=/opt/kubernetes/crio
OOMScoreAdjust=-999
Delegate=yes
KillMode=process
TasksMax=infinity
StandardOutput=append:/var/log/crio.log
StandardError=append:/var/log/crio.log
";

const CRIO_LOG: &str = "/var/log/crio.log";

impl Runtime {
    /// Returns the runtime of this guest.
    pub fn here() -> Self {
        if init::option("npm.runtime").is_some_and(|name| name == "crio") { Self::Crio } else { Self::Containerd }
    }

    pub const fn socket(self) -> &'static str {
        match self {
            Self::Containerd => "/run/containerd/containerd.sock",
            Self::Crio => "/run/crio/crio.sock",
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "CRI-O",
        }
    }

    /// Returns the name of a container's cgroup below its pod's.
    pub fn scope(self, container: &str) -> String {
        let prefix = match self {
            Self::Containerd => "cri-containerd",
            Self::Crio => "crio",
        };
        format!("{prefix}-{container}.scope")
    }

    /// Returns the directory of images and writable layers.
    pub const fn store(self) -> &'static str {
        match self {
            Self::Containerd => storage::CONTAINERD,
            Self::Crio => "/var/lib/containers",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Containerd => "containerd.service",
            Self::Crio => "crio.service",
        }
    }

    /// Writes the runtime's configuration. It applies when the runtime starts.
    pub fn configure(self) -> Result<()> {
        let files: &[(&str, &str)] = match self {
            Self::Containerd => &[("/etc/containerd/config.toml", CONTAINERD)],
            Self::Crio => &[("/etc/crio/crio.conf", CRIO), ("/etc/systemd/system/crio.service", CRIO_UNIT)],
        };
        for (path, text) in files {
            let (directory, _) = path.rsplit_once('/').context("an absolute path")?;
            fs::create_dir_all(directory).with_context(|| format!("create {directory}"))?;
            fs::write(path, text).with_context(|| format!("write {path}"))?;
        }
        systemctl(&["daemon-reload"])
    }

    pub fn start(self) -> Result<()> {
        systemctl(&["start", self.unit()]).inspect_err(|_| {
            let log = fs::read_to_string(CRIO_LOG).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(10)..] {
                console::note(self.name(), line.chars().take(300).collect::<String>());
            }
        })
    }

    pub fn stop(self) -> Result<()> {
        systemctl(&["stop", self.unit()])
    }

    /// Imports the archive of an image with this name.
    pub fn import(self, archive: &str, name: &str) -> Result<()> {
        let file = format!("{ARCHIVES}/{archive}.tar");
        match self {
            Self::Containerd => run("ctr", &["-n", "k8s.io", "images", "import", &file]),
            Self::Crio => {
                let (from, to) = (format!("oci-archive:{file}"), format!("containers-storage:{name}"));
                run("skopeo", &["--insecure-policy", "copy", "--quiet", &from, &to])
            }
        }
    }

    /// Frees the layers of removed containers and images.
    pub fn collect_garbage(self) -> Result<()> {
        if self == Self::Crio {
            // CRI-O frees them at once.
            return Ok(());
        }
        for words in [&["create", "--id", "tidy"][..], &["delete", "--sync", "tidy"]] {
            run("ctr", &[&["-n", "k8s.io", "leases"][..], words].concat())?;
        }
        Ok(())
    }
}
