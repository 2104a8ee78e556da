//! A screen that is too small for the panes: the verdict, the nearest signal and the next victim.

use node_pressure_state::State;
use ratatui::text::Line;

use crate::model::Model;
use crate::text::{fit, wrap};
use crate::view::header::sentence;
use crate::view::look::{Look, level_of};
use crate::view::pressure;
use crate::view::signals::{left, thresholds};
use crate::view::status;

pub fn lines(model: &Model, state: &State, look: Look, columns: usize, height: usize) -> Vec<Line<'static>> {
    let verdict = sentence(state, columns).into_iter().map(|line| Line::styled(line, look.level(state.verdict.level)));
    let mut lines: Vec<Line<'static>> = verdict.collect();
    if let Some(signal) = model.selected_signal() {
        let style = look.level(level_of(signal));
        let words = wrap(&format!("{} {}: {}", signal.signal, left(signal), thresholds(signal)), columns);
        lines.extend(words.into_iter().take(2).map(|line| Line::styled(line, style)));
    }
    let rows = model.rows();
    if let Some(next) = rows.iter().find(|row| row.is_next) {
        lines.push(Line::raw(fit(&format!("next {}", next.display), columns)));
    }
    lines.push(pressure::line(state, columns));
    let status = status::lines(model, state, look, columns);
    lines.truncate(height.saturating_sub(status.len()));
    lines.resize_with(height.saturating_sub(status.len()), Line::default);
    lines.extend(status);
    lines
}
