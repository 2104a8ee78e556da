//! The model as a picture. Each pane is a file of its own, which returns lines; this file gives each its place.

mod compact;
mod graph;
mod header;
mod help;
mod incidents;
mod look;
mod missing;
mod pressure;
mod ranking;
mod record;
mod signals;
mod status;
mod workload;

use node_pressure_state::State;
use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::model::{Measured, Model, Page};
use crate::text::{is_hostile, width as width_of};
use crate::update::{Event, update};
use look::Look;

/// A smaller screen has no room for panes.
const SMALLEST: (u16, u16) = (60, 16);
/// A larger screen has a second column of panes.
const TWO_COLUMNS: (u16, u16) = (120, 24);
/// From this height on, panes have titles.
const TITLES: u16 = 32;

/// Returns one screen of the document as text, without blanks at the ends of lines.
#[must_use]
pub fn once(state: State, measured: Measured, width: u16, height: u16) -> String {
    let (model, _) = update(Model { measured, ..Model::default() }, Event::Document(Box::new(state)));
    screen(&model, width, height)
}

/// Returns the screen as text, without blanks at the ends of lines.
#[must_use]
pub fn screen(model: &Model, width: u16, height: u16) -> String {
    // The backend in memory has no errors.
    let Ok(mut terminal) = ratatui::Terminal::new(TestBackend::new(width, height));
    let Ok(drawn) = terminal.draw(|frame| render(model, frame));
    let line = |y| {
        let mut line = String::new();
        let mut x = 0;
        while let Some(cell) = drawn.buffer.cell((x, y)).filter(|_| x < width) {
            line.push_str(cell.symbol());
            // A wide letter covers the next cell.
            x += u16::try_from(width_of(cell.symbol())).unwrap_or(1).max(1);
        }
        line.trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

pub fn render(model: &Model, frame: &mut Frame<'_>) {
    let area = frame.area();
    let look = Look { has_colour: model.has_colour };
    draw(model, look, frame, area);
    // The last guard: no text of a workload controls the terminal, whatever way it took.
    for cell in &mut frame.buffer_mut().content {
        if cell.symbol().contains(is_hostile) {
            cell.set_symbol("?");
        }
    }
}

/// Draws the lines from the top of the area on.
fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
}

fn draw(model: &Model, look: Look, frame: &mut Frame<'_>, area: Rect) {
    let (columns, height) = (usize::from(area.width), usize::from(area.height));
    if model.page == Page::Help {
        return put(frame, area, help::lines(look, columns));
    }
    if let Some(opened) = &model.opened {
        return put(frame, area, record::lines(opened, look, columns, height));
    }
    let Some(state) = model.shown() else { return put(frame, area, status::waiting(model, look, columns)) };
    if model.page == Page::Missing {
        return put(frame, area, missing::page(state, look, columns));
    }
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return put(frame, area, compact::lines(model, state, look, columns, height));
    }
    let top = header::lines(model, state, look, columns);
    let bottom = status::lines(model, state, look, columns);
    let [top_height, bottom_height] = [&top, &bottom].map(|lines| u16::try_from(lines.len()).unwrap_or(u16::MAX));
    let middle = Rect {
        y: area.y.saturating_add(top_height),
        height: area.height.saturating_sub(top_height.saturating_add(bottom_height)),
        ..area
    };
    put(frame, area, top);
    put(frame, Rect { y: middle.bottom(), height: area.bottom().saturating_sub(middle.bottom()), ..area }, bottom);
    if area.width < TWO_COLUMNS.0 || area.height < TWO_COLUMNS.1 {
        return put(frame, middle, main_column(model, state, look, middle, true));
    }
    let left = Rect { width: area.width * 5 / 8, ..middle };
    let right = Rect { x: left.right() + 2, width: area.width.saturating_sub(left.width + 2), ..middle };
    put(frame, left, main_column(model, state, look, left, false));
    put(frame, right, side_column(model, state, look, usize::from(right.width)));
}

/// Returns the signals, the ranking and the incidents. A screen with one column has the shortest form of the other panes among them.
fn main_column(model: &Model, state: &State, look: Look, area: Rect, is_only: bool) -> Vec<Line<'static>> {
    let (columns, height) = (usize::from(area.width), usize::from(area.height));
    let has_titles = area.height >= TITLES;
    let titled = |title: &str, mut lines: Vec<Line<'static>>| {
        if has_titles {
            lines.insert(0, look.title(title, columns));
        }
        lines
    };
    let rows = model.rows();
    let selected = rows.get(model.row(&rows));
    let mut top = titled("signals", signals::lines(model, state, look, columns));
    if is_only {
        top.push(pressure::line(state, columns));
        top.extend(missing::line(state, look, columns));
    }
    if has_titles {
        top.push(Line::default());
    }
    let most = (height / 8).max(2);
    let mut bottom = titled("incidents", incidents::lines(model, look, columns, most));
    if is_only {
        bottom.splice(0..0, selected.map(|row| workload::line(row, columns)));
    }
    let room = height.saturating_sub(top.len() + bottom.len());
    let mut lines = top;
    lines.extend(titled(
        "ranking",
        ranking::lines(model, &rows, look, columns, room.saturating_sub(usize::from(has_titles))),
    ));
    lines.resize_with(height.saturating_sub(bottom.len()), Line::default);
    lines.extend(bottom);
    lines
}

/// Returns the panes of the second column, the most useful ones first: a low screen cuts the last.
fn side_column(model: &Model, state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let rows = model.rows();
    let selected = rows.get(model.row(&rows)).map(|row| workload::pane(model, row, look, columns));
    let panes = [
        selected.unwrap_or_default(),
        missing::pane(state, look, columns),
        pressure::pane(state, look, columns),
        workload::exempt(&rows, look, columns),
        pressure::node(state, look, columns),
    ];
    let mut lines = Vec::new();
    for pane in panes.into_iter().filter(|pane| !pane.is_empty()) {
        if !lines.is_empty() {
            lines.push(Line::from(Span::raw("")));
        }
        lines.extend(pane);
    }
    lines
}
