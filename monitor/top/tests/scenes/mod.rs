//! The models whose screens are committed.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be read fails its test")]

use std::path::Path;

use node_pressure_state::record::Incident;
use node_pressure_state::{Evictions, State, UnderWay};
use node_pressure_top::{Event, Model, Request, incident, state, update};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");

pub fn document(name: &str) -> State {
    state(&std::fs::read(Path::new(FIXTURES).join(format!("state/{name}.json"))).unwrap()).unwrap()
}

/// Returns the model after these keys, and what the last of them asks for.
pub fn press(mut model: Model, keys: &[KeyCode]) -> (Model, Option<Request>) {
    let mut request = None;
    for code in keys {
        (model, request) = update(model, Event::Key(KeyEvent::new(*code, KeyModifiers::NONE)));
    }
    (model, request)
}

/// Returns the keys that type the text.
pub fn typed(text: &str) -> Vec<KeyCode> {
    text.chars().map(|letter| if letter == '\n' { KeyCode::Enter } else { KeyCode::Char(letter) }).collect()
}

pub fn shown(document: State) -> Model {
    update(Model::default(), Event::Document(Box::new(document))).0
}

/// Returns a record of the journal that the tests of `incidents` read, too.
pub fn record(id: &str) -> Incident {
    let journal = std::fs::read_to_string(Path::new(FIXTURES).join("incidents/incidents-00000001.journal")).unwrap();
    let line = journal.lines().find(|line| line.contains(&format!("\"id\":\"{id}\""))).unwrap();
    incident(&line.as_bytes()[line.find('{').unwrap()..]).unwrap()
}

/// Returns the document some seconds after `near`: the threshold is met, and the next victim is dying.
fn evicting() -> State {
    let mut state = document("near");
    let left = 61 << 20;
    let ranking = &state.rankings[0];
    let next = ranking.places.iter().find(|place| Some(&place.workload) == ranking.next.as_ref()).unwrap();
    state.evictions = Evictions {
        budget_left: Some(5),
        budget_per_minute: Some(10),
        under_way: vec![UnderWay {
            workload: next.workload.clone(),
            display: next.display.clone(),
            signal: "memory.available".to_owned(),
            step: "it was killed, and processes are left".to_owned(),
            seconds: 0.1,
        }],
        ..Evictions::default()
    };
    let memory = &mut state.signals[0];
    let fallen = memory.available.unwrap() - left;
    memory.available = Some(left);
    memory.history.samples.iter_mut().for_each(|(_, value)| *value -= fallen);
    for threshold in &mut memory.thresholds {
        (threshold.met, threshold.crossed_in_seconds) = (true, Some(0.0));
    }
    state.verdict = state.judge();
    state
}

/// Returns each scene with its name.
pub fn all() -> Vec<(&'static str, Model)> {
    let near = || shown(document("near"));
    let (opened, _) = press(near(), &typed("i\n"));
    let id = opened.opened.as_ref().unwrap().id.clone();
    let read = Event::Incident { id, record: Ok(Box::new(record("20260102-031605-eviction-6001"))) };
    let (opened, _) = update(opened, read);
    vec![
        ("quiet", shown(document("quiet"))),
        ("near", near()),
        ("evicting", shown(evicting())),
        ("incident", press(opened, &typed("[[[[[[")).0),
        ("what-if", press(near(), &typed("w500Mi\n")).0),
        ("missing", press(near(), &typed("d")).0),
        ("help", press(near(), &typed("?")).0),
    ]
}
