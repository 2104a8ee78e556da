//! Under which names the node's conditions and taints are reported, and which of those that are there are ours.
//!
//! Beside a kubelet the standard names would be overwritten by it within seconds, and a taint under a standard key taken away by the
//! node lifecycle controller: so we have names of our own, unless we are the authority.

use crate::config::kubernetes_options::Authority;

use super::status::Effect;

/// What our own names begin with.
const PREFIX: &str = "Monitor";
/// What our own taints' keys begin with.
const KEY_PREFIX: &str = "node-pressure-monitor/";
/// An annotation of the node: how often its agent confirms its conditions, in seconds. A sweeper is told it by nobody else.
pub const HEARTBEAT: &str = "node-pressure-monitor/heartbeat-seconds";
/// Whether the configuration is the one in force; ours alone.
pub const CONFIGURATION_ACCEPTED: &str = "MonitorConfigurationAccepted";
/// The reason of a condition whose agent has died.
pub const AGENT_STOPPED: &str = "MonitorAgentStopped";
/// The reason while nothing was measured yet.
pub const NOT_KNOWN_YET: &str = "MonitorNotKnownYet";
/// Pressure that lasts, as configured.
pub const PRESSURE_LASTS: &str = "MonitorPressureLasts";
/// No such pressure.
pub const NO_PRESSURE: &str = "MonitorNoPressure";

/// The conditions that kubelets have too, and the keys of their taints.
const STANDARD: [(&str, &str); 3] =
    [("MemoryPressure", "memory-pressure"), ("DiskPressure", "disk-pressure"), ("PIDPressure", "pid-pressure")];
const STANDARD_KEY_PREFIX: &str = "node.kubernetes.io/";
/// Reasons that nobody else gives a standard condition: a kubelet's begin with `KubeletHas`.
const STANDARD_REASONS: [&str; 6] = [
    "NodeHasInsufficientMemory",
    "NodeHasSufficientMemory",
    "NodeHasDiskPressure",
    "NodeHasNoDiskPressure",
    "NodeHasInsufficientPID",
    "NodeHasSufficientPID",
];
/// Ours under any name that the operator chose: they say whose they are, since others have words like `NoPressure` too.
const OWN_REASONS: [&str; 4] = [PRESSURE_LASTS, NO_PRESSURE, NOT_KNOWN_YET, AGENT_STOPPED];

/// Whether kubelets have this condition, too.
pub(super) fn is_standard(kind: &str) -> bool {
    STANDARD.iter().any(|(standard, _)| *standard == kind)
}

/// What a condition is called on the node.
#[must_use]
pub fn condition_type(kind: &str, authority: Authority) -> String {
    if is_standard(kind) && authority != Authority::Standard { format!("{PREFIX}{kind}") } else { kind.to_owned() }
}

/// The key of the taint that goes with a condition, if one does.
#[must_use]
pub fn taint_key(kind: &str, authority: Authority) -> Option<String> {
    let (_, name) = STANDARD.iter().find(|(standard, _)| *standard == kind)?;
    let prefix = if authority == Authority::Standard { STANDARD_KEY_PREFIX } else { KEY_PREFIX };
    Some(format!("{prefix}{name}"))
}

/// Whether a condition on a node is one of ours.
#[must_use]
pub fn is_our_condition(kind: &str, reason: &str) -> bool {
    let own = || kind.strip_prefix(PREFIX).is_some_and(is_standard);
    let standard = || is_standard(kind) && STANDARD_REASONS.contains(&reason);
    kind == CONFIGURATION_ACCEPTED || own() || standard() || OWN_REASONS.contains(&reason)
}

/// Whose a taint is, as far as its key and its effect tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// Ours.
    Us,
    /// Under the standard key of this condition: ours where we are the authority, and the control plane's too, which puts one with the
    /// effect `NoSchedule` there while the condition holds.
    Condition(&'static str),
    /// Somebody else's.
    Others,
}

/// Whose a taint is.
#[must_use]
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

/// Whether somebody else puts a taint with this effect under a standard key: the node lifecycle controller knows one effect.
#[must_use]
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
    fn what_is_ours_is_told_from_what_is_not() {
        for (kind, reason, expected) in [
            ("MonitorMemoryPressure", "", true),
            (CONFIGURATION_ACCEPTED, "InForce", true),
            ("MemoryPressure", "KubeletHasSufficientMemory", false),
            ("MemoryPressure", "NodeHasSufficientMemory", true),
            ("SystemIoPressure", PRESSURE_LASTS, true),
            ("DiskPressure", AGENT_STOPPED, true),
            // As a node problem detector may say.
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
