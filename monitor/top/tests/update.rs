//! Keys and documents change the model.

use std::time::Duration;

use node_pressure_state::State;
use node_pressure_state::record::Incident;
use node_pressure_top::{Event, Link, Model, Page, Record, Request, Sort, state, update};
use ratatui::crossterm::event::KeyCode;

#[expect(dead_code, reason = "other tests draw the scenes")]
mod scenes;

use scenes::{document as fixture, press, typed};

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
fn braces_step_by_ten_and_esc_returns_to_the_present() {
    for (keys, paused) in [
        ("{", Some(50)),
        ("{{", Some(40)),
        ("{{{{{{{", Some(0)),
        ("{{}[", Some(49)),
        ("{}", Some(60)),
        ("{}}", None),
        ("[", Some(59)),
        ("[]", Some(60)),
        ("[]]", None),
    ] {
        assert_eq!(press(recorded(61), &typed(keys)).0.paused, paused, "{keys}");
    }
    let (model, _) = press(recorded(61), &typed("{/etl\nw10%\n"));
    let (model, _) = press(model, &[KeyCode::Esc]);
    assert_eq!((model.paused, &*model.filter, model.what_if), (None, "", None));
}

#[test]
fn pages_are_opened_and_closed() {
    for (keys, page) in [
        ("?", Page::Help),
        ("??", Page::Overview),
        ("?x", Page::Overview),
        ("d", Page::Missing),
        ("dd", Page::Overview),
        ("d?", Page::Help),
        ("ds", Page::Overview),
    ] {
        let (model, _) = press(recorded(1), &typed(keys));
        assert_eq!((model.page, model.sort), (page, Sort::Eviction), "{keys}");
    }
}

#[test]
fn each_sort_orders_by_its_column() {
    let mut model = recorded(1);
    let mut seen = Vec::new();
    for sort in [Sort::Memory, Sort::Rate, Sort::Stalls, Sort::Name, Sort::Eviction] {
        (model, _) = press(model, &typed("s"));
        assert_eq!(model.sort, sort);
        seen.push(model.rows().iter().map(|row| row.display.to_owned()).collect::<Vec<_>>());
    }
    assert_eq!(&seen[0][..2], ["batch/report-5d4f8c-x7k2p", "data/postgres-0"]);
    assert_eq!(&seen[1][..2], ["batch/report-5d4f8c-x7k2p", "batch/etl-29051234-h5m7x"]);
    assert_eq!(&seen[2][..2], ["batch/report-5d4f8c-x7k2p", "batch/etl-29051234-h5m7x"]);
    assert!(seen[3].is_sorted());
    let last = seen[4].last().unwrap();
    assert_eq!((&*seen[4][0], &**last), ("batch/report-5d4f8c-x7k2p", "kube-system/node-pressure-monitor-b6d8z"));
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
    let (model, _) = press(model, &typed("[[]"));
    assert_eq!(model.opened.as_ref().unwrap().moment, 1);
    let (first, request) = press(model.clone(), &typed("["));
    assert_eq!((first.opened.unwrap().moment, request), (0, None));
    let (_, request) = press(model.clone(), &[KeyCode::Right]);
    assert_eq!(request, Some(Request::Incident("20260313-221144-evict-2".to_owned())));
    assert!(press(model, &[KeyCode::Esc]).0.opened.is_none());
}

/// The incident of the journal, under another id.
fn read(model: Model, id: &str) -> Model {
    let record = scenes::record("20260102-031605-eviction-6001");
    update(model, Event::Incident { id: id.to_owned(), record: Ok(Box::new(record)) }).0
}

#[test]
fn stepping_continues_in_the_neighbouring_incidents() {
    let [newest, older] = ["20260314-092412-evict-1", "20260314-071502-oom-29114"];
    let ids: Vec<String> = recorded(1).incidents().iter().map(|line| line.id.clone()).collect();
    assert_eq!(ids[1], older);
    let newest = if ids[0] == newest { newest } else { &*ids[0] };
    let (model, request) = press(recorded(1), &typed("i\n"));
    assert_eq!(request, Some(Request::Incident(newest.to_owned())));
    // A record that is awaited has no moments to step through.
    let (model, request) = press(model, &typed("["));
    assert_eq!(request, None);
    let mut model = read(model, newest);
    let moments = model.opened.as_ref().unwrap().moments().len();
    let leaps = moments / 10 + 1;
    (model, _) = press(model, &vec![KeyCode::Char('{'); leaps]);
    let opened = model.opened.as_ref().unwrap();
    assert_eq!((&*opened.id, opened.moment), (older, 0));
    let model = read(model, older);
    assert_eq!(model.opened.as_ref().unwrap().moment, moments - 1);
    let (model, request) = press(model, &typed("]"));
    assert_eq!(request, Some(Request::Incident(newest.to_owned())));
    let model = read(model, newest);
    assert_eq!(model.opened.as_ref().unwrap().moment, 0);
    // There is no newer one.
    let (model, _) = press(model, &vec![KeyCode::Char('}'); leaps + 2]);
    assert_eq!(model.opened.as_ref().unwrap().moment, moments - 1);
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
