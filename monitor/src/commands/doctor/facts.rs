//! What was found on this machine. Facts only; what they mean is in [`super::findings`].

use std::path::PathBuf;

use serde::Serialize;

/// Everything that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// `observe` or `enforce`, as configured.
    pub mode: &'static str,
    /// The kernel.
    pub kernel: Kernel,
    /// Where memory is accounted; none when nowhere.
    pub cgroup: Option<Cgroup>,
    /// The programs for the kernel.
    pub probes: Probes,
    /// Who would tell of OOM kills: `ebpf`, `kmsg` or `polling`.
    pub oom_kills_told_by: &'static str,
    /// Whether the kernel tells of pressure stalls.
    pub pressure_stall_information: bool,
    /// Whether the kernel's log can be read.
    pub kernel_log: bool,
    /// Swap that is switched on.
    pub swap_bytes: u64,
    /// What root may do here, as far as the agent needs it.
    pub capabilities: Vec<Capability>,
    /// Namespaces in which this process is not with the machine's init.
    pub private_namespaces: Vec<&'static str>,
    /// The filesystems by their role.
    pub filesystems: Vec<Filesystem>,
    /// How the roles share them: `single`, `dedicatedImageFs` or `splitImageFs`.
    pub filesystem_layout: &'static str,
    /// Whether a kubelet keeps its files here.
    pub kubelet: bool,
    /// Container runtimes that have a socket here.
    pub runtimes: Vec<Runtime>,
    /// The process of an agent that is at work.
    pub other_instance: Option<i32>,
    /// A configuration that was not given, though it is where the agent's usually is: the defaults were examined.
    #[serde(skip)]
    pub unread_configuration: Option<PathBuf>,
    /// Limits of local storage are to evict, and nobody tells them.
    #[serde(skip)]
    pub limits_unknown: bool,
    /// What went wrong when it was tried, each in the words of the agent.
    #[serde(skip)]
    pub troubles: Vec<Trouble>,
}

/// The kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// What it has of what the agent can use.
    pub features: Vec<Feature>,
}

/// Something that not every kernel has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// Whether this kernel has it.
    pub present: bool,
    /// The first version of Linux that can have it.
    pub since: &'static str,
    /// What the agent does without it.
    pub otherwise: &'static str,
}

/// Where memory is accounted, and by what a workload is ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cgroup {
    /// `v1` or `v2`.
    pub version: String,
    /// Its mount point.
    pub memory: PathBuf,
    /// v2 is mounted beside v1, without the memory controller.
    pub hybrid: bool,
    /// Controllers there are.
    pub controllers: Vec<String>,
    /// Whether a whole cgroup can be killed at once.
    pub kill: bool,
    /// Whether a cgroup can be held still while it is killed one by one.
    pub freezer: bool,
}

/// The programs for the kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    /// Those that would run.
    pub would_attach: Vec<String>,
    /// Those that would not.
    pub missing: Vec<MissingProbe>,
    /// Where ids of cgroups would come from.
    pub cgroup_ids: &'static str,
}

/// A program that would not run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingProbe {
    /// `category:event`.
    pub name: String,
    /// What is not known without it.
    pub purpose: &'static str,
    /// Why, and what to do.
    pub reason: String,
}

/// A capability of Linux.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Capability {
    /// `CAP_…`.
    pub name: &'static str,
    /// Whether this process has it, or one that includes it.
    pub present: bool,
    /// What it is needed for.
    pub purpose: &'static str,
}

/// A filesystem in its role.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// `nodefs`, `imagefs` or `containerfs`.
    pub role: &'static str,
    /// By which it was found.
    pub path: PathBuf,
    /// `major:minor`.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Its type.
    pub kind: String,
    /// Bytes left for others than root.
    pub available_bytes: u64,
    /// Bytes in all.
    pub capacity_bytes: u64,
    /// Inodes left and in all; none where they are made without limit.
    pub inodes: Option<InodesLeft>,
    /// Whether it counts what belongs to projects, so that usage is read and not walked; none where it never does (only ext4 and xfs do), or
    /// that cannot be told.
    pub project_quotas: Option<bool>,
}

/// Inodes of a filesystem.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct InodesLeft {
    /// Not in use.
    pub free: u64,
    /// In all.
    pub total: u64,
}

/// A container runtime.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Its name: its own, or whose socket it is where nobody answers.
    pub name: String,
    /// Its version, as it says.
    pub version: Option<String>,
    /// The version of the Container Runtime Interface that it speaks, as it says.
    pub api_version: Option<String>,
    /// Its socket.
    pub socket: PathBuf,
    /// Why nobody answers there, if so.
    pub trouble: Option<String>,
}

/// What went wrong when it was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Trouble {
    /// What it is about, in a word or two.
    pub about: String,
    /// The sentence of the agent, which says what to do.
    pub sentence: String,
    /// Whether the agent would see, or do, the wrong thing or nothing at all.
    pub is_unsafe: bool,
}

impl Trouble {
    /// Something that is done without.
    pub fn degraded(about: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { about: about.into(), sentence: sentence.into(), is_unsafe: false }
    }

    /// Something that the agent cannot do without.
    pub fn fatal(about: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { is_unsafe: true, ..Self::degraded(about, sentence) }
    }
}
