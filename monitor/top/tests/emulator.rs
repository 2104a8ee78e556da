//! The bytes that reach a terminal show the same screen, and nothing that a workload names controls the terminal.
#![expect(clippy::unwrap_used, reason = "a screen that cannot be drawn fails its test")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node_pressure_state::State;
use node_pressure_top::{Event, Model, render, screen, update};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

mod scenes;

/// Output to the terminal that was not read yet.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A terminal in memory: ratatui draws into it, and an emulator shows it.
struct Screen {
    terminal: Terminal<CrosstermBackend<Bytes>>,
    written: Bytes,
    emulator: vt100::Parser,
}

impl Screen {
    fn new(width: u16, height: u16) -> Self {
        let written = Bytes::default();
        let options = TerminalOptions { viewport: Viewport::Fixed(Rect::new(0, 0, width, height)) };
        let terminal = Terminal::with_options(CrosstermBackend::new(written.clone()), options).unwrap();
        Self { terminal, written, emulator: vt100::Parser::new(height, width, 0) }
    }

    /// Draws the model. Returns the bytes.
    fn draw(&mut self, model: &Model) -> Vec<u8> {
        self.terminal.draw(|frame| render(model, frame)).unwrap();
        let bytes = self.written.take();
        self.emulator.process(&bytes);
        bytes
    }

    fn text(&self) -> String {
        let (_, width) = self.emulator.screen().size();
        let rows = self.emulator.screen().rows(0, width);
        rows.map(|row| row.trim_end().to_owned() + "\n").collect()
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.terminal.resize(Rect::new(0, 0, width, height)).unwrap();
        self.emulator.process(&self.written.take());
        self.emulator.screen_mut().set_size(height, width);
    }
}

#[test]
fn a_terminal_shows_the_same_screen() {
    for (name, model) in scenes::all() {
        for (width, height) in [(80, 24), (160, 50), (30, 8)] {
            let mut terminal = Screen::new(width, height);
            terminal.draw(&model);
            assert_eq!(terminal.text(), screen(&model, width, height), "{name} {width}x{height}");
        }
    }
}

#[test]
fn a_resized_terminal_shows_the_same_screen() {
    let scenes = scenes::all();
    let mut terminal = Screen::new(80, 24);
    for (width, height) in [(80, 24), (160, 50), (30, 8), (200, 20), (61, 60), (80, 24)] {
        terminal.resize(width, height);
        for (name, model) in &scenes {
            terminal.draw(model);
            assert_eq!(terminal.text(), screen(model, width, height), "{name} {width}x{height}");
        }
    }
}

/// Sets the names of the first places.
fn named(names: &[&str]) -> State {
    let mut state = scenes::document("near");
    for ranking in &mut state.rankings {
        for (place, name) in ranking.places.iter_mut().zip(names) {
            (*name).clone_into(&mut place.display);
        }
    }
    state
}

#[test]
fn wide_and_long_names_keep_the_columns() {
    let long = "namespace/".to_owned() + &"long".repeat(60);
    let names = [
        "名前空間/報告書生成サービス五番目のポッド",
        &long,
        "e\u{301}te\u{301}/combining",
        "👩‍🚀/emoji❤️",
        "한국어/작업",
    ];
    let model = scenes::shown(named(&names));
    for (width, height) in [(80, 24), (160, 50)] {
        let mut terminal = Screen::new(width, height);
        terminal.draw(&model);
        let text = terminal.text();
        assert_eq!(text, screen(&model, width, height));
        let screen = terminal.emulator.screen();
        let find =
            |wanted: &str| (0..height).find(|row| screen.contents_between(*row, 0, *row, width).contains(wanted));
        let heading = find("#▼").unwrap();
        // The last letters of the columns memory and change.
        let line = screen.contents_between(heading, 0, heading, width);
        let end = |word: &str| {
            let before = &line[..line.find(&format!(" {word} ")).unwrap()];
            u16::try_from(before.chars().count() + 1 + word.len()).unwrap()
        };
        for row in heading + 1..=heading + 5 {
            let cell = |column: u16| screen.cell(row, column - 1).unwrap().contents().trim();
            assert_eq!((cell(end("memory")), cell(end("memory") + 1)), ("B", ""), "{text}");
            let change = cell(end("change"));
            assert!(["s", "0", ""].contains(&change), "{change:?} in {text}");
        }
    }
}

#[test]
fn a_tick_writes_few_bytes() {
    let near = scenes::document("near");
    let mut model = scenes::shown(near.clone());
    let mut terminal = Screen::new(160, 50);
    let whole = terminal.draw(&model).len();
    let mut state = near;
    for second in 1..=5_u64 {
        state.time += Duration::from_secs(1);
        let memory = &mut state.signals[0];
        memory.available = memory.available.map(|left| left - (10 << 20));
        memory.history.samples.iter_mut().for_each(|(ms, _)| *ms += 1000.0);
        memory.history.samples.push((0.0, memory.available.unwrap()));
        memory.history.samples.retain(|(ms, _)| *ms <= 60_000.0);
        (model, _) = update(model, Event::Document(Box::new(state.clone())));
        let tick = terminal.draw(&model).len();
        assert!(tick < 600 && tick * 10 < whole, "{tick} of {whole} bytes in second {second}");
        assert_eq!(terminal.text(), screen(&model, 160, 50));
    }
    let unchanged = terminal.draw(&model).len();
    assert!(unchanged < 40, "{unchanged} bytes");
}

#[test]
fn without_colour_no_colour_is_sent_and_the_selection_is_seen() {
    for has_colour in [false, true] {
        for (name, model) in scenes::all() {
            let mut terminal = Screen::new(80, 24);
            let model = Model { has_colour, ..model };
            let bytes = String::from_utf8(terminal.draw(&model)).unwrap();
            // Colours 39 and 49 are the terminal's own.
            let is_colour = |code: &str| !matches!(code, "" | "0" | "1" | "2" | "7" | "22" | "27" | "39" | "49" | "59");
            let codes = bytes.split("\u{1b}[").filter_map(|part| part.split_once('m')).map(|(codes, _)| codes);
            let codes = codes.filter(|codes| codes.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'));
            let coloured = codes.flat_map(|codes| codes.split(';')).filter(|code| is_colour(code)).count();
            assert_eq!(coloured > 0, has_colour, "{name}: {bytes:?}");
            let screen = terminal.emulator.screen();
            let inverse = (0..24).filter(|row| screen.cell(*row, 0).unwrap().inverse()).count();
            assert_eq!(inverse, usize::from(!matches!(name, "help" | "missing" | "incident")), "{name}");
        }
    }
}

#[test]
fn names_send_no_control_characters() {
    // Not read by `state`, which cleans texts: the view has to withstand them, too.
    let mut hostile: State = serde_json::from_slice(include_bytes!("../../../tests/fixtures/state/near.json")).unwrap();
    for place in hostile.rankings.iter_mut().flat_map(|ranking| &mut ranking.places) {
        place.display = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}x".to_owned();
    }
    let text = String::from_utf8(Screen::new(80, 24).draw(&scenes::shown(hostile))).unwrap();
    assert!(text.contains("owned") && !text.contains("\u{1b}]"));
    assert!(!text.contains(['\u{7}', '\u{9b}', '\u{202e}']));
}
