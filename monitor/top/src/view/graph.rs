//! Bars and lines of history, drawn with letters.

use crate::text::float;

/// Letters of a history, lowest first.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Returns the history in so many columns, from the lowest to the highest value of the period. A column shows the lowest value of its time; one
/// before the first sample is blank.
///
/// `samples` are as in [`node_pressure_state::History`]: milliseconds before the end, and the value from then on. `from` and `to` are
/// milliseconds before the same end. `least` is the smallest difference that fills the height: noise looks flat, in the middle.
pub fn history(samples: &[(f64, u64)], (from, to): (f64, f64), columns: usize, least: u64) -> String {
    let column = |at: usize| {
        let bound = |at: usize| from - (from - to) * float(at as u64) / float(columns as u64);
        let (begin, end) = (bound(at), bound(at + 1));
        let before = samples.iter().rfind(|(ms, _)| *ms >= begin);
        // A sample at the end of a column is the value of the next one.
        let is_last = at + 1 == columns;
        let within = samples.iter().filter(|(ms, _)| *ms < begin && (*ms > end || is_last && *ms >= end));
        before.into_iter().chain(within).map(|(_, value)| *value).min()
    };
    let values: Vec<Option<u64>> = (0..columns).map(column).collect();
    let lowest = values.iter().flatten().min().copied().unwrap_or_default();
    let highest = values.iter().flatten().max().copied().unwrap_or_default();
    let span = (highest - lowest).max(least).max(1);
    let below = (span - (highest - lowest)) / 2;
    let letter = |value: u64| {
        let level = (u128::from(value - lowest) + u128::from(below)) * (LEVELS.len() as u128 - 1) / u128::from(span);
        usize::try_from(level).ok().and_then(|level| LEVELS.get(level)).copied().unwrap_or('█')
    };
    values.into_iter().map(|value| value.map_or(' ', letter)).collect()
}

/// A cell of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    Filled,
    Free,
    Soft,
    Hard,
    WhatIf,
}

impl Cell {
    pub const fn letter(self) -> char {
        match self {
            Self::Filled => '█',
            Self::Free => '░',
            Self::Soft => ':',
            Self::Hard => '|',
            Self::WhatIf => 'w',
        }
    }
}

/// Returns the share of `available` in `capacity` as cells, with marks at these values. A later mark covers an earlier one.
pub fn bar(available: u64, capacity: u64, marks: &[(f64, Cell)], columns: usize) -> Vec<Cell> {
    let last = columns.saturating_sub(1);
    let filled = cells(float(available) / float(capacity), columns);
    let mut cells_of_bar: Vec<Cell> =
        (0..columns).map(|at| if at < filled { Cell::Filled } else { Cell::Free }).collect();
    for (value, mark) in marks {
        let at = cells(value / float(capacity), columns).saturating_sub(1).min(last);
        if let Some(cell) = cells_of_bar.get_mut(at) {
            *cell = *mark;
        }
    }
    cells_of_bar
}

/// Returns how many cells the share takes. A cell that is begun counts.
fn cells(share: f64, columns: usize) -> usize {
    (0..columns).filter(|at| float(*at as u64) < share * float(columns as u64)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_drawn_in_its_columns() {
        let minute = (60_000.0, 0.0);
        let ramp: Vec<(f64, u64)> = (0..8).map(|at| (60_000.0 - 7_500.0 * float(at), 80 - 10 * at)).collect();
        for (samples, columns, least, drawn) in [
            (ramp.as_slice(), 8, 0, "█▇▆▅▄▃▂▁"),
            (&ramp, 4, 0, "█▅▃▁"),
            (&[(70_000.0, 5)], 4, 100, "▄▄▄▄"),
            (&[(30_000.0, 5)], 4, 100, "  ▄▄"),
            (&[(60_000.0, 101), (30_000.0, 100)], 4, 1000, "▄▄▄▄"),
            (&[(60_000.0, 9), (29_000.0, 1), (28_000.0, 9)], 4, 0, "██▁█"),
            (&[], 3, 0, "   "),
            (&[(60_000.0, u64::MAX), (1.0, 0)], 2, 0, "█▁"),
            (&ramp, 0, 0, ""),
        ] {
            assert_eq!(history(samples, minute, columns, least), drawn, "{samples:?}");
        }
    }

    #[test]
    fn a_bar_has_marks_at_thresholds() {
        for (available, marks, drawn) in [
            (50, vec![], "█████░░░░░"),
            (0, vec![(10.0, Cell::Hard)], "|░░░░░░░░░"),
            (100, vec![(11.0, Cell::Hard), (30.0, Cell::Soft)], "█|:███████"),
            (55, vec![(80.0, Cell::WhatIf)], "██████░w░░"),
            (100, vec![(10.0, Cell::Soft), (1.0, Cell::Hard)], "|█████████"),
            (100, vec![(1e9, Cell::WhatIf)], "█████████w"),
        ] {
            let cells = bar(available, 100, &marks, 10);
            assert_eq!(cells.into_iter().map(Cell::letter).collect::<String>(), drawn);
        }
        assert!(bar(1, 2, &[(1.0, Cell::Hard)], 0).is_empty());
    }
}
