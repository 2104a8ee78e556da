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
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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
    let mut used = 0;
    for letter in text.chars() {
        let wide = width(letter.encode_utf8(&mut [0; 4]));
        if used + wide + 1 > columns {
            break;
        }
        kept.push(letter);
        used += wide;
    }
    if columns > used {
        kept.push('…');
        used += 1;
    }
    format!("{kept}{}", " ".repeat(columns.saturating_sub(used)))
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

fn scaled(mut number: f64) -> String {
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for next in units {
        if number.abs() < 1024.0 {
            break;
        }
        number /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{number:.0} B") } else { format!("{number:.1} {unit}") }
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
        "bytes" => format!("{sign}{}/s", scaled(size)),
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
    fn numbers_have_units() {
        assert_eq!([amount(1023, "bytes"), amount(1536, "bytes"), amount(77, "pids")], ["1023 B", "1.5 KiB", "77"]);
        assert_eq!(
            [rate(-10_485_760.0, "bytes"), rate(0.0, "pids"), rate(1.5, "pids")],
            ["-10.0 MiB/s", "0", "+1.5/s"]
        );
        assert_eq!([wait(41.9), wait(1433.6), wait(86400.0)], ["42 s", "24 min", ">1 h"]);
    }
}
