//! One line for each signal: a bar with threshold marks, the minute before, what is left, and the time to each threshold.

use std::cmp::Ordering;

use node_pressure_state::{SignalState, State, ThresholdState};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::model::Model;
use crate::text::{amount, fit, fit_right, rate, wait, width};
use crate::view::graph::{Cell, bar, history};
use crate::view::look::{Look, level_of};
use crate::what_if::WhatIf;

/// Beyond an hour a rate foretells nothing.
const FORESEEN: f64 = 3600.0;
const LEFT: usize = 10;
const RATE: usize = 11;
/// Columns that the thresholds need.
const THRESHOLDS: usize = 28;
const MINUTE: (f64, f64) = (60_000.0, 0.0);

/// The widths of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Columns {
    name: usize,
    bar: usize,
    history: usize,
    rate: usize,
    thresholds: usize,
}

impl Columns {
    fn of(state: &State, columns: usize) -> Self {
        let longest = state.signals.iter().map(|signal| width(&signal.signal)).max().unwrap_or_default();
        let name = longest.min(27).min(columns / 4);
        let rate = if columns >= 95 { RATE + 1 } else { 0 };
        // A blank follows each column, a mark comes before the name.
        let rest = columns.saturating_sub(name + 2 + LEFT + 1 + rate);
        let drawn = rest.saturating_sub(THRESHOLDS + 2);
        let bar = (drawn / 2).min(24);
        let history = (drawn - bar).min(60);
        Self { name, bar, history, rate, thresholds: rest.saturating_sub(bar + history + 2) }
    }
}

pub fn lines(model: &Model, state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let selected = model.selected_signal().map(|signal| &*signal.signal);
    let columns = Columns::of(state, columns);
    let line = |signal| line(model, signal, look, columns, selected);
    state.signals.iter().map(line).collect()
}

fn line(model: &Model, signal: &SignalState, look: Look, columns: Columns, selected: Option<&str>) -> Line<'static> {
    let is_selected = selected == Some(&*signal.signal);
    let (mark, name) = if is_selected { ('>', Modifier::BOLD) } else { (' ', Modifier::empty()) };
    let level = look.level(level_of(signal));
    let mut spans =
        vec![Span::styled(format!("{mark}{} ", fit(&signal.signal, columns.name)), Style::new().add_modifier(name))];
    let asked = model.what_if.as_ref().filter(|_| is_selected);
    let asked = asked.and_then(|asked| WhatIf::value(asked, signal));
    spans.extend(bar_of(signal, asked, columns.bar).into_iter().map(|cell| {
        let style = match cell {
            Cell::Filled => level,
            Cell::Free => look.faint(),
            Cell::Soft | Cell::Hard | Cell::WhatIf => look.mark(),
        };
        Span::styled(cell.letter().to_string(), style)
    }));
    let least = signal.capacity.unwrap_or_default() / 50;
    let drawn = history(&signal.history.samples, MINUTE, columns.history, least);
    spans.push(Span::styled(format!("{:1$} {drawn} ", "", padding(signal, columns.bar)), level));
    spans.push(Span::raw(format!("{} ", fit_right(&left(signal), LEFT))));
    if columns.rate > 0 {
        let change = signal.per_second.map(|change| rate(change, &signal.unit)).unwrap_or_default();
        spans.push(Span::raw(format!("{} ", fit_right(&change, columns.rate - 1))));
    }
    spans.push(Span::styled(fit(&thresholds(signal), columns.thresholds), level));
    Line::from(spans)
}

/// Blanks in place of a bar.
fn padding(signal: &SignalState, columns: usize) -> usize {
    if extent(signal).is_some() { 0 } else { columns }
}

fn extent(signal: &SignalState) -> Option<(u64, u64)> {
    signal.available.zip(signal.capacity.filter(|capacity| *capacity > 0))
}

fn bar_of(signal: &SignalState, asked: Option<f64>, columns: usize) -> Vec<Cell> {
    let Some((available, capacity)) = extent(signal) else { return Vec::new() };
    let marks = |kind: &'static str, cell: Cell| {
        let of_kind = signal.thresholds.iter().filter(move |it| (it.kind == "soft") == (kind == "soft"));
        of_kind.filter_map(move |it| Some((crate::text::float(it.value?), cell)))
    };
    let marks: Vec<(f64, Cell)> = marks("soft", Cell::Soft)
        .chain(marks("hard", Cell::Hard))
        .chain(asked.map(|value| (value, Cell::WhatIf)))
        .collect();
    bar(available, capacity, &marks, columns)
}

/// Returns what is left of a signal.
pub fn left(signal: &SignalState) -> String {
    signal.available.map_or_else(|| "unknown".to_owned(), |left| amount(left, &signal.unit))
}

/// Returns the thresholds with the time to each: the next to be crossed, then those that are met, then the others.
pub fn thresholds(signal: &SignalState) -> String {
    let foreseen = |it: &ThresholdState| it.crossed_in_seconds.filter(|seconds| !it.met && *seconds <= FORESEEN);
    let order = |it: &ThresholdState| match foreseen(it) {
        Some(seconds) => (0, seconds),
        None => (if it.met { 1 } else { 2 }, 0.0),
    };
    let mut thresholds: Vec<&ThresholdState> = signal.thresholds.iter().collect();
    thresholds.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(Ordering::Equal));
    let words = thresholds.into_iter().map(|it| {
        let name = it.threshold.strip_prefix(&signal.signal).unwrap_or(&it.threshold);
        match (foreseen(it), it.met, it.reported_only.as_ref().or(it.unarmed.as_ref())) {
            (Some(seconds), ..) => format!("{name} in {}", wait(seconds)),
            (None, true, Some(_)) if it.reported_only.is_some() => format!("{name} is met, reported only"),
            (None, true, None) => format!("{name} is met"),
            (None, true, Some(_)) => format!("{name} is met, not armed"),
            (None, false, _) => name.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_threshold_comes_first() {
        let threshold = |text: &str, met, seconds| ThresholdState {
            threshold: format!("memory.available{text}"),
            met,
            crossed_in_seconds: seconds,
            ..ThresholdState::default()
        };
        let words_of = |given: Vec<ThresholdState>| {
            thresholds(&SignalState {
                signal: "memory.available".to_owned(),
                thresholds: given,
                ..SignalState::default()
            })
        };
        for (given, text) in [
            (vec![threshold("<10%", true, Some(0.0)), threshold("<1%", false, Some(41.9))], "<1% in 42 s; <10% is met"),
            (vec![threshold("<10%", false, Some(7200.0)), threshold("<1%", false, Some(9000.0))], "<10%; <1%"),
            (vec![threshold("<1%", false, None)], "<1%"),
            (vec![], ""),
        ] {
            assert_eq!(words_of(given), text);
        }
    }

    #[test]
    fn the_columns_fill_the_line() {
        let signals = ["memory.available", "allocatableMemory.available"]
            .map(|name| SignalState { signal: name.to_owned(), ..SignalState::default() });
        let state = State { signals: signals.to_vec(), ..State::default() };
        for columns in [60, 80, 98, 160, 300] {
            let Columns { name, bar, history, rate, thresholds } = Columns::of(&state, columns);
            assert_eq!(1 + name + 1 + bar + 1 + history + 1 + LEFT + 1 + rate + thresholds, columns);
            assert!(bar >= 3 || columns < 80, "{columns}: {bar}");
        }
    }
}
