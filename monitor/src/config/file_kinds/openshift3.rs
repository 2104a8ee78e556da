//! OpenShift 3's node configuration: the kubelet's command line as a map from arguments to lists of values.

use std::collections::HashMap;

use super::kubelet_configuration::{default_thresholds, kubelet_policy};
use super::reservations::{Item, SWAP, SWAP_FIX, items, pods_enforced, reserved};
use super::threshold_fields::{Entry, Lists, Rules, Style};
use crate::config::document_walk::Walk;
use crate::config::policy::{MonitorConfig, OomScores, Policy, Ranking};
use crate::config::threshold::ThresholdValue;
use crate::config::yaml::{Node, Value};
use crate::units::duration::parse_go_duration;
use crate::units::quantity::Quantity;
use crate::units::signal::{Signal, UnsupportedSignal};

pub const KIND: &str = "NodeConfig";
pub const ARGUMENTS: &str = "kubeletArguments";

const NAMES: [&str; 13] = [
    "eviction-hard",
    "eviction-soft",
    "eviction-soft-grace-period",
    "eviction-minimum-reclaim",
    "eviction-pressure-transition-period",
    "eviction-max-pod-grace-period",
    "system-reserved",
    "kube-reserved",
    "enforce-node-allocatable",
    "experimental-allocatable-ignore-eviction",
    "local-storage-capacity-isolation",
    "fail-swap-on",
    "kernel-memcg-notification",
];
const THRESHOLD_FIX: &str = "write e.g. memory.available<500Mi";

/// Reads the file. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, document: &Node) -> MonitorConfig {
    let fields = walk.known_fields("", document, &[ARGUMENTS]);
    let arguments = match fields.get(ARGUMENTS) {
        Some((path, node)) => Arguments::read(walk, &path, node),
        None => Arguments::default(),
    };
    let mut policy = Policy { ranking: Ranking::OpenShift3, oom_scores: OomScores::OPENSHIFT3, ..kubelet_policy() };
    if let Some((_, period)) = arguments.last(walk, "eviction-pressure-transition-period", "5m", |text| {
        let period = parse_go_duration(text).map_err(|error| error.to_string())?;
        period.to_duration().ok_or_else(|| "must not be negative".to_owned())
    }) {
        policy.pressure_transition_period = period;
    }
    let grace = arguments.last(walk, "eviction-max-pod-grace-period", "30, in seconds", |text| {
        let reason = |_| format!("must be a whole number from {} to {}", i32::MIN, i32::MAX);
        text.parse::<i32>().map_err(reason)
    });
    policy.max_pod_grace_period = grace.map_or(0, |(_, seconds)| i64::from(seconds));
    let isolation = arguments.last(walk, "local-storage-capacity-isolation", "true", boolean);
    policy.local_storage_isolation = isolation.is_none_or(|(_, value)| value);
    let ignored = arguments.last(walk, "experimental-allocatable-ignore-eviction", "false", boolean);
    // There, `system-reserved` is to cover the thresholds, unless they are reserved by name.
    policy.reservations.hard_thresholds = matches!(ignored, Some((_, false)));
    policy.reservations.system = arguments.reserved(walk, "system-reserved");
    policy.reservations.kube = arguments.reserved(walk, "kube-reserved");

    let pods = arguments.pods_enforced(walk);
    let lists = arguments.lists(walk);
    let mut defaults = default_thresholds();
    defaults.retain(|(signal, _)| *signal != Signal::ImageFsInodesFree);
    let rules = Rules {
        quirks: policy.quirks,
        defaults,
        merge_defaults: false,
        pods_enforced: pods && !matches!(ignored, Some((_, true))),
        style: Style::Arguments,
    };
    lists.assemble(walk, &rules, &mut policy);
    arguments.advise(walk, &policy);
    MonitorConfig { policy, ..MonitorConfig::default() }
}

/// The values of each argument, one by one as on a command line.
#[derive(Debug, Default)]
struct Arguments<'n>(Vec<(&'n str, Vec<Item<'n>>)>);

impl<'n> Arguments<'n> {
    fn read(walk: &mut Walk<'_>, path: &str, node: &'n Node) -> Self {
        if let Value::Scalar { text, .. } = &node.value
            && let Some((name, value)) = text.split_once('=')
        {
            let (shown, value) = (text.as_str(), value.trim().trim_matches('"'));
            let reason = "OpenShift reads a map from arguments to lists of values here, and nothing else";
            let fix = format!("write `{}: [\"{value}\"]` below it", name.trim());
            walk.warning(path, node, reason, &fix);
            return Self(vec![(name.trim(), vec![Item { field: path.to_owned(), node, text: value, shown }])]);
        }
        let fields = walk.known_fields(path, node, &NAMES);
        let mut arguments = Vec::new();
        for (name, field, node) in fields.iter() {
            let fix = "write a list of values in quotes";
            let values = match &node.value {
                Value::Null => Vec::new(),
                // Loosely, but what is meant is plain.
                Value::Scalar { text, .. } => vec![Item { field, node, text, shown: text }],
                _ => {
                    let list = walk.list(&field, node, "values", fix);
                    items(walk, &field, list, fix)
                }
            };
            arguments.push((name, values));
        }
        Self(arguments)
    }

    fn items(&self, name: &str) -> &[Item<'n>] {
        self.0.iter().find(|(known, _)| *known == name).map_or(&[], |(_, items)| items)
    }

    /// Reads an argument with a single value; of several the last counts.
    fn last<T>(
        &self,
        walk: &mut Walk<'_>,
        name: &str,
        example: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<(&Item<'n>, T)> {
        let mut last = None;
        for item in self.items(name) {
            match read(item.text) {
                Ok(value) => last = Some((item, value)),
                Err(reason) => {
                    let fix = format!("write e.g. {example}");
                    walk.error_in(&item.field, item.node, Some(item.shown), reason, &fix);
                }
            }
        }
        last
    }

    /// Splits values into names and what is said of them. Of several with one name the last counts.
    fn pairs(&self, walk: &mut Walk<'_>, name: &str, separator: char, fix: &str) -> Vec<(&'n str, Item<'n>)> {
        let mut pairs: Vec<(&'n str, Item<'n>)> = Vec::new();
        let mut places = HashMap::new();
        for item in self.items(name) {
            for shown in item.text.split(',').filter(|text| !text.is_empty()) {
                let Some((key, text)) = shown.split_once(separator) else {
                    let reason = format!("malformed pair, expect string{separator}string");
                    walk.error_in(&item.field, item.node, Some(shown), reason, fix);
                    continue;
                };
                let (key, text) = (key.trim(), text.trim());
                let pair = (key, Item { text, shown, ..item.clone() });
                match places.get(key) {
                    Some(&place) => pairs[place] = pair,
                    None => {
                        places.insert(key, pairs.len());
                        pairs.push(pair);
                    }
                }
            }
        }
        pairs
    }

    fn entries(&self, walk: &mut Walk<'_>, name: &str, separator: char, fix: &str) -> Vec<Entry<'n>> {
        let mut entries = Vec::new();
        for (key, Item { field, node, text, shown }) in self.pairs(walk, name, separator, fix) {
            match key.parse() {
                Ok(signal) => entries.push(Entry { signal, field, node, text, shown }),
                Err(UnsupportedSignal(_)) => {
                    let fix = walk.propose(key, &Signal::ALL.map(Signal::as_str));
                    walk.error_in(&field, node, Some(shown), format!("unsupported eviction signal {key}"), &fix);
                }
            }
        }
        entries
    }

    fn lists(&self, walk: &mut Walk<'_>) -> Lists<'n> {
        let hard = self.entries(walk, "eviction-hard", '<', THRESHOLD_FIX);
        let first = self.items("eviction-hard").first();
        Lists {
            // Given at all, even without any value in it, it replaces the defaults.
            hard: first.map(|first| (format!("{ARGUMENTS}.eviction-hard"), first.node, hard)),
            soft: self.entries(walk, "eviction-soft", '<', THRESHOLD_FIX),
            grace: self.entries(walk, "eviction-soft-grace-period", '=', "write e.g. memory.available=1m30s"),
            reclaim: self.entries(walk, "eviction-minimum-reclaim", '=', "write e.g. memory.available=100Mi"),
        }
    }

    fn reserved(&self, walk: &mut Walk<'_>, name: &str) -> Vec<(String, Quantity)> {
        let mut amounts = Vec::new();
        for (resource, item) in self.pairs(walk, name, '=', "write e.g. memory=1Gi") {
            let amount = reserved(walk, resource, &item);
            amounts.extend(amount.map(|amount| (resource.to_owned(), amount)));
        }
        amounts
    }

    fn pods_enforced(&self, walk: &mut Walk<'_>) -> bool {
        let given = self.items("enforce-node-allocatable");
        let mut scopes = Vec::new();
        for item in given {
            let texts = item.text.split(',').map(str::trim).filter(|text| !text.is_empty());
            scopes.extend(texts.map(|text| Item { text, shown: text, ..item.clone() }));
        }
        given.is_empty() || pods_enforced(walk, &scopes)
    }

    /// Notes what is legal and can hardly be meant.
    fn advise(&self, walk: &mut Walk<'_>, policy: &Policy) {
        if let Some((item, false)) = self.last(walk, "fail-swap-on", "true", boolean) {
            walk.warning_in(&item.field, item.node, Some(item.shown), SWAP, SWAP_FIX);
        }
        let notify = "kernel-memcg-notification";
        if let Some((item, true)) = self.last(walk, notify, "false", boolean) {
            let reason = "does nothing on cgroup v2: there the kubelet looks every ten seconds all the same";
            walk.warning_in(&item.field, item.node, Some(item.shown), reason, "leave it out");
        }
        self.advise_reservation(walk, policy);
    }

    /// The scheduler must not place pods on memory that evictions keep free: what is reserved covers the largest threshold.
    fn advise_reservation(&self, walk: &mut Walk<'_>, policy: &Policy) {
        let memory = policy.thresholds.iter().filter(|it| it.signal == Signal::MemoryAvailable);
        let uncovered = memory.filter(|it| !(it.is_hard() && policy.reservations.hard_thresholds));
        let largest = uncovered.filter_map(|it| match &it.value {
            ThresholdValue::Quantity(quantity) => Some(quantity),
            ThresholdValue::Percentage(_) => None,
        });
        let given = ["system-reserved", "eviction-hard", "eviction-soft"].into_iter();
        let Some((largest, item)) = largest.max().zip(given.filter_map(|name| self.items(name).first()).next()) else {
            return;
        };
        let reserved = policy.reservations.system.iter().chain(&policy.reservations.kube);
        let reserved: Quantity = reserved.filter(|(name, _)| name == "memory").map(|(_, amount)| amount).sum();
        if reserved < *largest {
            let reason = format!(
                "the memory reserved ({}) does not cover the largest threshold, memory.available<{}: the scheduler will fill memory \
                 that evictions keep free",
                reserved.canonical(),
                largest.canonical()
            );
            let fix = "reserve what the system needs and the threshold, e.g. system-reserved: [\"memory=2Gi\"]";
            walk.warning_in(&item.field, item.node, Some(item.shown), reason, fix);
        }
    }
}

/// As flags are read.
fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

#[cfg(test)]
#[path = "openshift3_tests.rs"]
mod tests;
