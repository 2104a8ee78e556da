//! What follows from the facts: what will not work, how bad that is, and how to mend it. Pure.

use std::path::Path;

use serde::Serialize;

use super::super::run::{SWAP_ON, namespaces_text};
use super::facts::{Facts, Filesystem, Trouble};

/// xfs takes it when it is mounted, not when it is mounted again (`man 5 xfs`).
const XFS_PROJECTS: &str = "mount it with prjquota (of the root filesystem: rootflags=prjquota for the kernel)";
/// The feature cannot be set while it is mounted (`man 8 tune2fs`).
const EXT4_PROJECTS: &str = "unmount it (the root filesystem: in a rescue system), tune2fs -O project,quota -Q prjquota DEVICE, mount it with prjquota";
/// Who gives projects to directories, once they are counted.
const KUBELET_PROJECTS: &str =
    "and let the kubelet give volumes their projects (feature gate LocalStorageCapacityIsolationFSQuotaMonitoring)";
const RUNTIME_PROJECTS: &str =
    "which is of use with CRI-O on xfs, which gives writable layers their projects then; containerd does not";

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Enforcing would touch the wrong workload, or none.
    Unsafe,
    /// Something is done without, or not at all.
    Degraded,
    /// Worth knowing.
    Note,
}

/// Something that will not work, or works otherwise than one may think.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, in a word or two.
    pub about: String,
    /// What is so, as the agent says it.
    pub sentence: String,
    /// How to mend it, where the sentence does not say so.
    pub mend: Option<String>,
}

impl Finding {
    /// Whether it speaks against enforcing.
    pub fn is_unsafe(&self) -> bool {
        self.severity == Severity::Unsafe
    }
}

/// All that follows, worst first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |severity, about: &str, sentence: String, mend: Option<&str>| {
        found.push(Finding { severity, about: about.to_owned(), sentence, mend: mend.map(str::to_owned) });
    };
    if let Some(text) = namespaces_text(&facts.private_namespaces) {
        say(Severity::Unsafe, "namespaces", text, None);
    }
    for Trouble { about, sentence, is_unsafe } in &facts.troubles {
        say(if *is_unsafe { Severity::Unsafe } else { Severity::Degraded }, about, sentence.clone(), None);
    }
    ending(facts, &mut say);
    disks(facts, &mut say);
    if facts.swap_bytes > 0 {
        let mend = "switch it off (swapoff -a, and its line in /etc/fstab), or add a pressureConditions entry that tells of the stalls";
        say(Severity::Degraded, "swap", SWAP_ON.to_owned(), Some(mend));
    }
    if let Some(unread) = facts.unread_configuration.as_deref().map(Path::display) {
        let sentence = format!("the defaults were examined: {unread} is there, but was not given");
        say(Severity::Note, "configuration", sentence, Some(&format!("add --config {unread}")));
    }
    for feature in facts.kernel.features.iter().filter(|feature| !feature.present) {
        let sentence = format!("this kernel has no {} (Linux {}): {}", feature.name, feature.since, feature.otherwise);
        say(Severity::Note, "kernel", sentence, Some("boot a newer kernel, if that matters"));
    }
    // What is off as a whole was said above, and what has a consequence of its own.
    let was_said = |name: &str| {
        facts.probes.would_attach.is_empty() || facts.troubles.iter().any(|trouble| trouble.sentence.contains(name))
    };
    for probe in facts.probes.missing.iter().filter(|probe| !was_said(&probe.name)) {
        let sentence = format!("{}: {} ({})", probe.name, probe.reason, probe.purpose);
        say(Severity::Note, "probes", sentence, None);
    }
    if let Some(pid) = facts.other_instance {
        let sentence = format!("an agent is at work already (process {pid}); a second one would be refused");
        say(Severity::Note, "other agent", sentence, None);
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

/// Whether a workload can be ended.
fn ending(facts: &Facts, say: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    let Some(cgroup) = &facts.cgroup else { return };
    let has = |name: &str| facts.capabilities.iter().any(|it| it.name == name && it.present);
    if !cgroup.kill && facts.kernel.features.iter().any(|feature| feature.name == "pidfd" && !feature.present) {
        let sentence = "no pidfd (Linux 5.3): no process can be signalled for certain, so nobody is evicted";
        say(Severity::Unsafe, "ending workloads", sentence.to_owned(), Some("boot a newer kernel"));
    }
    if !has("CAP_KILL") {
        let mend = Some("run as root, or grant CAP_KILL");
        let (severity, sentence) = if cgroup.kill {
            (Severity::Degraded, "no CAP_KILL: whole cgroups can be killed, but nobody is sent SIGTERM before")
        } else {
            (Severity::Unsafe, "no CAP_KILL: whoever is to be evicted cannot be signalled, nor can the next")
        };
        say(severity, "ending workloads", sentence.to_owned(), mend);
    }
    if !cgroup.kill && !cgroup.freezer {
        let sentence = "neither cgroup.kill nor a freezer: processes are killed one by one while they fork, and a fork bomb may outrun that";
        let mend = match cgroup.version.as_str() {
            "v1" => {
                "mount the v1 freezer below cgroupRoot, or boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)"
            }
            _ => "mount the cgroup file system writable for the agent, on Linux 5.14 or later",
        };
        say(Severity::Degraded, "ending workloads", sentence.to_owned(), Some(mend));
    }
}

/// Whether the disks are seen, and can be tidied up.
fn disks(facts: &Facts, say: &mut impl FnMut(Severity, &str, String, Option<&str>)) {
    let mut told: Vec<&str> = Vec::new();
    for filesystem in facts.filesystems.iter().filter(|filesystem| filesystem.inodes.is_none()) {
        if told.contains(&filesystem.device.as_str()) {
            continue;
        }
        told.push(&filesystem.device);
        let (role, kind) = (filesystem.role, &filesystem.kind);
        let sentence = format!("{role} is on {kind}, which makes inodes without limit: there is no {role}.inodesFree");
        say(Severity::Note, role, sentence, None);
    }
    let mut told: Vec<&str> = Vec::new();
    // Where there are no containers nobody's files are counted.
    let has_containers = facts.kubelet || !facts.runtimes.is_empty();
    let without_quotas = |filesystem: &&Filesystem| has_containers && filesystem.project_quotas == Some(false);
    for filesystem in facts.filesystems.iter().filter(without_quotas) {
        let Filesystem { role, device, kind, mount_point, .. } = filesystem;
        if told.contains(&device.as_str()) {
            continue;
        }
        told.push(device);
        let sentence = format!(
            "project quotas: {kind} at {} ({device}) counts no projects: what workloads keep there is found by walking directories, and \
             older than a quota's count",
            mount_point.display()
        );
        let mount = if kind == "xfs" { XFS_PROJECTS } else { EXT4_PROJECTS };
        let whose = if *role == "nodefs" { KUBELET_PROJECTS } else { RUNTIME_PROJECTS };
        say(Severity::Note, role, sentence, Some(&format!("{mount}, {whose}")));
    }
    for runtime in &facts.runtimes {
        let Some(trouble) = &runtime.trouble else { continue };
        let sentence = format!(
            "container runtime: {} does not answer at {}: {trouble}; no garbage is collected, pods are ended by signals, and their \
             writable layers stay until it is back",
            runtime.name,
            runtime.socket.display()
        );
        say(Severity::Degraded, "runtime", sentence, Some("start it, or see its log"));
    }
    if facts.kubelet && facts.runtimes.is_empty() {
        let sentence = "container runtime: none was found, though a kubelet has its files here; no garbage is collected, pods are ended \
                        by signals, and their writable layers stay";
        let mend = "name its socket in the configuration (runtime), and mount it where the agent runs in a container";
        say(Severity::Degraded, "runtime", sentence.to_owned(), Some(mend));
    }
    if facts.limits_unknown {
        let sentence = "limits of local storage evict nobody: neither cgroups nor the runtime tell them";
        let mend = "let the agent ask the API server (kubernetes.kubeconfig), or let `pods` name a file that is written with: kubectl get pods -A -o \
                    json --field-selector spec.nodeName=NODE";
        say(Severity::Note, "local storage", sentence.to_owned(), Some(mend));
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
pub(super) mod tests;
