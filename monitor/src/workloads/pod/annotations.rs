//! Annotations of a pod, with long values cut.

use serde::Deserializer;

use crate::workloads::json_defaults::entries;

/// The values that decide anything are short; those that tools leave on a pod are not.
const MAX_VALUE_BYTES: usize = 256;

/// Reads all annotations: the operator chooses which of them protect a pod, and may change that later.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    let mut all: Vec<(String, String)> = entries(deserializer)?;
    all.iter_mut().for_each(|(_, value)| shorten(value));
    Ok(all)
}

pub fn shorten(value: &mut String) {
    value.truncate(shortened(value).len());
}

/// Returns the part of a value that is kept.
pub fn shortened(value: &str) -> &str {
    value.get(..value.floor_char_boundary(MAX_VALUE_BYTES)).unwrap_or(value)
}
