//! Past incidents, newest first.

use ratatui::text::{Line, Span};

use crate::model::{Focus, Model};
use crate::text::fit;
use crate::view::look::Look;

/// Returns at most so many incidents, the selected one among them.
pub fn lines(model: &Model, look: Look, columns: usize, height: usize) -> Vec<Line<'static>> {
    let incidents = model.incidents();
    if incidents.is_empty() && height > 0 {
        return vec![Line::styled("no incidents", look.faint())];
    }
    let selected = model.incident_row();
    let first = (selected + 1).saturating_sub(height);
    let visible = incidents.iter().enumerate().skip(first).take(height);
    let line = |(at, incident): (usize, &node_pressure_state::IncidentLine)| {
        let is_highlighted = at == selected && model.focus == Focus::Incidents;
        let mark = if is_highlighted { '>' } else { ' ' };
        let more = match incident.repeated {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let time = incident.time.strftime("%m-%d %H:%M:%SZ");
        let text = fit(&format!("{mark}{time} {}{more}", incident.summary), columns);
        Line::from(Span::styled(text, look.line(is_highlighted)))
    };
    visible.map(line).collect()
}
