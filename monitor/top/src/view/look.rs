//! The styles of the view. Without colour they are bold, dim and reversed letters.

use node_pressure_state::{Level, SignalState};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::text::{fit, width, wrap};

#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub has_colour: bool,
}

impl Look {
    fn coloured(self, colour: Color, without: Modifier) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new().add_modifier(without) }
    }

    pub fn level(self, level: Level) -> Style {
        match level {
            Level::Green => self.coloured(Color::Green, Modifier::empty()),
            Level::Yellow => self.coloured(Color::Yellow, Modifier::BOLD),
            Level::Red => self.coloured(Color::Red, Modifier::BOLD),
            Level::Unknown => self.coloured(Color::DarkGray, Modifier::DIM),
        }
    }

    pub fn mark(self) -> Style {
        self.coloured(Color::Magenta, Modifier::empty()).add_modifier(Modifier::BOLD)
    }

    pub fn faint(self) -> Style {
        self.coloured(Color::DarkGray, Modifier::DIM)
    }

    pub fn warning(self) -> Style {
        self.coloured(Color::Yellow, Modifier::BOLD)
    }

    pub fn line(self, is_selected: bool) -> Style {
        if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
    }

    /// Returns the first line of a pane: its title and a rule.
    pub fn title(self, text: &str, columns: usize) -> Line<'static> {
        let title = fit(text, width(text).min(columns.saturating_sub(6)));
        let rule = "─".repeat(columns.saturating_sub(width(&title) + 4));
        Line::from(vec![
            Span::styled("── ", self.faint()),
            Span::styled(title, Style::new().add_modifier(Modifier::BOLD)),
            Span::styled(format!(" {rule}"), self.faint()),
        ])
    }
}

/// Returns how near a signal is to its thresholds.
pub fn level_of(signal: &SignalState) -> Level {
    if signal.available.is_none() {
        Level::Unknown
    } else if signal.thresholds.iter().any(|it| it.met && it.kind == "hard") {
        Level::Red
    } else if signal.is_tight() {
        Level::Yellow
    } else {
        Level::Green
    }
}

/// Returns a labelled text, wrapped beside its label.
pub fn labelled(label: &str, text: &str, columns: usize) -> Vec<Line<'static>> {
    const LABEL: usize = 11;
    let lines = wrap(text, columns.saturating_sub(LABEL + 1));
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    labels.zip(lines).map(|(label, line)| Line::raw(format!("{} {line}", fit(label, LABEL)))).collect()
}
