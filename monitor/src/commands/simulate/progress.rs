//! Progress of a simulation, on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::super::output;

/// Minimum interval between redraws.
const INTERVAL: Duration = Duration::from_millis(200);
/// The clock is read once per this many lines, or more often for long lines.
const LINES_A_LOOK: u64 = 64;
const BYTES_A_LOOK: u64 = 1 << 20;
/// Maximum number of printed notes; the rest is only counted.
const NOTES: u64 = 5;

/// Progress, notes and figures, on stderr.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    drawn: Option<Instant>,
    looked: (u64, u64),
    is_drawn: bool,
    draws: bool,
    prints_figures: bool,
    prints_notes: bool,
    size: Option<u64>,
    notes: u64,
}

impl Progress {
    /// Draws only on a terminal, and not where the answer scrolls by on the same terminal. `size` is the length of the
    /// trace, if known. The final figures are printed on a terminal, or on request.
    pub fn new(size: Option<u64>, wants_figures: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            draws: is_terminal && !io::stdout().is_terminal(),
            prints_figures: is_terminal || wants_figures,
            prints_notes: true,
            ..Self::silent(size)
        }
    }

    /// Returns a progress that prints nothing.
    pub fn silent(size: Option<u64>) -> Self {
        Self {
            started: Instant::now(),
            drawn: None,
            looked: (0, 0),
            is_drawn: false,
            draws: false,
            prints_figures: false,
            prints_notes: false,
            size,
            notes: 0,
        }
    }

    pub fn at(&mut self, lines: u64, bytes: u64) {
        let is_soon = lines < self.looked.0 + LINES_A_LOOK && bytes < self.looked.1 + BYTES_A_LOOK;
        if !self.draws || is_soon {
            return;
        }
        self.looked = (lines, bytes);
        let now = Instant::now();
        if self.drawn.is_none_or(|drawn| now.duration_since(drawn) >= INTERVAL) {
            self.drawn = Some(now);
            let percent = self.size.filter(|size| *size > 0).map(|size| {
                let percent = u128::from(bytes.min(size)) * 100 / u128::from(size);
                format!(", {percent} %")
            });
            let text = format!("{}{}", figures(lines, now.duration_since(self.started)), percent.unwrap_or_default());
            self.is_drawn = true;
            // An error while drawing the progress must not stop the simulation.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Prints a note about an oddity that is no error.
    pub fn note(&mut self, text: &str) {
        self.notes += 1;
        if self.notes <= NOTES {
            self.print(text);
        }
    }

    /// Prints a note that does not count towards the maximum.
    pub fn print(&mut self, text: &str) {
        if self.prints_notes {
            self.clear();
            output::note(text);
        }
    }

    pub fn end(mut self, lines: u64) {
        self.clear();
        if self.prints_notes && self.notes > NOTES {
            output::note(format_args!("and {} more such notes", self.notes - NOTES));
        }
        if self.prints_figures {
            let _ = writeln!(io::stderr(), "{}", figures(lines, self.started.elapsed()));
        }
    }

    pub fn clear(&mut self) {
        if self.is_drawn {
            self.is_drawn = false;
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// `100 lines in 2.0 s (50 lines/s)`
fn figures(lines: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = if seconds > 0.0 { lines as f64 / seconds } else { 0.0 };
    format!("{lines} lines in {seconds:.1} s ({rate:.0} lines/s)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_units() {
        assert_eq!(figures(100, Duration::from_secs(2)), "100 lines in 2.0 s (50 lines/s)");
        assert_eq!(figures(0, Duration::ZERO), "0 lines in 0.0 s (0 lines/s)");
    }
}
