//! YAML files as JSON values.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Reads every document of a file but the empty ones.
///
/// # Errors
/// When the file cannot be read or is not YAML.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not YAML", path.display()))
}

/// Parses every document of a text but the empty ones.
///
/// # Errors
/// When the text is not YAML.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Returns the text at a path of keys, or an empty text.
#[must_use]
pub fn text<'a>(value: &'a Value, keys: &[&str]) -> &'a str {
    at(value, keys).and_then(Value::as_str).unwrap_or_default()
}

#[must_use]
pub fn at<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().try_fold(value, |value, key| value.get(key))
}

/// Returns the list at a path of keys, or an empty list.
#[must_use]
pub fn list<'a>(value: &'a Value, keys: &[&str]) -> &'a [Value] {
    at(value, keys).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns kind and name, e.g. `DaemonSet node-pressure-monitor`.
#[must_use]
pub fn name(object: &Value) -> String {
    format!("{} {}", text(object, &["kind"]), text(object, &["metadata", "name"]))
}
