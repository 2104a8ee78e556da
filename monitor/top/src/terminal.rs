//! Connects the model with a terminal.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, KeyEventKind};

use crate::model::Model;
use crate::update::{Event, Request, update};
use crate::view::render;

/// How late a document is shown at most.
const WAIT: Duration = Duration::from_millis(100);

/// Restores the terminal, however the view ends. A panic restores it first, to print its message.
struct Screen;

impl Drop for Screen {
    fn drop(&mut self) {
        // A second restoration would move the cursor back, over the message of the panic.
        if !std::thread::panicking() {
            ratatui::restore();
        }
    }
}

/// Shows the view until a key or [`Event::End`] ends it. The caller turns signals into [`Event::End`]. The view ends, too, when the
/// sender of `events` is gone.
pub fn run(mut model: Model, events: &Receiver<Event>, mut request: impl FnMut(Request)) -> io::Result<()> {
    // The guard is made first: setting up may fail half-way.
    let _screen = Screen;
    let mut terminal = ratatui::try_init()?;
    let mut passed = Instant::now();
    let mut is_stale = true;
    while !model.has_ended {
        if is_stale || passed.elapsed() >= Duration::from_secs(1) {
            (model, _) = update(model, Event::Passed(passed.elapsed()));
            passed = Instant::now();
            terminal.draw(|frame| render(&model, frame))?;
            is_stale = false;
        }
        let mut next = Vec::new();
        if event::poll(WAIT)? {
            match event::read()? {
                event::Event::Key(key) if key.kind != KeyEventKind::Release => next.push(Event::Key(key)),
                event::Event::Resize(..) => is_stale = true,
                _ => {}
            }
        }
        loop {
            match events.try_recv() {
                Ok(event) => next.push(event),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    next.push(Event::End);
                    break;
                }
            }
        }
        for event in next {
            let asked;
            (model, asked) = update(model, event);
            asked.into_iter().for_each(&mut request);
            is_stale = true;
        }
    }
    Ok(())
}
