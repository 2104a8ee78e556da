//! The last lines: what is typed, or what differs from the plain present.

use node_pressure_state::State;
use ratatui::text::Line;

use crate::model::{Entry, Focus, Link, Measured, Model};
use crate::text::{fit, period, wrap};
use crate::view::look::Look;
use crate::what_if::WhatIf;

const KEYS: &str = "? help  q quit  tab signal  s sort  / filter  w what-if  [ ] step  i incidents";
const KEYS_OF_INCIDENTS: &str = "? help  q quit  up/down select  enter open  i ranking";
/// A sentence may take so many lines.
const MOST: usize = 2;

pub fn lines(model: &Model, state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let typed = match &model.entry {
        Some(Entry::Filter(typed)) => Some(format!("filter by name: {typed}_  (enter keeps it, esc shows all)")),
        Some(Entry::WhatIf(typed)) => Some(format!("what if the threshold were: {typed}_  (500Mi or 10%)")),
        None => None,
    };
    if let Some(typed) = typed {
        return vec![Line::raw(fit(&typed, columns))];
    }
    let lost = match &model.link {
        Link::Lost(reason) => Some(format!("no connection: {reason}")),
        Link::Connecting | Link::Streaming | Link::Polling => None,
    };
    let answer = model.what_if.as_ref().zip(model.selected_signal()).map(|(asked, signal)| {
        let answer = WhatIf::of(asked, state, signal).map(|it| it.sentence);
        format!("what if: {}", answer.unwrap_or_else(|| format!("{} is not observed", signal.signal)))
    });
    let notable = model.mistake.clone().or(lost);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for text in [notable, answer, paused(model)].into_iter().flatten() {
        let mut wrapped = wrap(&text, columns);
        wrapped.truncate(MOST);
        lines.extend(wrapped.into_iter().map(|line| Line::styled(line, look.warning())));
    }
    if lines.is_empty() {
        let keys = if model.focus == Focus::Incidents { KEYS_OF_INCIDENTS } else { KEYS };
        lines.push(Line::styled(fit(keys, columns), look.faint()));
    }
    lines
}

fn paused(model: &Model) -> Option<String> {
    let at = model.paused?;
    let age = period(model.age().unwrap_or_default());
    Some(format!(
        "paused at {} of {} recorded states, {age} ago; [ ] step, esc back to the present",
        at + 1,
        model.frames.len()
    ))
}

/// Returns the screen before the first document.
pub fn waiting(model: &Model, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut texts = Vec::new();
    if let Measured::ByTop { missing } = &model.measured {
        texts.push("top starts to measure this node itself, without an agent".to_owned());
        texts.extend(missing.clone());
    }
    texts.push(match &model.link {
        Link::Lost(reason) => format!("no connection: {reason}"),
        Link::Connecting | Link::Streaming | Link::Polling => "waiting for the first document; q quits".to_owned(),
    });
    let lines = texts.iter().flat_map(|text| wrap(text, columns));
    lines.map(|line| Line::styled(line, look.warning())).collect()
}
