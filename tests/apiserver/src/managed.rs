//! `metadata.managedFields`, the managers of all fields. It is a large part of each object's text.
//!
//! It is simpler than in the real server: a field keeps its first manager when another one writes it.

use serde_json::{Map, Value, json};

use crate::object::now;
use crate::patch::merge_key;

/// Fields that the server writes have no manager.
const SERVERS: [&str; 10] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
    "managedFields",
];

/// Records that `manager` changed the object from `before`.
pub(crate) fn note(object: &mut Value, before: Option<&Value>, manager: &str, part: &str) {
    let mut fields = Map::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        if matches!(key.as_str(), "apiVersion" | "kind") {
            continue;
        }
        let mut value = value.clone();
        if let (true, Some(metadata)) = (key == "metadata", value.as_object_mut()) {
            metadata.retain(|field, _| !SERVERS.contains(&field.as_str()));
        }
        if let Some(tree) = changed(key, &value, before.and_then(|before| before.get(key))) {
            fields.insert(format!("f:{key}"), tree);
        }
    }
    if fields.is_empty() {
        return;
    }
    let version = object["apiVersion"].clone();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let entries = metadata.entry("managedFields").or_insert_with(|| json!([]));
    let Some(entries) = entries.as_array_mut() else { return };
    let own = |entry: &Value| entry["manager"] == manager && entry["subresource"].as_str().unwrap_or_default() == part;
    match entries.iter_mut().find(|entry| own(entry)) {
        Some(entry) => {
            entry["time"] = json!(now());
            json_patch::merge(&mut entry["fieldsV1"], &Value::Object(fields));
        }
        None => {
            let mut entry = json!({
                "manager": manager, "operation": "Update", "apiVersion": version, "time": now(),
                "fieldsType": "FieldsV1", "fieldsV1": fields,
            });
            if !part.is_empty() {
                entry["subresource"] = json!(part);
            }
            entries.push(entry);
        }
    }
}

/// Returns the tree of the fields that differ, or `None` if all are equal.
fn changed(field: &str, value: &Value, before: Option<&Value>) -> Option<Value> {
    if before == Some(value) {
        return None;
    }
    let mut tree = Map::new();
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let Some(below) = changed(key, value, before.and_then(|before| before.get(key))) {
                    tree.insert(format!("f:{key}"), below);
                }
            }
        }
        Value::Array(items) => {
            let Some(by) = merge_key(field) else { return Some(json!({})) };
            for item in items {
                let old = before.and_then(Value::as_array).into_iter().flatten().find(|old| old[by] == item[by]);
                if let Some(mut below) = changed("", item, old) {
                    below["."] = json!({});
                    tree.insert(format!("k:{}", json!({by: item[by]})), below);
                }
            }
        }
        _ => {}
    }
    Some(Value::Object(tree))
}
