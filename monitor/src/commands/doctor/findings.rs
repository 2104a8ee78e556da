//! Decides from the facts what will not work, how severe that is, and how to fix it. Pure.

use std::collections::HashSet;
use std::path::Path;

use serde::Serialize;

use crate::config::Candidates;
use crate::workloads::{PatternReach, Protection};

use super::super::run::{SWAP_ON, namespaces_text};
use super::facts::{Facts, Filesystem, NodeThreshold, PodsLimit, Problem};
use crate::eviction::decider::Unarmed;
use crate::node::other_killers::{Meaning, OtherKillerFact};
use crate::units::{Bytes, privileges};

const PODS_LIMIT: &str = "limit of all pods";
/// xfs accepts the option at a mount, not at a remount (`man 5 xfs`).
const XFS_PROJECTS: &str = "mount it with prjquota (of the root filesystem: rootflags=prjquota for the kernel)";
/// tune2fs cannot set the feature of a mounted filesystem (`man 8 tune2fs`).
const EXT4_PROJECTS: &str = "unmount it (the root filesystem: in a rescue system), tune2fs -O project,quota -Q prjquota DEVICE, mount it with prjquota";
/// The program that assigns projects to directories.
const KUBELET_PROJECTS: &str =
    "and let the kubelet give volumes their projects (feature gate LocalStorageCapacityIsolationFSQuotaMonitoring)";
const RUNTIME_PROJECTS: &str =
    "if the runtime is CRI-O on xfs, which then assigns projects to writable layers; containerd does not";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// With mode enforce the agent would evict the wrong workload, or none.
    Unsafe,
    /// The agent lacks a capability.
    Degraded,
    /// Worth knowing.
    Note,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// The subject, in a word or two.
    pub about: String,
    /// The agent's sentence.
    pub sentence: String,
    /// The fix, if the sentence lacks it.
    pub mend: Option<String>,
}

impl Finding {
    pub fn is_unsafe(&self) -> bool {
        self.severity == Severity::Unsafe
    }
}

/// Returns the findings, worst first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |severity, about: &str, sentence: String, mend: Option<&str>| {
        found.push(Finding { severity, about: about.to_owned(), sentence, mend: mend.map(str::to_owned) });
    };
    if let Some(text) = namespaces_text(&facts.private_namespaces) {
        add(Severity::Unsafe, "namespaces", text, None);
    }
    for Problem { about, sentence, is_unsafe } in &facts.problems {
        add(if *is_unsafe { Severity::Unsafe } else { Severity::Degraded }, about, sentence.clone(), None);
    }
    thresholds(facts, &mut add);
    for (sentence, mend) in &facts.remarks {
        add(Severity::Note, "thresholds", sentence.clone(), Some(mend));
    }
    pods_limit(facts, &mut add);
    killing(facts, &mut add);
    candidates(facts, &mut add);
    patterns(facts, &mut add);
    disks(facts, &mut add);
    if facts.swap_bytes > 0 {
        let mend = "switch swap off (swapoff -a, and its line in /etc/fstab), or add a pressureConditions entry that detects the stalls";
        add(Severity::Degraded, "swap", SWAP_ON.to_owned(), Some(mend));
    }
    if let Some(unread) = facts.unread_configuration.as_deref().map(Path::display) {
        let sentence = format!("the defaults were examined: {unread} exists, but was not given");
        add(Severity::Note, "configuration", sentence, Some(&format!("add --config {unread}")));
    }
    for OtherKillerFact { meaning: Meaning { sentence, mend, collides }, .. } in &facts.other_killers {
        // In observe mode nothing collides yet.
        let severity = if *collides && facts.mode == "enforce" { Severity::Degraded } else { Severity::Note };
        add(severity, "other killers", sentence.clone(), Some(mend));
    }
    for feature in facts.kernel.features.iter().filter(|feature| !feature.present) {
        let sentence = format!("this kernel has no {} (Linux {}): {}", feature.name, feature.since, feature.otherwise);
        add(Severity::Note, "kernel", sentence, Some("boot a newer kernel if you need it"));
    }
    // Probes with a finding of their own, or that are off as a whole, are not listed.
    let has_finding = |name: &str| {
        facts.probes.would_attach.is_empty() || facts.problems.iter().any(|problem| problem.sentence.contains(name))
    };
    for probe in facts.probes.missing.iter().filter(|probe| !has_finding(&probe.name)) {
        let sentence = format!("{}: {} ({})", probe.name, probe.reason, probe.purpose);
        add(Severity::Note, "probes", sentence, None);
    }
    if let Some((file, reason)) = facts.decisions.as_ref().and_then(|it| Some((it.file.display(), it.unused.as_ref()?)))
    {
        let sentence = format!(
            "decision state: {file} is not used: {reason}; an agent that starts now knows neither what is armed nor what was evicted"
        );
        add(Severity::Note, "decision state", sentence, None);
    }
    if let Some(sentence) = &facts.lacks_to_enforce {
        add(Severity::Note, "API server", sentence.clone(), None);
    }
    if let Some(pid) = facts.other_instance {
        let sentence = format!("another agent runs already (process {pid}); a second one would refuse to start");
        add(Severity::Note, "other agent", sentence, None);
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

/// Adds findings about thresholds that are met already, or that cannot be meant for this machine.
fn thresholds(facts: &Facts, add: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    for it in &facts.thresholds {
        let NodeThreshold { threshold, kind, quantity, available, capacity, is_waived, .. } = it;
        let Some(unarmed) = it.unarmed else { continue };
        let figures = format!("it stands for {quantity}, and {available} of {capacity} are available");
        let (reason, mend) = match (unarmed, is_waived) {
            (Unarmed::Implausible { .. }, false) => (
                "cannot be meant for this node: it is above half of the capacity; the agent evicts nothing for it",
                "correct the value",
            ),
            (Unarmed::Present { .. }, false) => (
                "is met now: an agent that starts now evicts nothing for it until there is a sign that the shortage is real",
                "correct the value, or wait until the machine has recovered",
            ),
            (_, true) if !it.met => continue,
            (_, true) => (
                "would evict at once, one workload after another, by evictions.actOnPresentPressure",
                "correct the value, or set evictions.actOnPresentPressure: false",
            ),
        };
        add(Severity::Unsafe, "thresholds", format!("{kind} {threshold} {reason} ({figures})"), Some(mend));
    }
}

/// Adds the finding about the limit of all pods together: its OOM killer ends pods while the node has memory left.
fn pods_limit(facts: &Facts, add: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    let Some(PodsLimit { limit, available, guarded_by }) = &facts.pods_limit else { return };
    let left = Bytes(u64::try_from(*available).unwrap_or(0));
    let what = format!(
        "all pods together (kubepods) have a limit of {}, of which {left} are left: at the limit the kernel's OOM killer ends processes of pods, \
         whatever the node has left",
        Bytes(*limit)
    );
    if guarded_by.is_empty() {
        let mend = "leave enforceNodeAllocatable out, or write evictionHard: {allocatableMemory.available: 100Mi}";
        add(Severity::Degraded, PODS_LIMIT, format!("{what}; no threshold evicts before that"), Some(mend));
    } else {
        add(Severity::Note, PODS_LIMIT, format!("{what}; before that evicts {}", guarded_by.join(", ")), None);
    }
}

/// Adds findings about killing workloads.
fn killing(facts: &Facts, add: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    let Some(cgroup) = &facts.cgroup else { return };
    let has = |name: &str| facts.capabilities.iter().any(|it| it.name == name && it.present);
    if !cgroup.kill && facts.kernel.features.iter().any(|feature| feature.name == "pidfd" && !feature.present) {
        let sentence = "no pidfd (Linux 5.3): the agent cannot signal a process without the risk of a reused pid, so it evicts nothing";
        add(Severity::Unsafe, "killing workloads", sentence.to_owned(), Some("boot a newer kernel"));
    }
    if !has("CAP_KILL") {
        let mend = privileges::grant("CAP_KILL", facts.is_root);
        let (severity, sentence) = if cgroup.kill {
            (Severity::Degraded, "no CAP_KILL: the agent can kill whole cgroups, but cannot send SIGTERM before")
        } else {
            (Severity::Unsafe, "no CAP_KILL: the agent cannot signal any workload, so it cannot evict")
        };
        add(severity, "killing workloads", sentence.to_owned(), Some(&mend));
    }
    if !cgroup.kill && !cgroup.freezer {
        let sentence = "neither cgroup.kill nor a freezer: the agent kills processes one by one while they fork, and a fork bomb may outrun it";
        let mend = match cgroup.version.as_str() {
            "v1" => {
                "mount the v1 freezer below cgroupRoot, or boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
            }
            _ => "mount the cgroup filesystem writable for the agent, on Linux 5.14 or later",
        };
        add(Severity::Degraded, "killing workloads", sentence.to_owned(), Some(mend));
    }
}

/// Adds findings about what the node needs and might be evicted. Where only pods are candidates, nothing outside pods might.
fn candidates(facts: &Facts, add: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    if facts.candidates == Candidates::Pods.as_str() {
        return;
    }
    let is_found = |protection: Protection| facts.needed.iter().any(|needed| needed.protection == protection.as_str());
    let has_runtime = facts.runtimes.iter().any(|runtime| runtime.trouble.is_none());
    for (what, is_here, protection) in
        [("kubelet", facts.kubelet, Protection::Kubelet), ("container runtime", has_runtime, Protection::Runtime)]
    {
        if is_here && !is_found(protection) {
            let sentence = format!(
                "the {what} of this machine cannot be recognized by a socket, a port or a lock: under candidates: everything its workload \
                 would be a candidate"
            );
            let mend = "leave evictions.candidates out, or name the workload in protected; run this as root in the host's namespaces";
            add(Severity::Unsafe, "candidates", sentence, Some(mend));
        }
    }
    let mend = Some(
        "run this as root in the host's namespaces, or name in protected: the workloads of the daemons, or set evictions.candidates: pods",
    );
    match facts.unheld_sockets.as_deref() {
        Some([]) => {}
        Some(unheld) => {
            let sentence = format!(
                "no visible process {}: the workload of this daemon cannot be told from others, and would be a candidate",
                unheld.join(", or ")
            );
            add(Severity::Unsafe, "candidates", sentence, mend);
        }
        None => {
            let sentence = "the sockets of this machine cannot be read (net/unix of process 1 in procRoot): daemons that the node needs are \
                            recognized by the names of root's processes alone";
            add(Severity::Unsafe, "candidates", sentence.to_owned(), mend);
        }
    }
}

/// Adds the patterns that match nothing. The workload may not run now; where the name is there and does not match, it is a mistake.
fn patterns(facts: &Facts, add: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    for PatternReach { field, pattern, hint, .. } in facts.patterns.iter().filter(|it| it.matches == 0) {
        let without = format!("{field}: \"{pattern}\" matches no workload of this machine now, and has no effect");
        match hint {
            Some(hint) => add(Severity::Degraded, field, format!("{without}: {hint}"), None),
            None => add(Severity::Note, field, without, Some("compare it with the names that `rank` lists")),
        }
    }
}

/// Returns the filesystems to report, each device once.
fn by_device(facts: &Facts, is_meant: impl Fn(&Filesystem) -> bool) -> Vec<&Filesystem> {
    let mut found: Vec<&Filesystem> = facts.filesystems.iter().filter(|filesystem| is_meant(filesystem)).collect();
    let mut devices = HashSet::new();
    found.retain(|filesystem| devices.insert(&filesystem.device));
    found
}

/// Adds findings about filesystems, container runtimes and limits of local storage.
fn disks(facts: &Facts, add: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    for Filesystem { role, kind, .. } in by_device(facts, |filesystem| filesystem.inodes.is_none()) {
        let sentence =
            format!("{role} is on {kind}, which creates inodes without limit: there is no {role}.inodesFree");
        add(Severity::Note, role, sentence, None);
    }
    // Without containers the agent measures no usage of disks.
    let has_containers = facts.kubelet || !facts.runtimes.is_empty();
    let without_quotas = |filesystem: &Filesystem| has_containers && filesystem.project_quotas == Some(false);
    for Filesystem { role, device, kind, mount_point, .. } in by_device(facts, without_quotas) {
        let sentence = format!(
            "project quotas: {kind} at {} ({device}) counts no projects: the agent measures the usage of workloads there by walking \
             directories, so the figures are older than a quota's",
            mount_point.display()
        );
        let mount = if kind == "xfs" { XFS_PROJECTS } else { EXT4_PROJECTS };
        let assigner = if *role == "nodefs" { KUBELET_PROJECTS } else { RUNTIME_PROJECTS };
        add(Severity::Note, role, sentence, Some(&format!("{mount}, {assigner}")));
    }
    for runtime in &facts.runtimes {
        let Some(trouble) = &runtime.trouble else { continue };
        let sentence = format!(
            "container runtime: {} does not answer at {}: {trouble}; until it answers the agent collects no garbage, evicts pods by \
             signals, and their writable layers stay",
            runtime.name,
            runtime.socket.display()
        );
        add(Severity::Degraded, "runtime", sentence, Some("start the runtime, or see its log"));
    }
    if facts.kubelet && facts.runtimes.is_empty() {
        let sentence = "container runtime: none was found, though a kubelet has its files here; the agent collects no garbage, evicts \
                        pods by signals, and their writable layers stay";
        let mend =
            "set runtime in the configuration to its socket; if the agent runs in a container, mount the socket there";
        add(Severity::Degraded, "runtime", sentence.to_owned(), Some(mend));
    }
    if facts.limits_unknown {
        let sentence = "limits of local storage evict no pod: neither cgroups nor the runtime report the limits";
        let mend = "connect the agent to the API server (kubernetes.kubeconfig), or set `pods` to a file written with: kubectl get pods -A -o \
                    json --field-selector spec.nodeName=NODE";
        add(Severity::Note, "local storage", sentence.to_owned(), Some(mend));
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
pub(super) mod tests;
