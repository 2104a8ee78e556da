//! Reads what an agent serves. Every text is cleaned before anything else sees it: pods choose their names, and a terminal obeys
//! control characters.

use node_pressure_state::State;
use node_pressure_state::record::Incident;
use serde_json::Value;

use crate::text::clean;

/// Reads the document of `/api/v1/state`.
pub fn state(json: &[u8]) -> serde_json::Result<State> {
    let mut value = serde_json::from_slice(json)?;
    clean_all(&mut value);
    serde_json::from_value(value)
}

/// Reads the record of `/incidents/ID`, without the parts that only `simulate` reads.
pub fn incident(json: &[u8]) -> serde_json::Result<Incident> {
    let mut value: Value = serde_json::from_slice(json)?;
    if let Some(eviction) = value.get_mut("eviction").and_then(Value::as_object_mut) {
        eviction.remove("policy");
        eviction.remove("trace");
    }
    clean_all(&mut value);
    serde_json::from_value(value)
}

fn clean_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = clean(text),
        Value::Array(items) => items.iter_mut().for_each(clean_all),
        Value::Object(fields) => {
            // Keys are texts, too: the names of signals and labels.
            let cleaned = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                clean_all(&mut value);
                (clean(&key), value)
            });
            *fields = cleaned.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
