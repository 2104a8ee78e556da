//! A signal over time as one line of block characters.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the lowest value of each column, from `from` to `to` milliseconds before the incident, between zero and `full`. Columns before
/// the first sample are blank.
pub fn spark(samples: &[(f64, u64)], from: f64, to: f64, columns: u32, full: u64) -> String {
    let width = (from - to) / f64::from(columns);
    let mut line = String::new();
    for column in 0..columns {
        let begin = from - width * f64::from(column);
        let end = begin - width;
        // The value that held when the column began, and the samples within it. The last column includes its end.
        let is_last = column + 1 == columns;
        let held = samples.iter().rev().find(|(before, _)| *before >= begin).map(|(_, value)| *value);
        let within =
            samples.iter().filter(|(before, _)| *before < begin && (*before > end || is_last && *before >= end));
        let lowest = within.map(|(_, value)| *value).chain(held).min();
        line.push(lowest.map_or(' ', |value| block(value, full)));
    }
    line
}

fn block(value: u64, full: u64) -> char {
    let last = BLOCKS.len() as u128 - 1;
    let full = u128::from(full.max(1));
    let level = (u128::from(value) * last + full / 2) / full;
    BLOCKS[usize::try_from(level.min(last)).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next_and_dips_show() {
        let samples = [(50.0, 80), (35.0, 10), (34.0, 80), (10.0, 40), (0.0, 0), (-5.0, 80)];
        assert_eq!(spark(&samples, 60.0, 0.0, 6, 80), " █▂██▁");
        assert_eq!(spark(&samples, 10.0, 0.0, 5, 80), "▅▅▅▅▁");
        assert_eq!(spark(&[], 10.0, 0.0, 3, 80), "   ");
        assert_eq!(spark(&[(9.0, 5)], 10.0, 0.0, 2, 0), "██");
    }
}
