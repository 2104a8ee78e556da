//! Finds the other programs of this machine that kill workloads when a resource runs short, and the thresholds at which they act.

mod kubelet_thresholds;
mod meaning;
mod set_up;
mod talos;

use std::fs;
use std::path::Path;

use serde::Serialize;

use super::process_facts::is_of_root;
use crate::config::{Percentage, Threshold, ThresholdValue};
use crate::units::{Bytes, Signal, kernel_text, named_enum};

pub use self::meaning::{Capacities, Meaning};
pub use self::set_up::{SetUp, SetUpFact};

/// Names of processes that are a kubelet or contain one (`comm` has at most 15 characters).
pub const KUBELET_NAMES: [&str; 9] =
    ["kubelet", "kubelite", "hyperkube", "k3s", "k3s-server", "k3s-agent", "rke2", "rke2 server", "rke2 agent"];
/// earlyoom's default (`man earlyoom`): SIGTERM at 10% of the memory.
const EARLYOOM_PERCENT: u8 = 10;

named_enum! {
    /// A program that kills workloads.
    pub enum Killer {
        Kubelet = "kubelet",
        SystemdOomd = "systemd-oomd",
        Earlyoom = "earlyoom",
        Oomd = "oomd",
        Nohang = "nohang",
        Talos = "talos",
    }
}

/// A running program that kills workloads.
#[derive(Debug, Clone, PartialEq)]
pub struct OtherKiller {
    pub killer: Killer,
    pub pid: i32,
    pub acts: Acts,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Acts {
    /// At these thresholds, hard and soft ones.
    At(Vec<Threshold>),
    /// At thresholds that could not be read, with the reason.
    Unknown(String),
    /// By rules of its own, which are no thresholds on signals.
    ByOwnRules,
}

/// Such a program as `doctor` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OtherKillerFact {
    pub name: &'static str,
    pub pid: i32,
    /// `None` if the program has no thresholds on signals, or none that could be read.
    pub thresholds: Option<Vec<String>>,
    #[serde(skip)]
    pub meaning: Meaning,
}

impl OtherKillerFact {
    pub fn of(other: &OtherKiller, meaning: Meaning) -> Self {
        let thresholds = match &other.acts {
            Acts::At(thresholds) => Some(thresholds.iter().map(meaning::text).collect()),
            Acts::Unknown(_) | Acts::ByOwnRules => None,
        };
        Self { name: other.killer.as_str(), pid: other.pid, thresholds, meaning }
    }
}

/// Finds the programs, at most one process of each. Processes in pods do not count: their names are the pods' choice. Reads the name of every
/// process, so it is called only at the start.
pub fn find(proc_root: &Path) -> Vec<OtherKiller> {
    let mut found: Vec<OtherKiller> = Vec::new();
    for pid in pids(proc_root) {
        let directory = proc_root.join(pid.to_string());
        let Some((killer, name, arguments)) = identify(&directory) else { continue };
        if found.iter().any(|known| known.killer == killer) || is_in_pod(&directory) {
            continue;
        }
        found.push(OtherKiller { killer, pid, acts: acts(killer, &directory, &name, &arguments) });
    }
    if talos::is_here(proc_root) {
        found.push(OtherKiller { killer: Killer::Talos, pid: 1, acts: Acts::ByOwnRules });
    }
    found.sort_by_key(|other| other.killer);
    found
}

/// Finds the kubelet of this node, a process of root outside of pods: users choose the names of their processes. Reads the name of every
/// process.
pub fn find_kubelet(proc_root: &Path) -> Option<OtherKiller> {
    pids(proc_root).into_iter().find_map(|pid| {
        let directory = proc_root.join(pid.to_string());
        let (killer, name, arguments) = identify(&directory).filter(|(killer, ..)| *killer == Killer::Kubelet)?;
        let is_trusted = is_of_root(&directory) && !is_in_pod(&directory);
        is_trusted.then(|| OtherKiller { killer, pid, acts: acts(killer, &directory, &name, &arguments) })
    })
}

fn pids(proc_root: &Path) -> Vec<i32> {
    let entries = fs::read_dir(proc_root).into_iter().flatten().flatten();
    let mut pids: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

fn acts(killer: Killer, directory: &Path, name: &str, arguments: &[String]) -> Acts {
    match killer {
        Killer::Kubelet => kubelet_thresholds::read(directory, name, arguments).map_or_else(Acts::Unknown, Acts::At),
        Killer::Earlyoom => Acts::At(vec![earlyoom_threshold(arguments)]),
        Killer::SystemdOomd | Killer::Oomd | Killer::Nohang | Killer::Talos => Acts::ByOwnRules,
    }
}

/// Returns which program the process runs, with its name and its arguments.
fn identify(directory: &Path) -> Option<(Killer, String, Vec<String>)> {
    let name = kernel_text::read(directory.join("comm")).ok()?.trim_end().to_owned();
    // An interpreter that was started with the path of the script has its own name.
    let is_interpreter = name.starts_with("python");
    let named = by_name(&name);
    if named.is_none() && !is_interpreter {
        return None;
    }
    let arguments = arguments(directory);
    let killer = match named {
        // hyperkube contains every component of Kubernetes.
        Some(Killer::Kubelet) if name == "hyperkube" => {
            arguments.get(1).filter(|component| *component == "kubelet").map(|_| Killer::Kubelet)?
        }
        Some(killer) => killer,
        None => by_name(arguments.get(1)?.rsplit('/').next()?).filter(|killer| *killer == Killer::Nohang)?,
    };
    Some((killer, name, arguments))
}

fn by_name(name: &str) -> Option<Killer> {
    match name {
        "systemd-oomd" => Some(Killer::SystemdOomd),
        "earlyoom" => Some(Killer::Earlyoom),
        "oomd" => Some(Killer::Oomd),
        "nohang" => Some(Killer::Nohang),
        _ => KUBELET_NAMES.contains(&name).then_some(Killer::Kubelet),
    }
}

fn arguments(directory: &Path) -> Vec<String> {
    let bytes = fs::read(directory.join("cmdline")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|part| kernel_text::text(part.to_vec())).collect()
}

fn is_in_pod(directory: &Path) -> bool {
    kernel_text::read(directory.join("cgroup")).is_ok_and(|text| text.contains("kubepods"))
}

/// Returns the memory at which earlyoom sends SIGTERM: `-m PERCENT[,KILL]` or `-M KIB[,KILL]`; with both, the lower one acts.
fn earlyoom_threshold(arguments: &[String]) -> Threshold {
    let value = |option: &str| {
        let at = arguments.iter().rposition(|argument| argument.starts_with(option))?;
        let attached = arguments[at].strip_prefix(option).filter(|rest| !rest.is_empty());
        let text = attached.or_else(|| arguments.get(at + 1).map(String::as_str))?;
        text.split(',').next()?.parse::<u64>().ok()
    };
    let value = match (value("-M"), value("-m").and_then(|percent| u8::try_from(percent).ok())) {
        (Some(kib), _) => ThresholdValue::bytes(Bytes::from_kib(kib)),
        (None, percent) => ThresholdValue::Percentage(Percentage::whole(percent.unwrap_or(EARLYOOM_PERCENT))),
    };
    Threshold { signal: Signal::MemoryAvailable, value, grace_period: std::time::Duration::ZERO, min_reclaim: None }
}

#[cfg(test)]
#[path = "other_killers_tests.rs"]
mod tests;
