//! Strategic merge patch: merges lists of objects by a key that the type declares, and replaces other lists.
//!
//! It follows `strategicpatch/patch.go` of apimachinery 1.36. The real server takes the keys from its types. A table by field name
//! suffices here for all served types.

use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// The way in which a patch changes a list field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Merge {
    /// Objects, each identified by this member.
    By(&'static str),
    /// Plain values, treated as a set.
    Set,
    /// The patch replaces the whole list.
    Replace,
}

fn merge_of(field: &str) -> Merge {
    match field {
        "conditions" | "addresses" => Merge::By("type"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "schedulingGates"
        | "resourceClaims"
        | "secrets" => Merge::By("name"),
        "ports" => Merge::By("containerPort"),
        "volumeMounts" => Merge::By("mountPath"),
        "volumeDevices" => Merge::By("devicePath"),
        "hostAliases" | "podIPs" | "hostIPs" => Merge::By("ip"),
        "topologySpreadConstraints" => Merge::By("topologyKey"),
        "ownerReferences" => Merge::By("uid"),
        "finalizers" | "podCIDRs" => Merge::Set,
        // Taints and tolerations are replaced too.
        _ => Merge::Replace,
    }
}

/// Returns the member that identifies the items of a list; none: the list is replaced as a whole.
pub(crate) fn merge_key(field: &str) -> Option<&'static str> {
    match merge_of(field) {
        Merge::By(key) => Some(key),
        Merge::Set | Merge::Replace => None,
    }
}

type Object = Map<String, Value>;

/// Returns the original with the patch merged in.
pub fn merge(mut original: Object, mut patch: Object) -> Result<Object, String> {
    match patch.remove(DIRECTIVE).as_ref().map(Value::as_str) {
        None | Some(Some("merge")) => {}
        Some(Some("replace")) => return Ok(patch),
        Some(Some("delete")) => return Ok(Object::new()),
        Some(other) => return Err(format!("unrecognised {DIRECTIVE} directive: {other:?}")),
    }
    if let Some(retain) = patch.remove(RETAIN_KEYS) {
        let retain = as_list(RETAIN_KEYS, retain)?;
        original.retain(|key, _| retain.iter().any(|kept| kept == key));
    }
    let mut orders = Object::new();
    let mut changes = Vec::new();
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix(SET_ORDER) {
            orders.insert(field.to_owned(), value);
        } else if let Some(field) = key.strip_prefix(DELETE_FROM) {
            let barred = as_list(&key, value)?;
            if let Some(Value::Array(list)) = original.get_mut(field) {
                list.retain(|item| !barred.contains(item));
            }
        } else {
            changes.push((key, value));
        }
    }
    for (key, value) in changes {
        let order = orders.remove(&key);
        change(&mut original, key, value, order)?;
    }
    // The remaining directives only reorder lists.
    for (key, order) in orders {
        if let (Merge::By(by), Some(Value::Array(list))) = (merge_of(&key), original.get_mut(&key)) {
            let before = list.clone();
            *list = in_order(std::mem::take(list), &as_list(SET_ORDER, order)?, &before, Some(by));
        }
    }
    Ok(original)
}

fn change(original: &mut Object, key: String, value: Value, order: Option<Value>) -> Result<(), String> {
    if value.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let merged = match (original.remove(&key), value) {
        (Some(Value::Object(before)), Value::Object(patch)) => Value::Object(merge(before, patch)?),
        (Some(Value::Array(before)), Value::Array(patch)) => Value::Array(merge_list(&key, &before, patch, order)?),
        (_, value) => without_directives(value),
    };
    original.insert(key, merged);
    Ok(())
}

fn merge_list(field: &str, before: &[Value], patch: Vec<Value>, order: Option<Value>) -> Result<Vec<Value>, String> {
    let order = order.map(|order| as_list(SET_ORDER, order)).transpose()?;
    match merge_of(field) {
        Merge::Replace => Ok(patch.into_iter().map(without_directives).collect()),
        Merge::Set => {
            let mut merged = before.to_vec();
            merged.extend(patch.iter().filter(|item| !before.contains(item)).cloned());
            Ok(in_order(merged, &order.unwrap_or(patch), before, None))
        }
        Merge::By(by) => {
            let mut merged = before.to_vec();
            let mut listed = Vec::new();
            let mut replaces = false;
            for item in patch {
                let Value::Object(mut item) = item else { return Err(format!("{field}: an item is no object")) };
                match item.get(DIRECTIVE).and_then(Value::as_str) {
                    Some("replace") => {
                        replaces = true;
                        continue;
                    }
                    Some("delete") => {
                        let name = key_of(&item, by)?;
                        merged.retain(|old| old[by] != name);
                        continue;
                    }
                    Some("merge") => {
                        item.remove(DIRECTIVE);
                    }
                    Some(other) => return Err(format!("unrecognised {DIRECTIVE} directive: {other}")),
                    None => {}
                }
                let name = key_of(&item, by)?;
                match merged.iter_mut().find(|old| old[by] == name) {
                    Some(old) => {
                        let Value::Object(fields) = old.take() else {
                            return Err(format!("{field}: an item of the original is no object"));
                        };
                        *old = Value::Object(merge(fields, item.clone())?);
                    }
                    None => merged.push(without_directives(Value::Object(item.clone()))),
                }
                listed.push(Value::Object(item));
            }
            if replaces {
                return Ok(listed.into_iter().map(without_directives).collect());
            }
            Ok(in_order(merged, &order.unwrap_or(listed), before, Some(by)))
        }
    }
}

fn key_of(item: &Object, by: &str) -> Result<Value, String> {
    let shown = || {
        let fields: Vec<String> = item.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
        format!("map: map[{}] does not contain declared merge key: {by}", fields.join(" "))
    };
    item.get(by).cloned().ok_or_else(shown)
}

/// Orders a merged list. Items that `order` names follow it; the other items keep their old position among them where possible.
fn in_order(merged: Vec<Value>, order: &[Value], before: &[Value], by: Option<&str>) -> Vec<Value> {
    let same = |a: &Value, b: &Value| by.map_or_else(|| a == b, |by| a[by] == b[by]);
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    others.sort_by_key(|item| place(before, item));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let other_first = match (named.peek(), others.peek()) {
            (None, None) => return all,
            (Some(_), None) => false,
            (None, Some(_)) => true,
            (Some(named), Some(other)) => {
                matches!((place(before, other), place(before, named)), (Some(other), Some(named)) if other < named)
            }
        };
        all.extend(if other_first { others.next() } else { named.next() });
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn as_list(what: &str, value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(list) => Ok(list),
        other => Err(format!("{what} is no list: {other}")),
    }
}

/// Removes directives from a new value: there is no old value to which they could apply.
fn without_directives(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .filter(|(key, value)| {
                    let directive = key == DIRECTIVE
                        || key == RETAIN_KEYS
                        || key.starts_with(DELETE_FROM)
                        || key.starts_with(SET_ORDER);
                    !directive && !value.is_null()
                })
                .map(|(key, value)| (key, without_directives(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .filter(|item| item.get(DIRECTIVE).and_then(Value::as_str) != Some("delete"))
                .map(without_directives)
                .collect(),
        ),
        other => other,
    }
}
