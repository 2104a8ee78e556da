//! The workloads in the order of eviction, or as sorted.

use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use crate::model::{Focus, Model, Row, Sort};
use crate::text::{amount, fit, fit_right, period, rate, width};
use crate::view::look::Look;

const PLACE: usize = 4;
const MEMORY: usize = 10;
const CHANGE: usize = 11;
const STALLS: usize = 7;
/// Columns of everything but the name and the reason. A blank follows each column, a mark comes before the first.
const FIXED: usize = 1 + PLACE + 1 + 1 + MEMORY + 1 + CHANGE + 1 + STALLS + 1;

/// Returns the headings and so many rows that they fill `height`, the selected one among them.
pub fn lines(model: &Model, rows: &[Row<'_>], look: Look, columns: usize, height: usize) -> Vec<Line<'static>> {
    let rest = columns.saturating_sub(FIXED);
    let longest = rows.iter().map(|row| width(row.display)).max().unwrap_or_default();
    // Names are worth more than reasons, which the selected row tells in full.
    let name = longest.clamp(16, 60).min(rest * 6 / 10);
    let why = rest.saturating_sub(name);
    let mut lines = vec![Line::styled(headings(model, rows, name, why), look.faint().add_modifier(Modifier::BOLD))];
    let room = height.saturating_sub(1);
    let selected = model.row(rows);
    let first = (selected + 1).saturating_sub(room);
    if rows.is_empty() {
        lines.push(Line::raw(if model.filter.is_empty() {
            "no workloads"
        } else {
            "no name has this in it; esc shows all"
        }));
    }
    let visible = rows.iter().enumerate().skip(first).take(room);
    lines.extend(visible.map(|(at, row)| line(model, row, at == selected, look, (name, why))));
    lines
}

fn headings(model: &Model, rows: &[Row<'_>], name: usize, why: usize) -> String {
    let sorted = |sort: Sort, text: &str| if model.sort == sort { format!("{text}▼") } else { text.to_owned() };
    let signal = model.selected_signal().map(|signal| &*signal.signal).unwrap_or_default();
    let subject = match (&*model.filter, model.sort) {
        ("", Sort::Name) => sorted(Sort::Name, "name"),
        ("", _) => format!("by {signal}"),
        (filter, _) => format!("{} with {filter:?}", rows.len()),
    };
    format!(
        " {} {} {} {} {} {}",
        fit_right(&sorted(Sort::Eviction, "#"), PLACE),
        fit(&subject, name),
        fit_right(&sorted(Sort::Memory, "memory"), MEMORY),
        fit_right(&sorted(Sort::Rate, "change"), CHANGE),
        fit_right(&sorted(Sort::Stalls, "stalls"), STALLS),
        fit("why", why)
    )
}

fn line(model: &Model, row: &Row<'_>, is_selected: bool, look: Look, (name, why): (usize, usize)) -> Line<'static> {
    let number = row.place.and_then(|place| place.place).map_or_else(|| "-".to_owned(), |place| place.to_string());
    let place = if row.is_next { "NEXT".to_owned() } else { number };
    let memory = row.state.and_then(|it| it.memory_bytes).map_or_else(String::new, |it| amount(it, "bytes"));
    let change = row.state.and_then(|it| it.memory_bytes_per_second).map_or_else(String::new, |it| rate(it, "bytes"));
    let mark = if is_selected { '>' } else { ' ' };
    let text = format!(
        "{mark}{} {} {} {} {} {}",
        fit_right(&place, PLACE),
        fit(row.display, name),
        fit_right(&memory, MEMORY),
        fit_right(&change, CHANGE),
        fit_right(&stalls(row), STALLS),
        fit(&reason(row), why)
    );
    let style = match (row.is_next, row.exempt().is_some()) {
        (true, _) => look.warning(),
        (false, true) => look.faint(),
        (false, false) => look.line(false),
    };
    let is_highlighted = is_selected && model.focus == Focus::Ranking;
    Line::from(Span::styled(text, style.patch(look.line(is_highlighted))))
}

/// Returns how long the workload's tasks have waited in reclaim.
fn stalls(row: &Row<'_>) -> String {
    match row.state.and_then(|it| it.stall_seconds) {
        None => String::new(),
        Some(seconds) if seconds < 0.05 => "0".to_owned(),
        Some(seconds) => period(seconds),
    }
}

/// Returns why the row has its place, or why it is exempt. The document of an older agent has only the keys of a place.
pub fn reason(row: &Row<'_>) -> String {
    let candidate = row.place.filter(|place| place.place.is_some());
    let why = candidate.and_then(|place| place.why.clone());
    let exempt = || row.exempt().map(|why| format!("exempt: {why}"));
    let keys = || row.place.map(|place| place.keys.iter().map(|key| &*key.value).collect::<Vec<_>>().join(", "));
    why.or_else(exempt).or_else(keys).unwrap_or_default()
}
