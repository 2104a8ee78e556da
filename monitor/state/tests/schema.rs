//! The committed schema and the committed samples are of the types.
//!
//! `UPDATE_DOCS=1 cargo test -p node-pressure-state` rewrites the schema.

use std::path::Path;

use node_pressure_state::{API_VERSION, Level, State, schema};
use serde_json::Value;

#[test]
fn the_committed_schema_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/state.schema.json");
    let generated = serde_json::to_value(schema()).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&generated).unwrap() + "\n").unwrap();
    }
    // Values rather than text: the order of keys follows features that other crates of the same build choose.
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(committed, generated, "{}: see the top of this file", path.display());
}

#[test]
fn the_samples_use_only_fields_of_the_types() {
    for (name, level) in [("quiet", Level::Green), ("near", Level::Yellow)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/state/{name}.json"));
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let state: State = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&state).unwrap(), json, "{name}");
        assert_eq!((&*state.api_version, state.verdict.level), (API_VERSION, level), "{name}");
        let places = state.rankings.iter().flat_map(|ranking| &ranking.places);
        assert!(places.map(|place| state.workload(&place.workload)).all(|workload| workload.is_some()), "{name}");
    }
}
