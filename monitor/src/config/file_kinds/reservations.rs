//! Settings that every kind of file has: reservations, what node allocatable is enforced on, and the warning about swap.

use crate::config::amount_mistakes::{Meant, explain, meant};
use crate::config::document_walk::{Change, Field, Fields, Shape, Walk};
use crate::config::yaml::Node;
use crate::units::Quantity;

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
const ENFORCED: [&str; 6] =
    ["none", "pods", "system-reserved", "kube-reserved", "system-reserved-compressible", "kube-reserved-compressible"];

/// The warning where a node may use swap.
pub const SWAP: &str = "swap may be used on this node, and evictions do not see it: swap neither adds to memory.available nor counts as \
                        used; swapped memory leaves the working set, so memory.available stays high while the node thrashes, \
                        and MemoryPressure may never be reported";
pub const SWAP_FIX: &str = "switch swap off where evictions are to protect memory";

/// A text within a field's value, such as one item of a list on a command line.
#[derive(Debug, Clone)]
pub struct Item<'n> {
    pub field: Field<'n>,
    pub text: &'n str,
    /// The text that messages repeat.
    pub shown: &'n str,
}

impl<'n> Item<'n> {
    /// Reads a field whose whole value is the text.
    pub fn read(walk: &mut Walk<'_>, field: Field<'n>, fix: &str) -> Option<Self> {
        let text = walk.text(&field, fix)?;
        Some(Self { field, text, shown: text })
    }

    pub fn error(&self, walk: &mut Walk<'_>, reason: impl Into<String>, fix: &str) {
        walk.error_at(&self.field.path, self.field.node, Some(self.shown), reason, fix);
    }

    /// Records that another text can stand in the place of this one.
    pub fn mend(&self, walk: &mut Walk<'_>, meant: Meant) {
        let Some(before) = self.shown.trim_end().strip_suffix(self.text) else { return };
        let change = Change::Replace(self.shown.trim_end().to_owned(), format!("{before}{}", meant.text));
        walk.mend(&self.field.path, self.field.node, change, meant.assumption);
    }

    pub fn warning(&self, walk: &mut Walk<'_>, reason: impl Into<String>, fix: &str) {
        walk.warning_at(&self.field.path, self.field.node, Some(self.shown), reason, fix);
    }
}

pub fn reserved_map(walk: &mut Walk<'_>, fields: &Fields<'_>, name: &str) -> Vec<(String, Quantity)> {
    let Some(field) = fields.get(name) else {
        return Vec::new();
    };
    let map = walk.fields_or(&field, &RESERVABLE, |name| format!("{name} cannot be reserved"));
    let mut amounts = Vec::new();
    for (resource, field) in map.iter() {
        let amount = Item::read(walk, field, "write e.g. 1Gi").and_then(|item| reserved(walk, resource, &item));
        amounts.extend(amount.map(|amount| (resource.to_owned(), amount)));
    }
    amounts
}

pub fn reserved(walk: &mut Walk<'_>, resource: &str, item: &Item<'_>) -> Option<Quantity> {
    if !RESERVABLE.contains(&resource) {
        let fix = "what can: cpu, memory, ephemeral-storage, pid";
        item.error(walk, format!("{resource} cannot be reserved"), fix);
        return None;
    }
    walk.describe(&item.field, || Shape::Amount);
    let otherwise = "write e.g. 500m for cpu, 1Gi for memory, 1000 for pid";
    let (reason, fix) = match Quantity::parse(item.text) {
        Ok(amount) if amount.is_negative() => ("a reserved amount cannot be negative".to_owned(), otherwise.to_owned()),
        Ok(amount) => return Some(amount),
        Err(_) if item.text.trim_end().ends_with('%') => share(resource, item.text),
        Err(error) => explain(item.text, &error, otherwise),
    };
    item.error(walk, reason, &fix);
    if let Some(meant) = meant(item.text).filter(|meant| Quantity::parse(&meant.text).is_ok_and(|it| !it.is_negative()))
    {
        item.mend(walk, meant);
    }
    None
}

/// Returns the reason against a reservation in per cent, and what it is on a node for example.
fn share(resource: &str, text: &str) -> (String, String) {
    let reason = "a reservation is an amount: only thresholds can be percentages".to_owned();
    let (whole, unit, node) = match resource {
        "cpu" => (4000.0, "m", "4 CPUs"),
        "pid" => (32768.0, "", "32768 process ids"),
        _ => (10240.0, "Mi", "10Gi"),
    };
    let percent = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    let fix = match percent.filter(|percent| (0.0..=100.0).contains(percent)) {
        Some(percent) => {
            let amount = (whole * percent / 100.0).round();
            format!("write the amount for each size of node: on one with {node}, {percent}% is {amount}{unit}")
        }
        None => "write the amount for each size of node, e.g. 500m of cpu, 1Gi of memory, 1000 of pid".to_owned(),
    };
    (reason, fix)
}

/// Whether hard thresholds on memory count for the cgroup of all pods too (`enforceNodeAllocatable`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodsThreshold {
    /// The list is written without `pods`.
    Off,
    /// The field is absent from a file with the agent's own rules. They count where that cgroup has a limit, and give way to a threshold that
    /// is written for it.
    ByDefault,
    /// `pods` is in the list, or the kubelet's default puts it there.
    Written,
}

/// Checks the items of `enforceNodeAllocatable`, and returns whether `pods` is among them.
pub fn pods_enforced(walk: &mut Walk<'_>, items: &[Item<'_>]) -> PodsThreshold {
    let others = items.iter().any(|item| item.text != "none");
    for item in items {
        walk.describe(&item.field, || Shape::Choice(ENFORCED.map(str::to_owned).to_vec()));
        if !ENFORCED.contains(&item.text) {
            item.error(walk, "not one of the choices", &format!("write {}", ENFORCED.join(" or ")));
        } else if item.text == "none" && others {
            item.error(walk, "cannot stand with others", "leave out either none or everything else");
        }
    }
    if items.iter().any(|item| item.text == "pods") { PodsThreshold::Written } else { PodsThreshold::Off }
}

/// Reads `enforceNodeAllocatable`. Returns `absent` where the field is absent.
pub fn enforced_field(walk: &mut Walk<'_>, fields: &Fields<'_>, absent: PodsThreshold) -> PodsThreshold {
    const FIX: &str = "write e.g. [pods], or [] for nothing";
    let Some(field) = fields.get("enforceNodeAllocatable") else {
        return absent;
    };
    let list = walk.list(&field, "names", FIX);
    let items: Vec<_> = list.into_iter().filter_map(|field| Item::read(walk, field, FIX)).collect();
    pods_enforced(walk, &items)
}

/// Records an error where `apiVersion` or `kind` is missing or has another value.
pub fn check_header(
    walk: &mut Walk<'_>,
    fields: &Fields<'_>,
    document: &Node,
    api_version: &'static str,
    kind: &'static str,
) {
    for (name, expected) in [("apiVersion", api_version), ("kind", kind)] {
        walk.require("", name);
        match fields.get(name) {
            Some(field) => drop(walk.choice(&field, &[(expected, ())])),
            None => {
                walk.error_at(name, document, None, "missing", &format!("add `{name}: {expected}`"));
                walk.mend(name, document, Change::AddField(name, expected), None);
            }
        }
    }
}
