//! The names of the node's conditions and taints, and which of those on the node are ours.
//!
//! Beside a kubelet, a standard condition would be overwritten by it within seconds, and a taint under a standard key removed by the node
//! lifecycle controller. So the agent uses names of its own, unless it is configured as the authority.

use crate::config::kubernetes_options::Authority;

use super::status::wanted::Effect;

const PREFIX: &str = "Monitor";
const KEY_PREFIX: &str = "node-pressure-monitor/";
/// Condition: the configuration file is in force.
pub const CONFIGURATION_ACCEPTED: &str = "MonitorConfigurationAccepted";
/// Condition: what leaks memory cannot be evicted.
pub const PROTECTED_LEAK: &str = "MonitorProtectedMemoryLeak";
/// Reasons of [`PROTECTED_LEAK`], when it holds and when it does not.
pub const LEAK_NOT_EVICTABLE: &str = "MonitorLeakNotEvictable";
pub const NO_PROTECTED_LEAK: &str = "MonitorNoProtectedLeak";
/// Reason of a condition whose agent is dead.
pub const AGENT_STOPPED: &str = "MonitorAgentStopped";
/// Reason of a condition that was not measured yet.
pub const NOT_KNOWN_YET: &str = "MonitorNotKnownYet";
/// Reason of a configured pressure condition that holds.
pub const PRESSURE_LASTS: &str = "MonitorPressureLasts";
/// Reason of a configured pressure condition that does not hold.
pub const NO_PRESSURE: &str = "MonitorNoPressure";

/// The kubelet's conditions and the keys of their taints.
const STANDARD: [(&str, &str); 3] =
    [("MemoryPressure", "memory-pressure"), ("DiskPressure", "disk-pressure"), ("PIDPressure", "pid-pressure")];
const STANDARD_KEY_PREFIX: &str = "node.kubernetes.io/";
/// Our reasons of standard conditions; a kubelet's begin with `KubeletHas`.
const STANDARD_REASONS: [&str; 6] = [
    "NodeHasInsufficientMemory",
    "NodeHasSufficientMemory",
    "NodeHasDiskPressure",
    "NodeHasNoDiskPressure",
    "NodeHasInsufficientPID",
    "NodeHasSufficientPID",
];
/// Reasons that are ours under any type that the operator configures. The prefix distinguishes them from reasons such as `NoPressure` of
/// other writers.
const OWN_REASONS: [&str; 4] = [PRESSURE_LASTS, NO_PRESSURE, NOT_KNOWN_YET, AGENT_STOPPED];

pub(super) fn is_standard(kind: &str) -> bool {
    STANDARD.iter().any(|(standard, _)| *standard == kind)
}

pub fn condition_type(kind: &str, authority: Authority) -> String {
    if is_standard(kind) && authority != Authority::Standard { format!("{PREFIX}{kind}") } else { kind.to_owned() }
}

/// Returns the key of a condition's taint; none: the condition is not a standard one.
pub fn taint_key(kind: &str, authority: Authority) -> Option<String> {
    let (_, name) = STANDARD.iter().find(|(standard, _)| *standard == kind)?;
    let prefix = if authority == Authority::Standard { STANDARD_KEY_PREFIX } else { KEY_PREFIX };
    Some(format!("{prefix}{name}"))
}

pub fn is_our_condition(kind: &str, reason: &str) -> bool {
    let own = || kind.strip_prefix(PREFIX).is_some_and(is_standard);
    let standard = || is_standard(kind) && STANDARD_REASONS.contains(&reason);
    [CONFIGURATION_ACCEPTED, PROTECTED_LEAK].contains(&kind) || own() || standard() || OWN_REASONS.contains(&reason)
}

/// The writer of a taint, as far as its key shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    Us,
    /// The taint has this condition's standard key. It is ours if the agent is the authority, or the control plane's, which sets the
    /// effect `NoSchedule` while the condition holds.
    Condition(&'static str),
    Others,
}

pub fn owner(key: &str) -> Owner {
    let is = |name: &str, prefix: &str| key.strip_prefix(prefix) == Some(name);
    let own = STANDARD.iter().any(|(_, name)| is(name, KEY_PREFIX));
    let standard = STANDARD.iter().find(|(_, name)| is(name, STANDARD_KEY_PREFIX));
    match standard {
        _ if own => Owner::Us,
        Some((kind, _)) => Owner::Condition(kind),
        None => Owner::Others,
    }
}

/// Returns whether the node lifecycle controller sets standard taints with this effect.
pub fn is_of_control_plane(effect: &str) -> bool {
    effect == Effect::NoSchedule.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_authority() {
        assert_eq!(condition_type("DiskPressure", Authority::Own), "MonitorDiskPressure");
        assert_eq!(condition_type("DiskPressure", Authority::Standard), "DiskPressure");
        assert_eq!(condition_type("SystemIoPressure", Authority::Own), "SystemIoPressure");
        let key = |authority| taint_key("PIDPressure", authority);
        assert_eq!(key(Authority::Own).as_deref(), Some("node-pressure-monitor/pid-pressure"));
        assert_eq!(key(Authority::Standard).as_deref(), Some("node.kubernetes.io/pid-pressure"));
        assert_eq!(taint_key("SystemIoPressure", Authority::Own), None);
    }

    #[test]
    fn our_conditions_and_taints_are_recognized() {
        for (kind, reason, expected) in [
            ("MonitorMemoryPressure", "", true),
            (CONFIGURATION_ACCEPTED, "InForce", true),
            (PROTECTED_LEAK, LEAK_NOT_EVICTABLE, true),
            ("MemoryPressure", "KubeletHasSufficientMemory", false),
            ("MemoryPressure", "NodeHasSufficientMemory", true),
            ("SystemIoPressure", PRESSURE_LASTS, true),
            ("DiskPressure", AGENT_STOPPED, true),
            // As a node problem detector writes.
            ("IOPressure", "NoPressure", false),
            ("IOPressure", "NodeHasNoDiskPressure", false),
            ("MonitorSomethingElse", "Fine", false),
            ("Ready", "KubeletReady", false),
        ] {
            assert_eq!(is_our_condition(kind, reason), expected, "{kind} {reason}");
        }
        assert_eq!(owner("node-pressure-monitor/memory-pressure"), Owner::Us);
        assert_eq!(owner("node.kubernetes.io/disk-pressure"), Owner::Condition("DiskPressure"));
        assert_eq!(owner("node.kubernetes.io/unschedulable"), Owner::Others);
        assert_eq!(owner("node-pressure-monitor/of-an-operator"), Owner::Others);
    }
}
