//! Reads an object without the fields that cannot be read, such as an odd quantity. A pod that could not be parsed at all would escape
//! limits and priority.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Fields that are left out one by one; then all but [`NEEDED`] are left out.
const ATTEMPTS: usize = 16;
/// The fields that identify and protect a pod.
const NEEDED: [(&str, &[&str]); 2] = [
    ("spec", &["nodeName", "priority", "priorityClassName", "terminationGracePeriodSeconds", "hostUsers"]),
    ("status", &["phase", "qosClass"]),
];

/// Returns the object, and path and error of the first field that was left out.
///
/// # Errors
/// When nothing readable is left.
pub(super) fn read<T: DeserializeOwned>(object: &[u8]) -> Result<(T, String), String> {
    let mut value: Value = serde_json::from_slice(object).map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("not an object".to_owned());
    }
    let mut first = None;
    for attempt in 0..2 * ATTEMPTS {
        if attempt == ATTEMPTS {
            keep_needed(&mut value);
        }
        let error = match serde_path_to_error::deserialize(&value) {
            Ok(whole) => return Ok((whole, first.unwrap_or_default())),
            Err(error) => error,
        };
        let (path, reason) = (error.path().to_string(), error.inner().to_string());
        let is_removed = remove(&mut value, &path);
        let reason = first.get_or_insert_with(|| format!("{path}: {reason}"));
        if !is_removed {
            return Err(std::mem::take(reason));
        }
    }
    Err(first.unwrap_or_default())
}

fn keep_needed(value: &mut Value) {
    for (part, needed) in NEEDED {
        if let Some(fields) = value.get_mut(part).and_then(Value::as_object_mut) {
            fields.retain(|name, _| needed.contains(&name.as_str()));
        }
    }
}

/// Removes the value at a path; false: there is none. Keys may contain dots: the longest key that matches counts.
fn remove(value: &mut Value, path: &str) -> bool {
    match value {
        Value::Object(fields) => {
            let leads = |key: &&String| {
                path.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            let Some(key) = fields.keys().filter(leads).max_by_key(|key| key.len()).cloned() else { return false };
            let rest = path.get(key.len()..).unwrap_or_default().trim_start_matches('.');
            let is_within = !rest.is_empty() && fields.get_mut(&key).is_some_and(|inner| remove(inner, rest));
            is_within || fields.remove(&key).is_some()
        }
        Value::Array(items) => {
            let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) else {
                return false;
            };
            let Some(item) = index.parse().ok().and_then(|index: usize| items.get_mut(index)) else { return false };
            let rest = rest.trim_start_matches('.');
            // A null is read as a missing item, and the indexes of the others stay valid.
            if rest.is_empty() || !remove(item, rest) {
                *item = Value::Null;
            }
            true
        }
        _ => false,
    }
}
