//! The four fields of which thresholds consist, in the form of every kind of file.

use std::time::Duration;

use super::reservations::{Item, PodsThreshold};
use crate::config::amount_mistakes::{explain, meant, meant_duration};
use crate::config::document_walk::{ASSUMED_GRACE, Change, Field, Fields, Shape, Walk};
use crate::config::policy::Policy;
use crate::config::quirks::Quirks;
use crate::config::threshold::{
    Percentage, ThresholdError, ThresholdLists, ThresholdValue, parse_grace_period, parse_min_reclaim,
    parse_threshold_value,
};
use crate::units::{Resource, Signal, UnsupportedSignal};

const THRESHOLD_FIX: &str = "write e.g. 100Mi or 10%";
const GRACE_FIX: &str = "write e.g. 1m30s";
/// A threshold on bytes below this is a number without its unit.
const LEAST_BYTES: i64 = 1 << 20;
/// The reason against a threshold above half of the capacity.
pub const ABOVE_HALF: &str =
    "above half of the capacity: the agent does not evict for it, and a kubelet evicts one pod after another";
const RECLAIM_FIX: &str = "write e.g. 100Mi or 5%";

/// The text of one signal in one of the fields.
#[derive(Debug, Clone)]
pub struct Entry<'n> {
    pub signal: Signal,
    pub item: Item<'n>,
}

/// The four fields as written.
#[derive(Debug, Default)]
pub struct ThresholdFields<'n> {
    /// `None` where the field is absent, which differs from an empty field.
    pub hard: Option<(Field<'n>, Vec<Entry<'n>>)>,
    pub soft: Vec<Entry<'n>>,
    pub grace: Vec<Entry<'n>>,
    pub reclaim: Vec<Entry<'n>>,
}

/// How a file writes the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Maps,
    Arguments,
}

#[derive(Debug)]
pub struct Rules {
    pub quirks: Quirks,
    /// The hard thresholds of a file without `evictionHard`.
    pub defaults: Vec<(Signal, ThresholdValue)>,
    /// Whether `evictionHard` keeps the defaults that it does not name.
    pub merge_defaults: bool,
    pub pods: PodsThreshold,
    pub style: Style,
}

impl<'n> ThresholdFields<'n> {
    /// Reads the fields of a `KubeletConfiguration` or a `MonitorConfiguration`.
    pub fn from_maps(walk: &mut Walk<'_>, fields: &Fields<'n>) -> Self {
        let mut list = |name: &str, fix: &str| fields.get(name).map(|field| signals(walk, field, fix));
        let hard = list("evictionHard", THRESHOLD_FIX);
        let mut entries = |name, fix| list(name, fix).map_or_else(Vec::new, |(_, entries)| entries);
        Self {
            hard,
            soft: entries("evictionSoft", THRESHOLD_FIX),
            grace: entries("evictionSoftGracePeriod", GRACE_FIX),
            reclaim: entries("evictionMinimumReclaim", RECLAIM_FIX),
        }
    }

    fn hard(&self) -> &[Entry<'n>] {
        self.hard.as_ref().map_or(&[], |(_, entries)| entries)
    }

    /// Sets the thresholds of the policy, and records errors and warnings about them.
    pub fn assemble(&self, walk: &mut Walk<'_>, rules: &Rules, policy: &mut Policy) {
        let by_default =
            rules.pods == PodsThreshold::ByDefault && !names(self.hard(), Signal::AllocatableMemoryAvailable);
        let pods_enforced = by_default || rules.pods == PodsThreshold::Written;
        let mut lists = ThresholdLists { pods_enforced, ..ThresholdLists::default() };
        lists.hard = values(walk, self.hard(), true, rules.quirks)
            .into_iter()
            .map(|(entry, value)| (entry.signal, value))
            .collect();
        if self.hard.is_none() || rules.merge_defaults {
            let absent = rules.defaults.iter().filter(|(signal, _)| !names(self.hard(), *signal));
            lists.hard.extend(absent.cloned());
        }
        let soft = values(walk, &self.soft, false, rules.quirks);
        lists.soft = soft.iter().map(|(entry, value)| (entry.signal, value.clone())).collect();
        // The fields are maps, so the order in which they are written must not decide which workload is evicted.
        lists.hard.sort_by_key(|(signal, _)| signal.as_str());
        lists.soft.sort_by_key(|(signal, _)| signal.as_str());
        for entry in &self.grace {
            walk.describe(&entry.item.field, || Shape::GracePeriod);
            let parsed = parse_grace_period(entry.item.text);
            if let Err(error) = &parsed {
                entry.item.error(walk, error.to_string(), GRACE_FIX);
                if let Some(meant) = meant_duration(entry.item.text) {
                    entry.item.mend(walk, meant);
                }
            }
            // An invalid grace period must not be reported as missing too.
            lists.grace_periods.insert(entry.signal, parsed.unwrap_or_default());
        }
        for entry in &self.reclaim {
            walk.describe(&entry.item.field, || Shape::MinimumReclaim);
            match parse_min_reclaim(entry.signal, entry.item.text) {
                Ok(value) => {
                    advise_suffix(walk, entry, &value);
                    lists.min_reclaims.insert(entry.signal, value);
                }
                Err(error) => {
                    let (reason, fix) = mistake(entry.item.text, &error, RECLAIM_FIX);
                    entry.item.error(walk, reason, &fix);
                    let is_valid = |text: &str| parse_min_reclaim(entry.signal, text).is_ok();
                    if let Some(meant) = meant(entry.item.text).filter(|meant| is_valid(&meant.text)) {
                        entry.item.mend(walk, meant);
                    }
                }
            }
        }
        policy.thresholds = lists.assemble().unwrap_or_else(|errors| {
            for error in errors {
                let ThresholdError::GraceMissing(missing) = error else { continue };
                if let Some(entry) = self.soft.iter().find(|entry| entry.signal == missing) {
                    entry.item.error(walk, error.to_string(), &rules.style.add_grace(missing));
                    if rules.style == Style::Maps {
                        let assumption = format!(
                            "{ASSUMED_GRACE} is a guess: how long the threshold must be met before an eviction"
                        );
                        let Field { path, node } = &entry.item.field;
                        walk.mend(path, node, Change::AddGrace(missing), Some(assumption));
                    }
                }
            }
            Vec::new()
        });
        policy.hard_count = lists.hard.len();
        (policy.pods_enforced, policy.pods_by_default) = (pods_enforced, by_default);
        self.advise(walk, rules, &lists, &soft);
    }

    /// Records warnings about what is valid, but probably not intended.
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
                entry.item.warning(walk, reason, "write a threshold for nodefs or imagefs instead");
            }
        }
        for (entry, value) in soft {
            let hard = lists.hard.iter().find(|(signal, hard)| *signal == entry.signal && at_or_below(value, hard));
            if let Some((_, hard)) = hard {
                let reason =
                    format!("not above the hard threshold of {hard}, which is met no later and evicts at once");
                entry.item.warning(walk, reason, "raise the soft threshold, or leave it out");
            }
        }
        for entry in &self.grace {
            if !names(&self.soft, entry.signal) {
                let reason = "has no effect: there is no soft threshold for this signal";
                entry.item.warning(walk, reason, &format!("add one to {}, or leave this out", rules.style.soft()));
            } else if lists.grace_periods.get(&entry.signal).is_some_and(Duration::is_zero)
                && parse_grace_period(entry.item.text).is_ok()
            {
                entry.item.warning(walk, "without a grace period the soft threshold is a hard one", GRACE_FIX);
            }
        }
        for entry in &self.reclaim {
            let given = names(self.hard(), entry.signal) || names(&self.soft, entry.signal);
            if !given && !lists.hard.iter().any(|(signal, _)| *signal == entry.signal) {
                let reason = "has no effect: there is no threshold for this signal";
                entry.item.warning(walk, reason, "add a threshold, or leave this out");
            }
        }
        // An empty field replaces the defaults on purpose.
        if let Some((field, entries)) =
            self.hard.as_ref().filter(|(_, entries)| !rules.merge_defaults && !entries.is_empty())
        {
            let absent = rules.defaults.iter().filter(|(signal, _)| !names(entries, *signal));
            let absent: Vec<_> = absent.map(|(signal, value)| format!("{signal}<{value}")).collect();
            if !absent.is_empty() {
                let reason = format!("replaces all default thresholds; no longer in force: {}", absent.join(", "));
                walk.warning_at(&field.path, field.node, None, reason, rules.style.keep_defaults());
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

/// Returns whether the soft threshold is not above the hard one. Without a capacity, quantities and percentages cannot be compared.
fn at_or_below(soft: &ThresholdValue, hard: &ThresholdValue) -> bool {
    match (soft, hard) {
        (ThresholdValue::Quantity(soft), ThresholdValue::Quantity(hard)) => soft <= hard,
        (ThresholdValue::Percentage(soft), ThresholdValue::Percentage(hard)) => soft.fraction <= hard.fraction,
        _ => false,
    }
}

/// Parses the values of hard or soft thresholds, without those that are switched off.
fn values<'e, 'n>(
    walk: &mut Walk<'_>,
    entries: &'e [Entry<'n>],
    is_hard: bool,
    quirks: Quirks,
) -> Vec<(&'e Entry<'n>, ThresholdValue)> {
    let mut values = Vec::new();
    for entry in entries {
        walk.describe(&entry.item.field, || Shape::Threshold);
        match parse_threshold_value(entry.signal, entry.item.text, quirks) {
            Ok(None) => {}
            Ok(Some(value)) => {
                advise_value(walk, entry, &value);
                walk.note_threshold(entry.signal, is_hard, &entry.item.field, entry.item.shown);
                values.push((entry, value));
            }
            Err(error) => {
                let always = "to switch it off, write exactly 100%; else write e.g. 10%";
                let (reason, fix) = match &error {
                    ThresholdError::AlwaysMet(..) => (error.to_string(), always.to_owned()),
                    error => mistake(entry.item.text, error, THRESHOLD_FIX),
                };
                entry.item.error(walk, reason, &fix);
                let is_valid = |text: &str| parse_threshold_value(entry.signal, text, quirks).is_ok();
                if let Some(meant) = meant(entry.item.text).filter(|meant| is_valid(&meant.text)) {
                    entry.item.mend(walk, meant);
                }
            }
        }
    }
    values
}

/// Returns the reason against a value and the fix.
fn mistake(text: &str, error: &ThresholdError, otherwise: &str) -> (String, String) {
    match error {
        ThresholdError::Quantity(error) => explain(text, error, otherwise),
        ThresholdError::Float(_) if text.contains(',') || text.contains(' ') => {
            let plain = text.replace(',', ".").replace(' ', "");
            ("a percentage has a decimal point and no blank".to_owned(), format!("write {plain}"))
        }
        _ => (error.to_string(), otherwise.to_owned()),
    }
}

/// Warns about a threshold that is valid, but cannot be meant.
fn advise_value(walk: &mut Walk<'_>, entry: &Entry<'_>, value: &ThresholdValue) {
    let fix = |fix: &str| fix.to_owned();
    let (reason, fix) = match value {
        ThresholdValue::Percentage(Percentage { fraction, .. }) if *fraction >= 1.0 => {
            ("always met: it evicts one pod after another", fix("to switch it off, write exactly 100%"))
        }
        ThresholdValue::Percentage(Percentage { fraction, .. }) if *fraction <= 0.0 => {
            ("never met", fix("to switch it off, write exactly 0%"))
        }
        ThresholdValue::Percentage(Percentage { percent, .. }) if *percent > 50.0 => {
            (ABOVE_HALF, fix("write e.g. 10%; if it is meant, set evictions.actOnPresentPressure: true"))
        }
        ThresholdValue::Quantity(quantity) if quantity.amount().units() < LEAST_BYTES && is_bytes(entry) => {
            let meant = entry.item.text.trim_start_matches('+');
            let is_number = meant.bytes().all(|byte| byte.is_ascii_digit());
            let fix = if is_number { format!("write e.g. {meant}Mi or {meant}%") } else { fix(THRESHOLD_FIX) };
            ("less than 1 MiB: the node has nothing left before the threshold is met", fix)
        }
        ThresholdValue::Quantity(quantity) if quantity.amount().units() >= most(entry.signal) => {
            ("more than any node has: the threshold is always met", fix("correct the value, e.g. 500Mi or 10%"))
        }
        _ => return advise_suffix(walk, entry, value),
    };
    entry.item.warning(walk, reason, &fix);
}

/// Returns an amount that no node has.
fn most(signal: Signal) -> i64 {
    match signal.resource() {
        // x86-64 with four levels of page tables has at most 64 TiB of physical memory.
        Resource::Memory => 64 << 40,
        Resource::EphemeralStorage => 512 << 40,
        // PID_MAX_LIMIT of include/linux/threads.h.
        Resource::Pids => 1 << 22,
        _ => i64::MAX,
    }
}

fn is_bytes(entry: &Entry<'_>) -> bool {
    entry.signal.resource().is_bytes()
}

/// Warns about a binary suffix where no bytes are counted.
fn advise_suffix(walk: &mut Walk<'_>, entry: &Entry<'_>, value: &ThresholdValue) {
    if let ThresholdValue::Quantity(quantity) = value
        && quantity.is_binary()
        && !is_bytes(entry)
    {
        let what = match entry.signal.resource() {
            Resource::Pids => "process ids",
            _ => "inodes",
        };
        let reason = format!("{} {what}: Ki, Mi and Gi are for bytes", grouped(quantity.value_bytes()));
        entry.item.warning(walk, reason, "write e.g. 5%, or a number such as 100k");
    }
}

/// Returns a number with a comma between each three digits.
fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let comma = |(place, digit): (usize, char)| {
        let is_start = place == 0 || !(digits.len() - place).is_multiple_of(3);
        if is_start { String::from(digit) } else { format!(",{digit}") }
    };
    digits.chars().enumerate().map(comma).collect()
}

fn signals<'n>(walk: &mut Walk<'_>, field: Field<'n>, fix: &str) -> (Field<'n>, Vec<Entry<'n>>) {
    let names = Signal::ALL.map(Signal::as_str);
    let fields = walk.fields_or(&field, &names, |name| UnsupportedSignal(name.to_owned()).to_string());
    let entries = fields
        .iter()
        .filter_map(|(name, field)| Some(Entry { signal: name.parse().ok()?, item: Item::read(walk, field, fix)? }));
    let entries = entries.collect();
    (field, entries)
}
