//! `pressureConditions` of our own kind of file.

use crate::config::document_walk::{Fields, Walk};
use crate::config::pressure_conditions::{
    PressureCondition, PressureKind, PressureLevel, PressureResource, PressureScope,
};
use crate::config::yaml::Node;

const FIELDS: [&str; 6] = ["condition", "scope", "resource", "kind", "set", "clear"];
/// Conditions that are somebody else's: Kubernetes', or this agent's own.
const TAKEN: [&str; 5] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];
/// Each is a series, and a file to read every two seconds.
const MOST: usize = 16;
const NAME_FIX: &str = "write e.g. SystemMemoryContentionPressure";
const LEVEL_FIX: &str = "write e.g. {level: 10%, for: 30s}";
const PERCENT_FIX: &str = "write e.g. 10%";

/// Reads the list. What is wrong with it is noted in `walk`.
pub fn read(walk: &mut Walk<'_>, fields: &Fields<'_>) -> Vec<PressureCondition> {
    let Some((path, node)) = fields.get("pressureConditions") else {
        return Vec::new();
    };
    let items = walk.list(&path, node, "conditions", "write a list, or [] for none");
    if items.len() > MOST {
        walk.error(&path, node, format!("more than {MOST} conditions"), "keep those that somebody acts on");
    }
    let mut conditions: Vec<PressureCondition> = Vec::new();
    for (index, item) in items.iter().take(MOST).enumerate() {
        let path = format!("{path}[{index}]");
        let Some(condition) = read_one(walk, &path, item) else { continue };
        if conditions.iter().any(|other| other.condition == condition.condition) {
            let fix = "give each condition a name of its own";
            walk.error_in(&format!("{path}.condition"), item, Some(&condition.condition), "given twice", fix);
        } else {
            conditions.push(condition);
        }
    }
    conditions
}

fn read_one(walk: &mut Walk<'_>, path: &str, node: &Node) -> Option<PressureCondition> {
    let fields = walk.fields(path, node, &FIELDS);
    // All at once: every mistake of it is to be told.
    let condition = required(walk, path, node, &fields, "condition", NAME_FIX).and_then(|found| name(walk, found));
    let scopes = PressureScope::ALL.map(|scope| (scope.as_str(), scope));
    let scope = choice(walk, path, node, &fields, "scope", &scopes);
    let resources = PressureResource::ALL.map(|resource| (resource.as_str(), resource));
    let resource = choice(walk, path, node, &fields, "resource", &resources);
    let kinds = PressureKind::ALL.map(|kind| (kind.as_str(), kind));
    let kind = choice(walk, path, node, &fields, "kind", &kinds);
    let set = required(walk, path, node, &fields, "set", LEVEL_FIX).and_then(|found| level(walk, found));
    let clear = required(walk, path, node, &fields, "clear", LEVEL_FIX).and_then(|found| level(walk, found));
    let found = PressureCondition {
        condition: condition?,
        scope: scope?,
        resource: resource?,
        kind: kind?,
        set: set?,
        clear: clear?,
    };
    if found.clear.share > found.set.share {
        let reason = "clear.level is above set.level: between them the condition would be set and cleared for ever";
        walk.error(path, node, reason, "write a clear.level that is not above set.level");
        return None;
    }
    if (found.scope, found.resource, found.kind) == (PressureScope::System, PressureResource::Cpu, PressureKind::Full) {
        let reason = "never true: the kernel keeps no full CPU pressure of the whole system";
        walk.error(path, node, reason, "write kind: some, or scope: kubepods");
        return None;
    }
    Some(found)
}

fn required<'n>(
    walk: &mut Walk<'_>,
    path: &str,
    node: &Node,
    fields: &Fields<'n>,
    name: &str,
    fix: &str,
) -> Option<(String, &'n Node)> {
    let found = fields.get(name);
    // When it is no map at all, that has been said.
    if found.is_none() && !walk.has_error_at(node) {
        walk.error_in(&format!("{path}.{name}"), node, None, "missing", fix);
    }
    found
}

fn choice<T: Clone>(
    walk: &mut Walk<'_>,
    path: &str,
    node: &Node,
    fields: &Fields<'_>,
    name: &str,
    choices: &[(&str, T)],
) -> Option<T> {
    let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
    let fix = format!("write {}", names.join(" or "));
    let (field, node) = required(walk, path, node, fields, name, &fix)?;
    walk.choice(&field, node, choices)
}

fn name(walk: &mut Walk<'_>, (field, node): (String, &Node)) -> Option<String> {
    let text = walk.text(&field, node, NAME_FIX)?;
    let is_camel_case = text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && text.len() <= 63;
    if !is_camel_case {
        walk.error(&field, node, "must be up to 63 letters and digits, the first one a capital", NAME_FIX);
        return None;
    }
    if TAKEN.contains(&text) {
        walk.error(&field, node, "the name of a condition that follows from something else", NAME_FIX);
        return None;
    }
    Some(text.to_owned())
}

fn level(walk: &mut Walk<'_>, (path, node): (String, &Node)) -> Option<PressureLevel> {
    let fields = walk.fields(&path, node, &["level", "for"]);
    let share = required(walk, &path, node, &fields, "level", PERCENT_FIX).and_then(|found| percent(walk, found));
    let lasting = required(walk, &path, node, &fields, "for", "write e.g. 30s")
        .and_then(|(field, node)| walk.duration(&field, node, "30s"));
    Some(PressureLevel { share: share?, lasting: lasting? })
}

/// Reads a percentage of time as a share.
pub fn percent(walk: &mut Walk<'_>, (field, node): (String, &Node)) -> Option<f64> {
    let text = walk.text(&field, node, PERCENT_FIX)?;
    let number =
        text.strip_suffix('%').filter(|number| number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    match number.and_then(|number| number.parse::<f64>().ok()) {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Some(percent / 100.0),
        _ => {
            walk.error(&field, node, "must be a percentage of time, above 0% and up to 100%", PERCENT_FIX);
            None
        }
    }
}

#[cfg(test)]
#[path = "pressure_tests.rs"]
mod tests;
