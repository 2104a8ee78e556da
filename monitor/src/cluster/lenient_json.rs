//! A pod of which something cannot be read, as an odd quantity: it is known without that, for who could make his pod unknown would be under no
//! limit and without a priority.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// What cannot be read is left out so often; then all that is not needed to know whose pod it is, and whether it may go, is.
const ATTEMPTS: usize = 16;
/// What is left of a pod then.
const NEEDED: [(&str, &[&str]); 2] = [
    ("spec", &["nodeName", "priority", "priorityClassName", "terminationGracePeriodSeconds", "hostUsers"]),
    ("status", &["phase", "qosClass"]),
];

/// Reads an object without what cannot be read of it; and what that is, the first of it.
///
/// # Errors
/// When nothing is left that can be.
pub(super) fn read<T: DeserializeOwned>(object: &[u8]) -> Result<(T, String), String> {
    let mut value: Value = serde_json::from_slice(object).map_err(|error| error.to_string())?;
    if !value.is_object() {
        return Err("not an object".to_owned());
    }
    let mut first = None;
    for attempt in 0..2 * ATTEMPTS {
        if attempt == ATTEMPTS {
            strip(&mut value);
        }
        let error = match serde_path_to_error::deserialize(&value) {
            Ok(whole) => return Ok((whole, first.unwrap_or_default())),
            Err(error) => error,
        };
        let (path, reason) = (error.path().to_string(), error.inner().to_string());
        let is_gone = take_out(&mut value, &path);
        let reason = first.get_or_insert_with(|| format!("{path}: {reason}"));
        if !is_gone {
            return Err(std::mem::take(reason));
        }
    }
    Err(first.unwrap_or_default())
}

/// Leaves what is needed.
fn strip(value: &mut Value) {
    for (part, needed) in NEEDED {
        if let Some(fields) = value.get_mut(part).and_then(Value::as_object_mut) {
            fields.retain(|name, _| needed.contains(&name.as_str()));
        }
    }
}

/// Takes out what a path leads to; false where it leads nowhere. Keys may hold dots: as much of the path as there is a key for is one.
fn take_out(value: &mut Value, path: &str) -> bool {
    match value {
        Value::Object(fields) => {
            let leads = |key: &&String| {
                path.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            };
            let Some(key) = fields.keys().filter(leads).max_by_key(|key| key.len()).cloned() else { return false };
            let rest = path.get(key.len()..).unwrap_or_default().trim_start_matches('.');
            let is_within = !rest.is_empty() && fields.get_mut(&key).is_some_and(|inner| take_out(inner, rest));
            is_within || fields.remove(&key).is_some()
        }
        Value::Array(items) => {
            let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) else {
                return false;
            };
            let Some(item) = index.parse().ok().and_then(|index: usize| items.get_mut(index)) else { return false };
            let rest = rest.trim_start_matches('.');
            // A null is read as nothing, and the others keep their places.
            if rest.is_empty() || !take_out(item, rest) {
                *item = Value::Null;
            }
            true
        }
        _ => false,
    }
}
