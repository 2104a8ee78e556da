//! The agent's missing capabilities, each with its remedy.

use node_pressure_state::{Degradation, State};
use ratatui::style::Style;
use ratatui::text::Line;

use crate::text::{fit, wrap};
use crate::view::look::Look;

/// Returns the degradations, and what is wrong with the configuration. Those without a remedy come last.
fn all(state: &State) -> Vec<Degradation> {
    let configuration = &state.agent.configuration;
    let is_explained = configuration.refused.is_some() || !configuration.restart_needed.is_empty();
    let others = state.degradations.iter();
    let others = others.filter(|it| !(is_explained && it.capability == Degradation::CONFIGURATION)).cloned();
    let refused = configuration.refused.as_ref().map(|reason| Degradation {
        capability: "configuration".to_owned(),
        sentence: format!("{reason}; the configuration before it stays in force"),
        mend: Some("correct the file; check-config lists all its errors".to_owned()),
    });
    let restart = (!configuration.restart_needed.is_empty()).then(|| Degradation {
        capability: "restart".to_owned(),
        sentence: format!("{} changed, and needs a restart", configuration.restart_needed.join(", ")),
        mend: Some("restart the agent".to_owned()),
    });
    let mut all: Vec<Degradation> = others.chain(refused).chain(restart).collect();
    all.sort_by_key(|it| it.mend.is_none());
    all
}

/// Nothing can be done about a degradation without a remedy: it is no warning.
fn style(degradation: &Degradation, look: Look) -> Style {
    if degradation.mend.is_some() { look.warning() } else { look.faint() }
}

/// Returns one line, if anything is missing.
pub fn line(state: &State, look: Look, columns: usize) -> Option<Line<'static>> {
    let all = all(state);
    let first = all.first()?;
    let more = match all.len() {
        1 => String::new(),
        count => format!(" (d: all {count})"),
    };
    let text = format!("missing{more}: {}: {}", first.capability, first.sentence);
    Some(Line::styled(fit(&text, columns), style(first, look)))
}

/// Returns the pane as a page of its own.
pub fn page(state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = pane(state, look, columns);
    lines.push(Line::styled("any key closes this", look.faint()));
    lines
}

/// Returns everything that is missing, with what to do.
pub fn pane(state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let all = all(state);
    let mut lines = vec![look.title("missing", columns)];
    if all.is_empty() {
        lines.push(Line::raw("nothing"));
    }
    for it in all {
        let said = wrap(&format!("{}: {}", it.capability, it.sentence), columns);
        lines.extend(said.into_iter().map(|line| Line::styled(line, style(&it, look))));
        let mend = it.mend.map(|mend| wrap(&format!("What to do: {mend}"), columns.saturating_sub(2)));
        lines.extend(mend.into_iter().flatten().map(|line| Line::raw(format!("  {line}"))));
    }
    lines
}
