//! The four lists of thresholds, in whichever form a file writes them.

use std::time::Duration;

use crate::config::document_walk::{Fields, Walk};
use crate::config::policy::Policy;
use crate::config::quirks::Quirks;
use crate::config::threshold::{
    ThresholdError, ThresholdLists, ThresholdValue, parse_grace_period, parse_min_reclaim, parse_threshold_value,
};
use crate::config::yaml::Node;
use crate::units::signal::{Signal, UnsupportedSignal};

const THRESHOLD_FIX: &str = "write e.g. 100Mi or 10%";
const GRACE_FIX: &str = "write e.g. 1m30s";
const RECLAIM_FIX: &str = "write e.g. 100Mi or 5%";

/// What a list says of one signal, and where.
#[derive(Debug, Clone)]
pub struct Entry<'n> {
    /// The signal.
    pub signal: Signal,
    /// The path to it.
    pub field: String,
    /// Where it stands.
    pub node: &'n Node,
    /// What is said.
    pub text: &'n str,
    /// What is shown of it in messages.
    pub shown: &'n str,
}

/// The lists as written.
#[derive(Debug, Default)]
pub struct Lists<'n> {
    /// Hard thresholds, and where they begin; not the same when absent as when empty.
    pub hard: Option<(String, &'n Node, Vec<Entry<'n>>)>,
    /// Soft thresholds.
    pub soft: Vec<Entry<'n>>,
    /// Their grace periods.
    pub grace: Vec<Entry<'n>>,
    /// Minimum reclaims.
    pub reclaim: Vec<Entry<'n>>,
}

/// How a file writes the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As fields with a map each.
    Maps,
    /// As arguments of a command line.
    Arguments,
}

/// What applies beside the lists.
#[derive(Debug)]
pub struct Rules {
    /// Which of the kubelet's quirks are reproduced.
    pub quirks: Quirks,
    /// The hard thresholds where none are given.
    pub defaults: Vec<(Signal, ThresholdValue)>,
    /// Whether those are added that are not given.
    pub merge_defaults: bool,
    /// Whether the pods' own cgroup is limited.
    pub pods_enforced: bool,
    /// How the file writes the lists.
    pub style: Style,
}

impl<'n> Lists<'n> {
    /// Takes the lists from the fields of a `KubeletConfiguration`.
    pub fn from_maps(walk: &mut Walk<'_>, fields: &Fields<'n>) -> Self {
        let hard = fields.get("evictionHard").map(|(path, node)| {
            let entries = signals(walk, &path, node, THRESHOLD_FIX);
            (path, node, entries)
        });
        let mut list = |name: &str, fix: &str| {
            fields.get(name).map(|(path, node)| signals(walk, &path, node, fix)).unwrap_or_default()
        };
        Self {
            hard,
            soft: list("evictionSoft", THRESHOLD_FIX),
            grace: list("evictionSoftGracePeriod", GRACE_FIX),
            reclaim: list("evictionMinimumReclaim", RECLAIM_FIX),
        }
    }

    fn hard(&self) -> &[Entry<'n>] {
        self.hard.as_ref().map_or(&[], |(_, _, entries)| entries)
    }

    /// Puts the thresholds of the policy together, noting what is wrong with them and what was hardly meant.
    pub fn assemble(&self, walk: &mut Walk<'_>, rules: &Rules, policy: &mut Policy) {
        let mut lists = ThresholdLists { pods_enforced: rules.pods_enforced, ..ThresholdLists::default() };
        lists.hard =
            values(walk, self.hard(), rules.quirks).into_iter().map(|(entry, value)| (entry.signal, value)).collect();
        if self.hard.is_none() || rules.merge_defaults {
            let absent = rules.defaults.iter().filter(|(signal, _)| !names(self.hard(), *signal));
            lists.hard.extend(absent.cloned());
        }
        let soft = values(walk, &self.soft, rules.quirks);
        lists.soft = soft.iter().map(|(entry, value)| (entry.signal, value.clone())).collect();
        // The lists are maps: in which order they are written must not decide who is evicted.
        lists.hard.sort_by_key(|(signal, _)| signal.as_str());
        lists.soft.sort_by_key(|(signal, _)| signal.as_str());
        for entry in &self.grace {
            let parsed = parse_grace_period(entry.text);
            if let Err(error) = &parsed {
                refuse(walk, entry, error.to_string(), GRACE_FIX);
            }
            // A bad one is there nevertheless: do not call it missing too.
            lists.grace_periods.insert(entry.signal, parsed.unwrap_or_default());
        }
        for entry in &self.reclaim {
            match parse_min_reclaim(entry.signal, entry.text) {
                Ok(value) => drop(lists.min_reclaims.insert(entry.signal, value)),
                Err(error) => refuse(walk, entry, error.to_string(), RECLAIM_FIX),
            }
        }
        policy.thresholds = lists.assemble().unwrap_or_else(|errors| {
            for error in errors {
                let ThresholdError::GraceMissing(missing) = error else { continue };
                if let Some(entry) = self.soft.iter().find(|entry| entry.signal == missing) {
                    refuse(walk, entry, error.to_string(), &rules.style.add_grace(missing));
                }
            }
            Vec::new()
        });
        policy.hard_count = lists.hard.len();
        policy.pods_enforced = lists.pods_enforced;
        self.advise(walk, rules, &lists, &soft);
    }

    /// Notes what is legal and can hardly be meant.
    fn advise(
        &self,
        walk: &mut Walk<'_>,
        rules: &Rules,
        lists: &ThresholdLists,
        soft: &[(&Entry<'n>, ThresholdValue)],
    ) {
        for entry in self.hard().iter().chain(&self.soft) {
            if matches!(entry.signal, Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree) {
                let reason = "has no effect: containerfs has the thresholds of the filesystem that it is on";
                warn(walk, entry, reason, "write a threshold for nodefs or imagefs instead");
            }
        }
        for (entry, value) in soft {
            let hard = lists.hard.iter().find(|(signal, hard)| *signal == entry.signal && at_or_below(value, hard));
            if let Some((_, hard)) = hard {
                let reason =
                    format!("not above the hard threshold of {hard}, which is met no later and evicts at once");
                warn(walk, entry, &reason, "raise the soft threshold, or leave it out");
            }
        }
        for entry in &self.grace {
            if !names(&self.soft, entry.signal) {
                let reason = "has no effect: there is no soft threshold for this signal";
                warn(walk, entry, reason, &format!("add one to {}, or leave this out", rules.style.soft()));
            } else if lists.grace_periods.get(&entry.signal).is_some_and(Duration::is_zero)
                && parse_grace_period(entry.text).is_ok()
            {
                warn(walk, entry, "without a grace period the soft threshold is a hard one", GRACE_FIX);
            }
        }
        for entry in &self.reclaim {
            let given = names(self.hard(), entry.signal) || names(&self.soft, entry.signal);
            if !given && !lists.hard.iter().any(|(signal, _)| *signal == entry.signal) {
                let reason = "has no effect: there is no threshold for this signal";
                warn(walk, entry, reason, "add a threshold, or leave this out");
            }
        }
        // None at all is said on purpose.
        if let Some((field, node, entries)) =
            self.hard.as_ref().filter(|(.., entries)| !rules.merge_defaults && !entries.is_empty())
        {
            let absent = rules.defaults.iter().filter(|(signal, _)| !names(entries, *signal));
            let absent: Vec<_> = absent.map(|(signal, value)| format!("{signal}<{value}")).collect();
            if !absent.is_empty() {
                let reason = format!("replaces all default thresholds; not watched any more: {}", absent.join(", "));
                walk.warning_in(field, node, None, reason, rules.style.keep_defaults());
            }
        }
    }
}

impl Style {
    const fn soft(self) -> &'static str {
        match self {
            Self::Maps => "evictionSoft",
            Self::Arguments => "eviction-soft",
        }
    }

    fn add_grace(self, signal: Signal) -> String {
        match self {
            Self::Maps => format!("add `{signal}: 30s` to evictionSoftGracePeriod"),
            Self::Arguments => format!("add `{signal}=30s` to eviction-soft-grace-period"),
        }
    }

    const fn keep_defaults(self) -> &'static str {
        match self {
            Self::Maps => "add them, set mergeDefaultEvictionSettings: true, or switch them off by name with 0%",
            Self::Arguments => "add them, or switch them off by name with 0%",
        }
    }
}

fn names(entries: &[Entry<'_>], signal: Signal) -> bool {
    entries.iter().any(|entry| entry.signal == signal)
}

/// Only values of the same sort can be compared without a capacity.
fn at_or_below(soft: &ThresholdValue, hard: &ThresholdValue) -> bool {
    match (soft, hard) {
        (ThresholdValue::Quantity(soft), ThresholdValue::Quantity(hard)) => soft <= hard,
        (ThresholdValue::Percentage(soft), ThresholdValue::Percentage(hard)) => soft.fraction <= hard.fraction,
        _ => false,
    }
}

/// Returns the values of hard or soft thresholds, without those that are switched off.
fn values<'e, 'n>(
    walk: &mut Walk<'_>,
    entries: &'e [Entry<'n>],
    quirks: Quirks,
) -> Vec<(&'e Entry<'n>, ThresholdValue)> {
    let mut values = Vec::new();
    for entry in entries {
        match parse_threshold_value(entry.signal, entry.text, quirks) {
            Ok(None) => {}
            Ok(Some(value)) => {
                if let ThresholdValue::Percentage(percentage) = &value {
                    if percentage.fraction >= 1.0 {
                        warn(
                            walk,
                            entry,
                            "always met: it evicts one pod after another",
                            "to switch it off, write exactly 100%",
                        );
                    } else if percentage.fraction <= 0.0 {
                        warn(walk, entry, "never met", "to switch it off, write exactly 0%");
                    }
                }
                values.push((entry, value));
            }
            Err(error) => {
                let fix = match error {
                    ThresholdError::PercentageAlwaysMet { .. } => {
                        "to switch it off, write exactly 100%; else write e.g. 10%"
                    }
                    _ => THRESHOLD_FIX,
                };
                refuse(walk, entry, error.to_string(), fix);
            }
        }
    }
    values
}

fn refuse(walk: &mut Walk<'_>, entry: &Entry<'_>, reason: String, fix: &str) {
    walk.error_in(&entry.field, entry.node, Some(entry.shown), reason, fix);
}

fn warn(walk: &mut Walk<'_>, entry: &Entry<'_>, reason: &str, fix: &str) {
    walk.warning_in(&entry.field, entry.node, Some(entry.shown), reason, fix);
}

/// Returns the entries of a map from signals to values.
fn signals<'n>(walk: &mut Walk<'_>, path: &str, node: &'n Node, fix: &str) -> Vec<Entry<'n>> {
    let names = Signal::ALL.map(Signal::as_str);
    let unsupported = |name: &str| UnsupportedSignal(name.to_owned()).to_string();
    let fields = walk.fields_or(path, node, &names, unsupported);
    let entries = fields.iter().filter_map(|(name, field, node)| {
        let signal = name.parse().ok()?;
        let text = walk.text(&field, node, fix)?;
        Some(Entry { signal, field, node, text, shown: text })
    });
    entries.collect()
}
