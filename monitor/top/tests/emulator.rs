//! The bytes that reach a terminal show the same screen, and nothing that a workload names controls the terminal.

#![expect(clippy::unwrap_used, reason = "a screen that cannot be drawn fails its test")]

use node_pressure_state::State;
use node_pressure_top::{Event, Model, once, render, state, update};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// Returns the bytes that draw the document.
fn bytes(document: State, width: u16, height: u16) -> Vec<u8> {
    let (model, _) = update(Model::default(), Event::Document(Box::new(document)));
    let mut bytes = Vec::new();
    let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
    let mut terminal = Terminal::with_options(CrosstermBackend::new(&mut bytes), TerminalOptions { viewport }).unwrap();
    terminal.draw(|frame| render(&model, frame)).unwrap();
    drop(terminal);
    bytes
}

#[test]
fn a_terminal_shows_the_same_screen() {
    for (width, height) in [(80, 24), (160, 50)] {
        let document = state(include_bytes!("../../../tests/fixtures/state/near.json")).unwrap();
        let mut emulator = vt100::Parser::new(height, width, 0);
        emulator.process(&bytes(document.clone(), width, height));
        let rows = emulator.screen().rows(0, width).map(|row| row.trim_end().to_owned() + "\n");
        assert_eq!(rows.collect::<String>(), once(document, width, height));
    }
}

#[test]
fn names_send_no_control_characters() {
    // Not read by `state`, which cleans texts: the view has to withstand them, too.
    let mut hostile: State = serde_json::from_slice(include_bytes!("../../../tests/fixtures/state/near.json")).unwrap();
    for place in hostile.rankings.iter_mut().flat_map(|ranking| &mut ranking.places) {
        place.display = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}x".to_owned();
    }
    let text = String::from_utf8(bytes(hostile, 80, 24)).unwrap();
    assert!(text.contains("owned") && !text.contains("\u{1b}]"));
    assert!(!text.contains(['\u{7}', '\u{9b}', '\u{202e}']));
}
