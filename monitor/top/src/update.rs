//! The only function that changes the model.

use std::sync::Arc;
use std::time::Duration;

use node_pressure_state::State;
use node_pressure_state::record::Incident;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::model::{Begin, Entry, Focus, Link, MOST_FRAMES, Model, Opened, Page, RECORDED, Record};
use crate::text::{clean, is_hostile};
use crate::what_if::Asked;

#[derive(Debug, Clone)]
pub enum Event {
    Key(KeyEvent),
    /// The agent's document, read by [`crate::state`].
    Document(Box<State>),
    Link(Link),
    /// The record of an incident, or why it cannot be read.
    Incident {
        id: String,
        record: Result<Box<Incident>, String>,
    },
    /// Time has passed.
    Passed(Duration),
    /// A signal asked the program to end.
    End,
}

/// A request that the caller has to carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Incident(String),
}

/// Longest text that can be typed.
const TYPED: usize = 60;
const PAGE: isize = 10;
const PAGE_LINES: u16 = 10;
/// Frames that the braces step at once.
const LEAP: usize = 10;

/// Returns the model after the event, and what is to be fetched for it.
#[must_use]
pub fn update(mut model: Model, event: Event) -> (Model, Option<Request>) {
    let mut request = None;
    match event {
        Event::Key(key) => request = press(&mut model, key),
        Event::Document(state) => record(&mut model, *state),
        Event::Link(Link::Lost(reason)) => model.link = Link::Lost(clean(&reason)),
        Event::Link(link) => model.link = link,
        Event::Incident { id, record } => {
            if let Some(opened) = model.opened.as_mut().filter(|opened| opened.id == id) {
                opened.record = match record {
                    Ok(incident) => Record::Read(incident),
                    Err(reason) => Record::Unreadable(clean(&reason)),
                };
                let moments = opened.moments();
                opened.moment = match opened.begin {
                    Begin::Incident => moments.iter().rposition(|ms| *ms >= 0.0).unwrap_or(0),
                    Begin::First => 0,
                    Begin::Last => moments.len().saturating_sub(1),
                };
            }
        }
        Event::Passed(time) => model.since = model.since.saturating_add(time),
        Event::End => model.has_ended = true,
    }
    (model, request)
}

fn record(model: &mut Model, state: State) {
    model.since = Duration::ZERO;
    let state = Arc::new(state);
    if model.paused.is_some() {
        model.newest = Some(state);
    } else {
        append(model, state);
    }
}

fn append(model: &mut Model, state: Arc<State>) {
    // A busy agent sends a document again, with a greater age.
    if model.frames.back().is_some_and(|last| last.time == state.time) {
        model.frames.pop_back();
    }
    let begin = state.time.saturating_sub(RECORDED).unwrap_or(state.time);
    // Another node, or a clock that was set back, begins anew.
    model
        .frames
        .retain(|frame| frame.time >= begin && frame.time <= state.time && frame.agent.node == state.agent.node);
    while model.frames.len() >= MOST_FRAMES {
        model.frames.pop_front();
    }
    model.frames.push_back(state);
}

fn resume(model: &mut Model) {
    model.paused = None;
    if let Some(newest) = model.newest.take() {
        append(model, newest);
    }
}

fn press(model: &mut Model, key: KeyEvent) -> Option<Request> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        model.has_ended |= matches!(key.code, KeyCode::Char('c' | 'd'));
        return None;
    }
    model.mistake = None;
    if let Some(entry) = model.entry.take() {
        type_into(model, &entry, key.code);
        return None;
    }
    match key.code {
        KeyCode::Char('q') => model.has_ended = true,
        KeyCode::Char('c') => model.has_colour = !model.has_colour,
        KeyCode::Char('?') | KeyCode::F(1) => switch_page(model, Page::Help),
        _ if model.page == Page::Help => model.page = Page::Overview,
        code if model.opened.is_some() => return press_in_record(model, code),
        KeyCode::Char('d') => switch_page(model, Page::Missing),
        _ if model.page == Page::Missing => model.page = Page::Overview,
        code => return press_in_overview(model, code),
    }
    None
}

fn switch_page(model: &mut Model, page: Page) {
    model.page = if model.page == page { Page::Overview } else { page };
}

fn type_into(model: &mut Model, entry: &Entry, code: KeyCode) {
    let (Entry::Filter(mut typed) | Entry::WhatIf(mut typed)) = entry.clone();
    match code {
        KeyCode::Char(letter) if !is_hostile(letter) && typed.chars().count() < TYPED => typed.push(letter),
        KeyCode::Backspace => drop(typed.pop()),
        KeyCode::Esc => {
            match entry {
                Entry::Filter(_) => model.filter.clear(),
                Entry::WhatIf(_) => model.what_if = None,
            }
            return;
        }
        KeyCode::Enter => {
            match entry {
                Entry::Filter(_) => {}
                Entry::WhatIf(_) if typed.is_empty() => model.what_if = None,
                Entry::WhatIf(_) => match Asked::parse(&typed) {
                    Ok(asked) => model.what_if = Some(asked),
                    Err(mistake) => model.mistake = Some(mistake),
                },
            }
            return;
        }
        _ => {}
    }
    model.entry = Some(match entry {
        Entry::Filter(_) => {
            model.filter.clone_from(&typed);
            Entry::Filter(typed)
        }
        Entry::WhatIf(_) => Entry::WhatIf(typed),
    });
}

fn press_in_overview(model: &mut Model, code: KeyCode) -> Option<Request> {
    match code {
        KeyCode::Up | KeyCode::Char('k') => select(model, -1),
        KeyCode::Down | KeyCode::Char('j') => select(model, 1),
        KeyCode::PageUp => select(model, -PAGE),
        KeyCode::PageDown => select(model, PAGE),
        KeyCode::Home => select(model, isize::MIN),
        KeyCode::End => select(model, isize::MAX),
        KeyCode::Tab | KeyCode::Right => switch_signal(model, 1),
        KeyCode::BackTab | KeyCode::Left => switch_signal(model, -1),
        KeyCode::Char('s') => model.sort = model.sort.next(),
        KeyCode::Char('/') => model.entry = Some(Entry::Filter(model.filter.clone())),
        KeyCode::Char('w') => model.entry = Some(Entry::WhatIf(String::new())),
        KeyCode::Char('i') => {
            model.focus = match model.focus {
                Focus::Ranking => Focus::Incidents,
                Focus::Incidents => Focus::Ranking,
            };
        }
        KeyCode::Char('[') => step_back(model, 1),
        KeyCode::Char(']') => step_forth(model, 1),
        KeyCode::Char('{') => step_back(model, LEAP),
        KeyCode::Char('}') => step_forth(model, LEAP),
        KeyCode::Esc => {
            resume(model);
            model.filter.clear();
            model.what_if = None;
        }
        KeyCode::Enter => {
            let id = model.incidents().get(model.incident_row())?.id.clone();
            return Some(open(model, id, Begin::Incident));
        }
        _ => {}
    }
    None
}

fn press_in_record(model: &mut Model, code: KeyCode) -> Option<Request> {
    match code {
        KeyCode::Esc | KeyCode::Enter => model.opened = None,
        KeyCode::Right | KeyCode::Tab => return open_neighbour(model, 1, Begin::Incident),
        KeyCode::Left | KeyCode::BackTab => return open_neighbour(model, -1, Begin::Incident),
        KeyCode::Char('[') => return step_in_record(model, -1),
        KeyCode::Char(']') => return step_in_record(model, 1),
        KeyCode::Char('{') => return step_in_record(model, -LEAP.cast_signed()),
        KeyCode::Char('}') => return step_in_record(model, LEAP.cast_signed()),
        code => {
            let opened = model.opened.as_mut()?;
            match code {
                KeyCode::Up | KeyCode::Char('k') => opened.scroll = opened.scroll.saturating_sub(1),
                KeyCode::Down | KeyCode::Char('j') => opened.scroll = opened.scroll.saturating_add(1),
                KeyCode::PageUp => opened.scroll = opened.scroll.saturating_sub(PAGE_LINES),
                KeyCode::PageDown => opened.scroll = opened.scroll.saturating_add(PAGE_LINES),
                KeyCode::Home => opened.scroll = 0,
                _ => {}
            }
            // A record has no more lines than this, however it is shown.
            opened.scroll = opened.scroll.min(lines_of(&opened.record));
        }
    }
    None
}

fn lines_of(record: &Record) -> u16 {
    let Record::Read(incident) = record else { return 0 };
    let lines = incident.ranking.len() + incident.steps.len() + incident.stalls.len() + incident.top_consumers.len();
    let victims = incident.oom_kill.as_ref().map_or(0, |kill| kill.victims.len());
    u16::try_from(lines + victims + incident.pressure.len() + 20).unwrap_or(u16::MAX)
}

/// Steps through the moments of the open incident, and past its first or last one into its older or newer neighbour.
fn step_in_record(model: &mut Model, by: isize) -> Option<Request> {
    let opened = model.opened.as_mut()?;
    let last = opened.moments().len().saturating_sub(1);
    let is_at_end = opened.moment == if by < 0 { 0 } else { last };
    if is_at_end && !matches!(opened.record, Record::Awaited) {
        return if by < 0 { open_neighbour(model, 1, Begin::Last) } else { open_neighbour(model, -1, Begin::First) };
    }
    opened.moment = opened.moment.saturating_add_signed(by).min(last);
    None
}

fn open(model: &mut Model, id: String, begin: Begin) -> Request {
    model.incident = Some(id.clone());
    model.opened = Some(Opened { id: id.clone(), record: Record::Awaited, moment: 0, begin, scroll: 0 });
    Request::Incident(id)
}

/// Opens the next older (1) or newer (-1) incident.
fn open_neighbour(model: &mut Model, by: isize, begin: Begin) -> Option<Request> {
    let index = model.incident_row().checked_add_signed(by)?;
    let id = model.incidents().get(index)?.id.clone();
    Some(open(model, id, begin))
}

fn select(model: &mut Model, by: isize) {
    let moved = |position: usize, len: usize| position.saturating_add_signed(by).min(len.saturating_sub(1));
    match model.focus {
        Focus::Ranking => {
            let rows = model.rows();
            let row = rows.get(moved(model.row(&rows), rows.len())).map(|row| row.workload.to_owned());
            model.workload = row;
        }
        Focus::Incidents => {
            let lines = model.incidents();
            let id = lines.get(moved(model.incident_row(), lines.len())).map(|line| line.id.clone());
            model.incident = id;
        }
    }
}

fn switch_signal(model: &mut Model, by: isize) {
    let Some(state) = model.shown() else { return };
    let count = state.signals.len();
    let selected = model.selected_signal().map(|signal| &signal.signal);
    let Some(index) = state.signals.iter().position(|signal| Some(&signal.signal) == selected) else { return };
    let next = (index + count).saturating_add_signed(by) % count;
    let name = state.signals.get(next).map(|signal| signal.signal.clone());
    model.signal = name;
}

fn step_back(model: &mut Model, by: usize) {
    if !model.frames.is_empty() {
        model.paused = Some(model.paused.unwrap_or(model.frames.len() - 1).saturating_sub(by));
    }
}

fn step_forth(model: &mut Model, by: usize) {
    let Some(index) = model.paused else { return };
    if index + by < model.frames.len() {
        model.paused = Some(index + by);
    } else {
        resume(model);
    }
}
