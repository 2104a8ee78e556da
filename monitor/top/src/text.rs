//! Texts for a terminal: cleaned, cut to a width, and numbers with units.

use ratatui::text::Span;

/// Returns the text with a question mark in place of characters that control a terminal, change the direction of text or are invisible.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars().map(|letter| if is_hostile(letter) { REPLACEMENT } else { letter }).collect()
}

/// Not U+FFFD, which some terminals leave out: the rest of the line would move.
const REPLACEMENT: char = '?';

pub fn is_hostile(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Columns that the text takes.
pub fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Returns the text in exactly `columns`: padded with blanks, or cut with an ellipsis.
pub fn fit(text: &str, columns: usize) -> String {
    let whole = width(text);
    if whole <= columns {
        return format!("{text}{}", " ".repeat(columns - whole));
    }
    let mut kept = String::new();
    for letter in text.chars() {
        // The whole is measured: a mark that follows a letter can widen it.
        kept.push(letter);
        if width(&kept) + 1 > columns {
            kept.pop();
            break;
        }
    }
    if columns > width(&kept) {
        kept.push('…');
    }
    let used = width(&kept);
    format!("{kept}{}", " ".repeat(columns.saturating_sub(used)))
}

/// Returns the text in lines of at most so many columns, broken at blanks where there are any.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(2);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.pop().unwrap_or_default();
        let joined = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&joined) <= columns {
            lines.push(joined);
            continue;
        }
        if !line.is_empty() {
            lines.push(line);
        }
        let mut part = String::new();
        for letter in word.chars() {
            part.push(letter);
            if width(&part) > columns {
                part.pop();
                lines.push(std::mem::replace(&mut part, letter.to_string()));
            }
        }
        lines.push(part);
    }
    lines
}

/// As [`fit`], aligned right.
pub fn fit_right(text: &str, columns: usize) -> String {
    let whole = width(text);
    if whole > columns { fit(text, columns) } else { format!("{}{text}", " ".repeat(columns - whole)) }
}

#[expect(clippy::cast_precision_loss, reason = "for display with one decimal")]
pub fn float(number: u64) -> f64 {
    number as f64
}

fn scaled(number: f64) -> String {
    let (number, unit) = in_unit(number);
    if unit == "B" { format!("{number:.0} B") } else { format!("{number:.1} {unit}") }
}

/// As [`scaled`], with at most four digits.
fn brief(number: f64) -> String {
    let (number, unit) = in_unit(number);
    if unit == "B" || number >= 100.0 { format!("{number:.0} {unit}") } else { format!("{number:.1} {unit}") }
}

fn in_unit(mut number: f64) -> (f64, &'static str) {
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if number.abs() < 1024.0 {
            break;
        }
        number /= 1024.0;
        unit = next;
    }
    (number, unit)
}

/// Returns a number of a signal's unit.
pub fn amount(number: u64, unit: &str) -> String {
    if unit == "bytes" { scaled(float(number)) } else { number.to_string() }
}

/// Returns the change of a number, with its sign.
pub fn rate(per_second: f64, unit: &str) -> String {
    let size = per_second.abs();
    let sign = if per_second < 0.0 { '-' } else { '+' };
    match unit {
        "bytes" if size < 1.0 => "0".to_owned(),
        "bytes" => format!("{sign}{}/s", brief(size)),
        _ if size < 0.05 => "0".to_owned(),
        _ => format!("{sign}{size:.1}/s"),
    }
}

/// Returns a time to wait. Beyond an hour a rate foretells nothing.
pub fn wait(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s <= 3600.0 => format!("{:.0} min", s / 60.0),
        _ => ">1 h".to_owned(),
    }
}

/// Returns a period that has passed.
pub fn period(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_letters_are_replaced() {
        for (hostile, cleaned) in [
            ("a\u{1b}[2Jb", "a?[2Jb"),
            ("\u{9b}31m\r\n\t", "?31m???"),
            ("x\u{202e}y\u{200b}", "x?y?"),
            ("größe 漢字", "größe 漢字"),
            // Terminals disagree about the width of a letter with a variation selector.
            ("❤\u{fe0f}", "❤?"),
        ] {
            assert_eq!(clean(hostile), cleaned);
        }
    }

    #[test]
    fn a_text_takes_exactly_its_columns() {
        for (text, columns, fitted) in [
            ("abc", 5, "abc  "),
            ("abcdef", 4, "abc…"),
            ("漢字漢字", 4, "漢… "),
            ("漢字漢字", 6, "漢字… "),
            ("a", 0, ""),
        ] {
            assert_eq!(fit(text, columns), fitted, "{text} in {columns}");
            assert_eq!(width(fitted), columns);
        }
        assert_eq!(fit_right("7", 3), "  7");
    }

    #[test]
    fn a_long_text_is_wrapped_at_blanks() {
        for (text, columns, lines) in [
            ("one two three", 7, vec!["one two", "three"]),
            ("one abcdefghij", 4, vec!["one", "abcd", "efgh", "ij"]),
            ("漢字漢字", 5, vec!["漢字", "漢字"]),
            ("", 5, vec![""]),
        ] {
            assert_eq!(wrap(text, columns), lines);
        }
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!([amount(1023, "bytes"), amount(1536, "bytes"), amount(77, "pids")], ["1023 B", "1.5 KiB", "77"]);
        assert_eq!(
            [rate(-10_485_760.0, "bytes"), rate(1e6, "bytes"), rate(0.0, "pids"), rate(1.5, "pids")],
            ["-10.0 MiB/s", "+977 KiB/s", "0", "+1.5/s"]
        );
        assert_eq!([wait(41.9), wait(1433.6), wait(86400.0)], ["42 s", "24 min", ">1 h"]);
    }
}
