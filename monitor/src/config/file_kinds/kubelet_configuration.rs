//! A `KubeletConfiguration`, read as the kubelet reads it: fields that have nothing to do with evictions are passed over.

use std::time::Duration;

use super::reservations::{SWAP, SWAP_FIX, enforced_field, reserved_map};
use super::threshold_fields::{Lists, Rules, Style};
use crate::config::document_walk::{Fields, Walk};
use crate::config::policy::{MonitorConfig, OomScores, Policy, Ranking, Reservations, Semantics};
use crate::config::quirks::Quirks;
use crate::config::threshold::{Percentage, ThresholdValue};
use crate::config::yaml::{Node, Value};
use crate::units::amount::Bytes;
use crate::units::signal::Signal;

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

/// The fields that are maps from text to text.
const MAPS: [&str; 6] = [
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "systemReserved",
    "kubeReserved",
];

const FIELDS: [&str; 19] = [
    "apiVersion",
    "kind",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "evictionPressureTransitionPeriod",
    "evictionMaxPodGracePeriod",
    "mergeDefaultEvictionSettings",
    "enforceNodeAllocatable",
    "localStorageCapacityIsolation",
    "systemReserved",
    "kubeReserved",
    "failSwapOn",
    "memorySwap",
    "kernelMemcgNotification",
    "containerRuntimeEndpoint",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
];

/// Reads the file. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, document: &Node) -> MonitorConfig {
    let fields = walk.known_fields("", document, &FIELDS);
    for (name, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match fields.get(name) {
            Some((field, node)) => drop(walk.choice(&field, node, &[(expected, ())])),
            None => walk.error(name, document, "missing", &format!("add `{name}: {expected}`")),
        }
    }
    let mut policy = kubelet_policy();
    if let Some((field, node)) = fields.get("evictionMaxPodGracePeriod") {
        let seconds = walk.whole_number(&field, node, i32::MIN.into()..=i32::MAX.into(), "30, in seconds");
        policy.max_pod_grace_period = seconds.unwrap_or_default();
    }
    if let Some((field, node)) = fields.get("evictionPressureTransitionPeriod") {
        // Zero is the same as absent there.
        if let Some(period) = walk.duration(&field, node, "5m").filter(|period| *period > Duration::ZERO) {
            policy.pressure_transition_period = period;
        }
    }
    policy.local_storage_isolation = flag(walk, &fields, "localStorageCapacityIsolation").unwrap_or(true);
    policy.reservations.system = reserved_map(walk, &fields, "systemReserved");
    policy.reservations.kube = reserved_map(walk, &fields, "kubeReserved");
    let rules = Rules {
        quirks: policy.quirks,
        defaults: default_thresholds(),
        merge_defaults: flag(walk, &fields, "mergeDefaultEvictionSettings").unwrap_or(false),
        pods_enforced: enforced_field(walk, &fields, true),
        style: Style::Maps,
    };
    Lists::from_maps(walk, &fields).assemble(walk, &rules, &mut policy);
    advise_quotes(walk, &fields);
    advise(walk, &fields);
    let runtime = super::runtime::read_kubelet(walk, &fields);
    MonitorConfig { policy, runtime, ..MonitorConfig::default() }
}

/// The kubelet's rules, with no threshold yet.
pub fn kubelet_policy() -> Policy {
    Policy {
        semantics: Semantics::Kubelet,
        quirks: Quirks::of(Semantics::Kubelet),
        ranking: Ranking::Kubernetes,
        oom_scores: OomScores::KUBERNETES,
        thresholds: Vec::new(),
        reservations: Reservations { hard_thresholds: true, ..Reservations::default() },
        ..Policy::default()
    }
}

/// The hard thresholds of a kubelet on Linux to which none are given.
pub fn default_thresholds() -> Vec<(Signal, ThresholdValue)> {
    let percent = |percent| ThresholdValue::Percentage(Percentage::whole(percent));
    vec![
        (Signal::MemoryAvailable, ThresholdValue::bytes(Bytes::from_mib(100))),
        (Signal::NodeFsAvailable, percent(10)),
        (Signal::NodeFsInodesFree, percent(5)),
        (Signal::ImageFsAvailable, percent(15)),
        (Signal::ImageFsInodesFree, percent(5)),
    ]
}

/// Warns of what would be right in quotes: what is meant is clear, but without them it is a number, and the kubelet takes only text
/// for text. What YAML 1.1 makes a number or a boolean besides (`0x10`, `1_000`, `yes`) is no amount anyway.
fn advise_quotes(walk: &mut Walk<'_>, fields: &Fields<'_>) {
    for (path, node) in MAPS.iter().filter_map(|name| fields.get(name)) {
        let Value::Mapping(pairs) = &node.value else {
            continue;
        };
        for (key, value) in pairs {
            if let (Value::Scalar { text: name, .. }, Value::Scalar { text, quoted: false }) =
                (&key.value, &value.value)
                && is_number(text)
                && !walk.has_error_at(key)
                && !walk.has_error_at(value)
            {
                let reason = "a kubelet does not start with a number here";
                walk.warning(&format!("{path}.{name}"), value, reason, &format!("put it in quotes: \"{text}\""));
            }
        }
    }
}

/// Tells whether a text without quotes is a number to the kubelet's YAML reader. One that is too large for it remains text.
fn is_number(text: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().all(may_be) && text.parse().is_ok_and(f64::is_finite)
}

fn flag(walk: &mut Walk<'_>, fields: &Fields<'_>, name: &str) -> Option<bool> {
    let (field, node) = fields.get(name)?;
    walk.boolean(&field, node)
}

/// Notes what has nothing to do with thresholds, and all the same decides what becomes of them.
fn advise(walk: &mut Walk<'_>, fields: &Fields<'_>) {
    if let Some((field, node)) = fields.get("failSwapOn")
        && walk.boolean(&field, node) == Some(false)
    {
        walk.warning(&field, node, SWAP, SWAP_FIX);
    }
    if let Some((path, node)) = fields.get("memorySwap")
        && let Some((field, node)) = walk.known_fields(&path, node, &["swapBehavior"]).get("swapBehavior")
        && let Some(behavior) = walk.text(&field, node, "write NoSwap or LimitedSwap")
        && !matches!(behavior, "" | "NoSwap")
    {
        walk.warning(&field, node, SWAP, "write NoSwap where evictions are to protect memory");
    }
    if let Some((field, node)) = fields.get("kernelMemcgNotification")
        && walk.boolean(&field, node) == Some(true)
    {
        let reason = "does nothing on cgroup v2: there the kubelet looks every ten seconds all the same";
        walk.warning(&field, node, reason, "leave it out; this agent hears the kernel in any case");
    }
}

#[cfg(test)]
#[path = "kubelet_configuration_tests.rs"]
mod tests;
