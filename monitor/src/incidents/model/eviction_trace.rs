//! The decider's snapshots and steps that led to an eviction, kept so that `simulate` can replay the decision.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// JSON text on one line, which the record passes on unread. Clones share the text.
#[derive(Debug, Clone)]
pub struct RawJson(Arc<RawValue>);

impl RawJson {
    /// Renders `value` on one line.
    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        let raw = serde_json::value::to_raw_value(value)?;
        // A raw value inside `value` keeps its line breaks, which the journal's format forbids.
        let raw = if raw.get().contains('\n') {
            serde_json::value::to_raw_value(&serde_json::from_str::<serde_json::Value>(raw.get())?)?
        } else {
            raw
        };
        Ok(Self(raw.into()))
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(raw.into()))
    }
}

/// The part of a trace that exceeded the limit of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct TraceCut {
    /// The oldest lines, which the record leaves out.
    pub lines: usize,
    pub bytes: usize,
    /// One sixteenth of the journal's `maxSize`.
    pub limit_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_line_breaks_are_removed() {
        let pretty = RawValue::from_string("{\n \"a\": \"x\\ny\"\n}".to_owned()).unwrap();
        let line = RawJson::of(&[pretty]).unwrap();
        assert_eq!(line.text(), r#"[{"a":"x\ny"}]"#);
        let read: RawJson = serde_json::from_str(&serde_json::to_string(&line).unwrap()).unwrap();
        assert_eq!(read, line);
    }
}
