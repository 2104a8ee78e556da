//! Node conditions that follow from pressure stall information: `pressureConditions` of a `MonitorConfiguration`.

use std::time::Duration;

use super::document_walk::{Field, Fields, Shape, Walk};
use crate::units::named_enum;

/// Conditions that Kubernetes or this agent reports for other causes.
const TAKEN: [&str; 5] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];
/// Each condition costs a time series, and a file to read every two seconds.
const MOST: usize = 16;
const NAME_FIX: &str = "write e.g. SystemMemoryContentionPressure";
const LEVEL_FIX: &str = "write e.g. {level: 10%, for: 30s}";

named_enum! {
    /// The tasks that wait.
    pub enum PressureScope {
        System = "system",
        /// The tasks of all pods together. Needs cgroup v2.
        Kubepods = "kubepods",
    }
}

named_enum! {
    /// The resource that the tasks wait for, named as the kernel's pressure files.
    pub enum PressureResource {
        Memory = "memory",
        Io = "io",
        Cpu = "cpu",
    }
}

named_enum! {
    /// How many of the tasks wait, named as the lines of a pressure file.
    pub enum PressureKind {
        /// At least one.
        Some = "some",
        /// All that are not idle.
        Full = "full",
    }
}

/// A share of time, and how long it must last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PressureLevel {
    /// 0 to 1, compared with the average of the last ten seconds.
    pub share: f64,
    /// For how long without a break.
    pub lasting: Duration,
}

/// A node condition that the operator defines.
#[derive(Debug, Clone, PartialEq)]
pub struct PressureCondition {
    pub condition: String,
    pub scope: PressureScope,
    pub resource: PressureResource,
    pub kind: PressureKind,
    /// The condition becomes true when the average is at least this.
    pub set: PressureLevel,
    /// The condition becomes false when the average is below this.
    pub clear: PressureLevel,
}

pub fn read_pressure_conditions(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Vec<PressureCondition> {
    let Some(list) = fields.get("pressureConditions") else {
        return Vec::new();
    };
    let items = walk.list(&list, "conditions", "write a list, or [] for none");
    if items.len() > MOST {
        walk.error(&list, format!("more than {MOST} conditions"), "keep those that are used");
    }
    let mut conditions: Vec<PressureCondition> = Vec::new();
    for item in items.iter().take(MOST) {
        let Some(condition) = PressureCondition::read(walk, item) else { continue };
        if conditions.iter().any(|other| other.condition == condition.condition) {
            let (path, fix) = (format!("{}.condition", item.path), "give each condition a name of its own");
            walk.error_at(&path, item.node, Some(&condition.condition), "given twice", fix);
        } else {
            conditions.push(condition);
        }
    }
    conditions
}

impl PressureCondition {
    fn read(walk: &mut Walk<'_>, item: &Field<'_>) -> Option<Self> {
        let map = Map { item, fields: walk.fields(item, "condition scope resource kind set clear") };
        // Every field is read before the first missing one ends the function, so that each error is reported.
        let condition = map.required(walk, "condition", NAME_FIX).and_then(|field| name(walk, &field));
        let scope = map.choice(walk, "scope", &PressureScope::CHOICES);
        let resource = map.choice(walk, "resource", &PressureResource::CHOICES);
        let kind = map.choice(walk, "kind", &PressureKind::CHOICES);
        let set = map.required(walk, "set", LEVEL_FIX).and_then(|field| level(walk, &field));
        let clear = map.required(walk, "clear", LEVEL_FIX).and_then(|field| level(walk, &field));
        let (condition, scope, resource, kind) = (condition?, scope?, resource?, kind?);
        let found = Self { condition, scope, resource, kind, set: set?, clear: clear? };
        if found.clear.share > found.set.share {
            let reason = "clear.level is above set.level: between them the condition would be set and cleared for ever";
            walk.error(item, reason, "write a clear.level that is not above set.level");
            return None;
        }
        if (scope, resource, kind) == (PressureScope::System, PressureResource::Cpu, PressureKind::Full) {
            let reason = "never true: the kernel keeps no full CPU pressure of the whole system";
            walk.error(item, reason, "write kind: some, or scope: kubepods");
            return None;
        }
        Some(found)
    }
}

/// A map whose fields must all be given.
struct Map<'n, 'f> {
    item: &'f Field<'n>,
    fields: Fields<'n>,
}

impl<'n> Map<'n, '_> {
    fn required(&self, walk: &mut Walk<'_>, name: &str, fix: &str) -> Option<Field<'n>> {
        walk.require(&self.item.path, name);
        let found = self.fields.get(name);
        // Where the item is no map at all, that error is recorded already.
        if found.is_none() && !walk.has_error_at(self.item.node) {
            walk.error_at(&format!("{}.{name}", self.item.path), self.item.node, None, "missing", fix);
        }
        found
    }

    fn choice<T: Clone>(&self, walk: &mut Walk<'_>, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let field = self.required(walk, name, &format!("write {}", names.join(" or ")))?;
        walk.choice(&field, choices)
    }
}

fn name(walk: &mut Walk<'_>, field: &Field<'_>) -> Option<String> {
    walk.describe(field, || Shape::Pattern("^[A-Z][A-Za-z0-9]{0,62}$"));
    let text = walk.text(field, NAME_FIX)?;
    let is_camel_case = text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && text.len() <= 63;
    if !is_camel_case {
        walk.error(field, "must be up to 63 letters and digits, the first one a capital", NAME_FIX);
        return None;
    }
    if TAKEN.contains(&text) {
        walk.error(field, "the name of a condition that follows from something else", NAME_FIX);
        return None;
    }
    Some(text.to_owned())
}

fn level(walk: &mut Walk<'_>, item: &Field<'_>) -> Option<PressureLevel> {
    let map = Map { item, fields: walk.fields(item, "level for") };
    let share = map.required(walk, "level", "write e.g. 10%").and_then(|field| walk.percentage(&field));
    let lasting = map.required(walk, "for", "write e.g. 30s").and_then(|field| walk.duration(&field, "30s"));
    Some(PressureLevel { share: share?, lasting: lasting? })
}

#[cfg(test)]
#[path = "pressure_conditions_tests.rs"]
mod tests;
