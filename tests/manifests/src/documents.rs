//! YAML files as values.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Every document of a file; empty ones are left out.
///
/// # Errors
/// When the file cannot be read or is not YAML.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("{} is not YAML", path.display()))
}

/// Every document of a text; empty ones are left out.
///
/// # Errors
/// When it is not YAML.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The text at a path of keys; empty where there is none.
#[must_use]
pub fn text<'a>(value: &'a Value, keys: &[&str]) -> &'a str {
    at(value, keys).and_then(Value::as_str).unwrap_or_default()
}

/// What is at a path of keys.
#[must_use]
pub fn at<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().try_fold(value, |value, key| value.get(key))
}

/// The list at a path of keys; empty where there is none.
#[must_use]
pub fn list<'a>(value: &'a Value, keys: &[&str]) -> &'a [Value] {
    at(value, keys).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// `DaemonSet node-pressure-monitor`.
#[must_use]
pub fn name(object: &Value) -> String {
    format!("{} {}", text(object, &["kind"]), text(object, &["metadata", "name"]))
}
