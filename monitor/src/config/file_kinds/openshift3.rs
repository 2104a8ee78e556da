//! OpenShift 3's node configuration: the kubelet's command line as a map from arguments to lists of values.

use std::collections::HashMap;

use super::kubelet_configuration::{NO_NOTIFICATION, default_thresholds, kubelet_policy};
use super::reservations::{Item, PodsThreshold, SWAP, SWAP_FIX, pods_enforced, reserved};
use super::threshold_fields::{Entry, Rules, Style, ThresholdFields};
use crate::config::document_walk::{Change, Field, Walk, only_near};
use crate::config::policy::{MonitorConfig, OomScores, Policy, Ranking};
use crate::config::threshold::ThresholdValue;
use crate::config::yaml::Value;
use crate::units::{Quantity, Signal, parse_go_duration};

pub const KIND: &str = "NodeConfig";
pub const ARGUMENTS: &str = "kubeletArguments";

const NAMES: &str = "\
    eviction-hard eviction-soft eviction-soft-grace-period eviction-minimum-reclaim \
    eviction-pressure-transition-period eviction-max-pod-grace-period system-reserved kube-reserved \
    enforce-node-allocatable experimental-allocatable-ignore-eviction local-storage-capacity-isolation \
    fail-swap-on kernel-memcg-notification";
const THRESHOLD_FIX: &str = "write e.g. memory.available<500Mi";
/// The fields of the file (`NodeConfig` in pkg/cmd/server/apis/config/v1/types.go of openshift/origin, 3.11).
const TOP: &str = "\
    apiVersion kind nodeName nodeIP servingInfo masterKubeConfig masterClientConnectionOverrides dnsDomain dnsIP \
    dnsBindAddress dnsNameservers dnsRecursiveResolvConf networkPluginName networkConfig volumeDirectory imageConfig \
    allowDisabledDocker podManifestConfig authConfig dockerConfig kubeletArguments proxyArguments iptablesSyncPeriod \
    enableUnidling volumeConfig minTLSVersion cipherSuites metadata";

/// Reads the file. Errors are recorded in `walk`.
pub fn read(walk: &mut Walk<'_>, document: &Field<'_>) -> MonitorConfig {
    let fields = walk.known_fields(document, ARGUMENTS);
    check_names(walk, document);
    let arguments = fields.get(ARGUMENTS).map(|field| Arguments::read(walk, &field)).unwrap_or_default();
    let policy = Policy { ranking: Ranking::OpenShift3, oom_scores: OomScores::OPENSHIFT3, ..kubelet_policy() };
    let mut defaults = default_thresholds();
    defaults.retain(|(signal, _)| *signal != Signal::ImageFsInodesFree);
    let (config, is_ignored) = arguments.config(walk, policy, defaults);
    // In OpenShift 3 `system-reserved` has to cover the thresholds, unless this argument is given as false.
    let config = with_hard_reserved(config, is_ignored == Some(false));
    arguments.advise(walk);
    arguments.advise_reservation(walk, &config.policy);
    config
}

/// Reads the flags of a present kubelet. Errors are recorded in `walk`.
pub fn read_flags(walk: &mut Walk<'_>, document: &Field<'_>) -> MonitorConfig {
    let arguments = Arguments::read(walk, document);
    let (config, is_ignored) = arguments.config(walk, kubelet_policy(), default_thresholds());
    arguments.advise(walk);
    with_hard_reserved(config, is_ignored != Some(true))
}

/// Warns about names that no version of the file has.
fn check_names(walk: &mut Walk<'_>, document: &Field<'_>) {
    let Value::Mapping(pairs) = &document.node.value else { return };
    for (key, _) in pairs {
        let Some(name) = key.text().filter(|name| !TOP.split(' ').any(|known| known == *name)) else { continue };
        if !walk.has_note_at(key) {
            let fix = "correct the name, or leave it out; the kubelet's settings are in kubeletArguments";
            walk.warning_at(name, key, None, "no field of OpenShift 3's NodeConfig, and not read", fix);
        }
    }
}

fn with_hard_reserved(mut config: MonitorConfig, hard_thresholds: bool) -> MonitorConfig {
    config.policy.reservations.hard_thresholds = hard_thresholds;
    config
}

/// The values of each argument, as on a command line.
#[derive(Debug, Default)]
pub struct Arguments<'n>(Vec<(&'n str, Vec<Item<'n>>)>);

impl<'n> Arguments<'n> {
    /// Returns the configuration, and whether allocatable ignores the hard thresholds, if an argument says so.
    fn config(
        &self,
        walk: &mut Walk<'_>,
        mut policy: Policy,
        defaults: Vec<(Signal, ThresholdValue)>,
    ) -> (MonitorConfig, Option<bool>) {
        let arguments = self;
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
        policy.reservations.system = arguments.reserved(walk, "system-reserved");
        policy.reservations.kube = arguments.reserved(walk, "kube-reserved");

        let pods = arguments.pods_enforced(walk);
        let rules = Rules {
            quirks: policy.quirks,
            defaults,
            merge_defaults: false,
            pods: if matches!(ignored, Some((_, true))) { PodsThreshold::Off } else { pods },
            style: Style::Arguments,
        };
        arguments.threshold_fields(walk).assemble(walk, &rules, &mut policy);
        let is_ignored = ignored.map(|(_, is_ignored)| is_ignored);
        (MonitorConfig { policy, ..MonitorConfig::default() }, is_ignored)
    }

    pub fn read(walk: &mut Walk<'_>, field: &Field<'n>) -> Self {
        if let Value::Scalar { text, .. } = &field.node.value
            && let Some((name, value)) = text.split_once('=')
        {
            let (shown, value) = (text.as_str(), value.trim().trim_matches('"'));
            let reason = "OpenShift reads only a map from arguments to lists of values here";
            let fix = format!("write `{}: [\"{value}\"]` below it", name.trim());
            walk.warning(field, reason, &fix);
            return Self(vec![(name.trim(), vec![Item { field: field.clone(), text: value, shown }])]);
        }
        let fields = walk.known_fields(field, NAMES);
        let mut arguments = Vec::new();
        for (name, field) in fields.iter() {
            let fix = "write a list of values in quotes";
            let values = match &field.node.value {
                Value::Null => Vec::new(),
                // One value instead of a list of one is accepted.
                Value::Scalar { .. } => vec![field],
                _ => walk.list(&field, "values", fix),
            };
            let items = values.into_iter().filter_map(|field| Item::read(walk, field, fix));
            arguments.push((name, items.collect()));
        }
        Self(arguments)
    }

    pub fn items(&self, name: &str) -> &[Item<'n>] {
        self.0.iter().find(|(known, _)| *known == name).map_or(&[], |(_, items)| items)
    }

    /// Reads an argument with a single value. Of several values the last counts.
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
                Err(reason) => item.error(walk, reason, &format!("write e.g. {example}")),
            }
        }
        last
    }

    /// Splits values into names and texts. Of several texts with one name the last counts.
    pub fn pairs(&self, walk: &mut Walk<'_>, name: &str, separator: char, fix: &str) -> Vec<(&'n str, Item<'n>)> {
        let mut pairs: Vec<(&'n str, Item<'n>)> = Vec::new();
        let mut places = HashMap::new();
        for item in self.items(name) {
            for shown in item.text.split(',').filter(|text| !text.is_empty()) {
                let Some((key, text)) = shown.split_once(separator) else {
                    let reason = format!("malformed pair, expect string{separator}string");
                    let item = Item { text: shown, shown, ..item.clone() };
                    let fix = pair_fix(shown, separator, fix);
                    item.error(walk, reason, &fix);
                    // `>` may be meant as the opposite.
                    if let Some(new) =
                        fix.strip_prefix("write ").filter(|new| !new.contains(' ') && !shown.contains('>'))
                    {
                        walk.mend_text(&item.field, shown, new.to_owned(), None);
                    }
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
        for (key, item) in self.pairs(walk, name, separator, fix) {
            match key.parse::<Signal>() {
                Ok(signal) => entries.push(Entry { signal, item }),
                Err(error) => {
                    let known = Signal::ALL.map(Signal::as_str);
                    let fix = walk.propose(key, &known);
                    item.error(walk, error.to_string(), &fix);
                    if let Some(signal) = only_near(key, &known) {
                        let change = Change::Replace(item.shown.to_owned(), item.shown.replacen(key, signal, 1));
                        walk.mend(&item.field.path, item.field.node, change, None);
                    }
                }
            }
        }
        entries
    }

    fn threshold_fields(&self, walk: &mut Walk<'_>) -> ThresholdFields<'n> {
        let hard = self.entries(walk, "eviction-hard", '<', THRESHOLD_FIX);
        let first = self.items("eviction-hard").first();
        ThresholdFields {
            // The argument replaces the defaults even when its value is empty.
            hard: first.map(|first| (Field { path: without_index(&first.field.path), node: first.field.node }, hard)),
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

    fn pods_enforced(&self, walk: &mut Walk<'_>) -> PodsThreshold {
        let given = self.items("enforce-node-allocatable");
        let mut scopes = Vec::new();
        for item in given {
            let texts = item.text.split(',').map(str::trim).filter(|text| !text.is_empty());
            scopes.extend(texts.map(|text| Item { text, shown: text, ..item.clone() }));
        }
        if given.is_empty() { PodsThreshold::Written } else { pods_enforced(walk, &scopes) }
    }

    /// Records warnings about what is valid, but probably not intended.
    fn advise(&self, walk: &mut Walk<'_>) {
        if let Some((item, false)) = self.last(walk, "fail-swap-on", "true", boolean) {
            item.warning(walk, SWAP, SWAP_FIX);
        }
        if let Some((item, true)) = self.last(walk, "kernel-memcg-notification", "false", boolean) {
            item.warning(walk, NO_NOTIFICATION, "leave it out");
        }
    }

    /// Warns where the reserved memory is below the largest threshold, so that the scheduler places pods on memory that evictions keep free.
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
            item.warning(walk, reason, fix);
        }
    }
}

/// Returns what to write where the separator is missing or another one.
fn pair_fix(text: &str, separator: char, otherwise: &str) -> String {
    let parts: Vec<&str> = text.split(['<', '=', ':', ' ', '>']).filter(|part| !part.is_empty()).collect();
    match parts[..] {
        [name, value] => format!("write {name}{separator}{value}"),
        _ => otherwise.to_owned(),
    }
}

/// Returns the path of a list from that of its item.
fn without_index(path: &str) -> String {
    path.split('[').next().unwrap_or_default().to_owned()
}

/// Parses a boolean as Go parses flags.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

#[cfg(test)]
#[path = "openshift3_tests.rs"]
mod tests;
