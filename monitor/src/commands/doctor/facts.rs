//! The facts about this machine. [`super::findings`] decides what they mean.

use std::path::PathBuf;

use serde::Serialize;

use super::decision_facts::Decisions;
use crate::eviction::decider::Unarmed;
use crate::node::other_killers::{OtherKillerFact, SetUpFact};
use crate::units::Signal;
use crate::workloads::PatternReach;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    /// `observe` or `enforce`, as configured.
    pub mode: &'static str,
    /// The pool that this node is in, if any.
    pub pool: Option<String>,
    pub kernel: Kernel,
    /// The hierarchy that accounts memory, if any.
    pub cgroup: Option<Cgroup>,
    pub probes: Probes,
    /// The source of OOM kills: `ebpf`, `kmsg` or `polling`.
    pub oom_kills_told_by: &'static str,
    pub pressure_stall_information: bool,
    /// `/dev/kmsg` is readable.
    pub kernel_log: bool,
    pub swap_bytes: u64,
    /// The capabilities that the agent needs.
    pub capabilities: Vec<Capability>,
    #[serde(skip)]
    pub is_root: bool,
    /// Namespaces of this process that are not those of the machine's init.
    pub private_namespaces: Vec<&'static str>,
    pub filesystems: Vec<Filesystem>,
    /// How the roles share filesystems: `single`, `dedicatedImageFs` or `splitImageFs`.
    pub filesystem_layout: &'static str,
    /// A kubelet keeps its files on this machine.
    pub kubelet: bool,
    /// Container runtimes with a socket on this machine.
    pub runtimes: Vec<Runtime>,
    /// The workloads that can be candidates: `pods` or `everything`.
    pub candidates: &'static str,
    /// The workloads outside pods that the node needs, and the protection of each.
    pub needed: Vec<Needed>,
    /// What each pattern of `protected` and of `evictions.services` matches now.
    pub patterns: Vec<PatternReach>,
    /// Sockets of daemons that no visible process holds: their workloads cannot be told from others. `None` if the sockets are not known.
    #[serde(skip)]
    pub unheld_sockets: Option<Vec<String>>,
    /// The process id of a running agent.
    pub other_instance: Option<i32>,
    /// Other programs that kill workloads on this machine.
    pub other_killers: Vec<OtherKillerFact>,
    /// The division of work with the kubelet; `None` if no kubelet runs here.
    pub set_up: Option<SetUpFact>,
    /// The meaning of the thresholds on this machine.
    pub thresholds: Vec<NodeThreshold>,
    /// The thresholds whose signal nothing reports on this machine.
    pub unobserved: Vec<UnobservedThreshold>,
    /// Thresholds that cannot act at this machine's capacity, each with the reason and the fix.
    #[serde(skip)]
    pub remarks: Vec<(String, &'static str)>,
    /// The limit of all pods together; `None` if their cgroup has none.
    pub pods_limit: Option<PodsLimit>,
    /// The state that an agent of this boot has left, and from which an agent that starts now goes on.
    pub decisions: Option<Decisions>,
    /// The configuration file in its usual path, if it was not given: the defaults were examined.
    #[serde(skip)]
    pub unread_configuration: Option<PathBuf>,
    /// Evictions for limits of local storage are configured, but the limits are unknown.
    #[serde(skip)]
    pub limits_unknown: bool,
    /// The permissions at the API server that an agent which observes lacks to enforce, in a sentence with the fix.
    #[serde(skip)]
    pub lacks_to_enforce: Option<String>,
    /// Failed attempts, in the agent's sentences.
    #[serde(skip)]
    pub problems: Vec<Problem>,
}

/// A threshold whose signal was read, in the signal's unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeThreshold {
    pub threshold: String,
    #[serde(skip)]
    pub signal: Signal,
    /// `hard` or `soft`.
    pub kind: &'static str,
    /// Whether the figures are in bytes.
    #[serde(skip)]
    pub is_bytes: bool,
    pub quantity: i64,
    pub available: i64,
    pub capacity: i64,
    pub met: bool,
    /// Whether the threshold can be meant for this machine.
    pub is_plausible: bool,
    /// Whether the configuration has `evictions.actOnPresentPressure`.
    #[serde(skip)]
    pub is_waived: bool,
    /// Why it can evict nothing on this machine, if it cannot.
    pub reported_only: Option<&'static str>,
    /// The workloads that it may evict, in words.
    pub evicts: Option<String>,
    /// Why an agent that starts now would not evict for it, if it would not.
    #[serde(skip)]
    pub unarmed: Option<Unarmed>,
}

/// A threshold that cannot be met, because its signal is not observed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UnobservedThreshold {
    pub threshold: String,
    pub kind: &'static str,
    pub reason: String,
}

/// The limit of the cgroup of all pods (kubepods), in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsLimit {
    pub limit: u64,
    pub available: i64,
    /// The thresholds on what is left.
    pub guarded_by: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    pub features: Vec<Feature>,
}

/// A feature that not every kernel has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Feature {
    pub name: &'static str,
    pub present: bool,
    /// The first version of Linux with the feature.
    pub since: &'static str,
    /// The effect of its absence.
    pub otherwise: &'static str,
}

/// The hierarchy that accounts memory, and the ways to kill a workload in it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cgroup {
    /// `v1` or `v2`.
    pub version: String,
    pub memory: PathBuf,
    /// v2 is mounted beside v1, without the memory controller.
    pub hybrid: bool,
    pub controllers: Vec<String>,
    /// `cgroup.kill` is writable.
    pub kill: bool,
    /// A cgroup can be frozen while its processes are killed one by one.
    pub freezer: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Probes {
    pub would_attach: Vec<String>,
    pub missing: Vec<MissingProbe>,
    /// The source of cgroup ids.
    pub cgroup_ids: &'static str,
}

/// A program that would not attach.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingProbe {
    /// `category:event`.
    pub name: String,
    /// The events that the program observes.
    pub purpose: &'static str,
    /// The reason, and the fix.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Capability {
    /// `CAP_…`.
    pub name: &'static str,
    /// This process has the capability, or one that includes it.
    pub present: bool,
    pub purpose: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filesystem {
    /// `nodefs`, `imagefs` or `containerfs`.
    pub role: &'static str,
    /// The path by which the filesystem was found.
    pub path: PathBuf,
    /// `major:minor`.
    pub device: String,
    pub mount_point: PathBuf,
    pub kind: String,
    /// Available to processes other than root's.
    pub available_bytes: u64,
    pub capacity_bytes: u64,
    /// `None` if the filesystem creates inodes without limit.
    pub inodes: Option<InodesLeft>,
    /// Project quotas are counted, so that usage needs no walk; `None` if unknown or not supported (only ext4 and xfs support them).
    pub project_quotas: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct InodesLeft {
    pub free: u64,
    pub total: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// The name in the runtime's answer; without an answer, the usual owner of the socket.
    pub name: String,
    pub version: Option<String>,
    /// The version of the Container Runtime Interface.
    pub api_version: Option<String>,
    pub socket: PathBuf,
    /// Why the runtime does not answer.
    pub trouble: Option<String>,
}

/// A workload outside pods that is protected, and how it was recognized.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Needed {
    /// The path of the cgroup.
    pub workload: String,
    pub protection: &'static str,
    /// `listens on /run/containerd/containerd.sock`.
    pub by: String,
    /// The process that was recognized.
    pub process: Option<i32>,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The subject, in a word or two.
    pub about: String,
    /// The agent's sentence, which includes the fix.
    pub sentence: String,
    /// The agent would evict the wrong workload, or none.
    pub is_unsafe: bool,
}

impl Problem {
    pub fn degraded(about: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { about: about.into(), sentence: sentence.into(), is_unsafe: false }
    }

    pub fn fatal(about: impl Into<String>, sentence: impl Into<String>) -> Self {
        Self { is_unsafe: true, ..Self::degraded(about, sentence) }
    }
}
