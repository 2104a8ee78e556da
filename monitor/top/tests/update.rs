//! Keys and documents change the model.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be read fails its test")]

use std::path::Path;
use std::time::Duration;

use node_pressure_state::State;
use node_pressure_state::record::Incident;
use node_pressure_top::{Event, Link, Model, Record, Request, Sort, state, update};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

fn fixture(name: &str) -> State {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/fixtures/state/{name}.json"));
    state(&std::fs::read(path).unwrap()).unwrap()
}

fn press(mut model: Model, keys: &[KeyCode]) -> (Model, Option<Request>) {
    let mut request = None;
    for code in keys {
        (model, request) = update(model, Event::Key(KeyEvent::new(*code, KeyModifiers::NONE)));
    }
    (model, request)
}

fn typed(text: &str) -> Vec<KeyCode> {
    text.chars().map(|letter| if letter == '\n' { KeyCode::Enter } else { KeyCode::Char(letter) }).collect()
}

/// A model with `frames` documents, a second apart.
fn recorded(frames: u64) -> Model {
    let near = fixture("near");
    (0..frames).fold(Model::default(), |model, second| {
        let time = near.time + Duration::from_secs(second);
        update(model, Event::Document(Box::new(State { time, ..near.clone() }))).0
    })
}

#[test]
fn a_minute_is_recorded() {
    let model = recorded(200);
    assert_eq!(model.frames.len(), 61);
    let (model, _) = update(model, Event::Passed(Duration::from_secs(2)));
    assert!((model.age().unwrap() - 2.42).abs() < 0.001);
}

#[test]
fn the_recording_is_stepped_through_and_stands_still_meanwhile() {
    let (model, _) = press(recorded(5), &typed("[["));
    assert_eq!((model.paused, model.frames.len()), (Some(2), 5));
    let later = fixture("near").time + Duration::from_secs(9);
    let (model, _) = update(model, Event::Document(Box::new(State { time: later, ..fixture("near") })));
    assert_eq!((model.paused, model.frames.len()), (Some(2), 5));
    assert!((model.age().unwrap() - 7.42).abs() < 0.001);
    let (model, _) = press(model, &typed("]]]"));
    assert_eq!((model.paused, model.frames.len(), model.shown().unwrap().time), (None, 6, later));
}

#[test]
fn keys_choose_sort_filter_signal_and_threshold() {
    let signal = |model: &Model| model.selected_signal().unwrap().signal.clone();
    let (model, _) = press(recorded(1), &[KeyCode::Tab]);
    assert_eq!(signal(&model), "nodefs.available");
    let (model, _) = press(model, &[KeyCode::Left, KeyCode::Left]);
    assert_eq!(signal(&model), "imagefs.available");
    let (model, _) = press(model, &[KeyCode::Right, KeyCode::Char('s')]);
    assert_eq!((signal(&model).as_str(), model.sort), ("memory.available", Sort::Memory));
    let (model, _) = press(model, &typed("/ETL\n"));
    assert!(model.rows().iter().all(|row| row.display.contains("etl")) && !model.rows().is_empty());
    let (model, _) = press(model, &typed("w500Mj\n"));
    assert!(model.what_if.is_none() && model.mistake.as_ref().unwrap().contains("500Mi or 10%"));
    let (model, _) = press(model, &typed("w10%\n"));
    assert_eq!((model.what_if.as_ref().map(|asked| &*asked.text), &model.mistake), (Some("10%"), &None));
    let (model, _) = press(model, &typed("q"));
    assert!(model.has_ended);
}

#[test]
fn the_selection_stays_with_its_workload() {
    let (model, _) = press(recorded(1), &[KeyCode::Down, KeyCode::Down]);
    let chosen = model.workload.clone().unwrap();
    assert_eq!(model.row(&model.rows()), 2);
    let (model, _) = press(model, &[KeyCode::Char('s')]);
    assert_eq!(model.rows()[model.row(&model.rows())].workload, chosen);
    let (model, _) = press(model, &[KeyCode::End]);
    assert_eq!(model.row(&model.rows()), model.rows().len() - 1);
}

#[test]
fn an_incident_is_opened_and_stepped_through() {
    let (model, request) = press(recorded(1), &[KeyCode::Char('i'), KeyCode::Down, KeyCode::Enter]);
    let id = "20260314-071502-oom-29114".to_owned();
    assert_eq!(request, Some(Request::Incident(id.clone())));
    let mut incident = Incident::default();
    let samples = vec![(2000.0, 9), (1000.0, 8), (0.0, 7), (-500.0, 9)];
    let history = node_pressure_state::record::SignalHistory { samples, ..Default::default() };
    incident.signals.insert("memory.available".to_owned(), history);
    let other = Event::Incident { id: "another".to_owned(), record: Ok(Box::default()) };
    let (model, _) = update(model, other);
    assert!(matches!(model.opened.as_ref().unwrap().record, Record::Awaited));
    let (model, _) = update(model, Event::Incident { id, record: Ok(Box::new(incident)) });
    assert_eq!(model.opened.as_ref().unwrap().moment, 2);
    let (model, _) = press(model, &typed("[[[[]"));
    assert_eq!(model.opened.as_ref().unwrap().moment, 1);
    let (_, request) = press(model.clone(), &[KeyCode::Right]);
    assert_eq!(request, Some(Request::Incident("20260313-221144-evict-2".to_owned())));
    assert!(press(model, &[KeyCode::Esc]).0.opened.is_none());
}

#[test]
fn control_characters_are_gone_from_what_was_read() {
    let json = br#"{"rankings":[{"signal":"a","places":[{"display":"x\u001b[2J\u202ey"}]}],"agent":{"node":"\u0007"}}"#;
    let read = state(json).unwrap();
    assert_eq!(read.rankings[0].places[0].display, "x?[2J?y");
    assert_eq!(read.agent.node, "?");
    let (model, _) = update(Model::default(), Event::Link(Link::Lost("\u{1b}c".to_owned())));
    assert_eq!(model.link, Link::Lost("?c".to_owned()));
}
