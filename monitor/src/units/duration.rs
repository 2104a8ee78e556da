//! Durations in Go's syntax: `1h30m`, `500ms`, `.5s`, `0`.

use std::fmt::Write as _;
use std::time::Duration;

/// Why a text is not a duration, in the words of Go's `time.ParseDuration`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Not a list of numbers with units, or more than 64 bits of nanoseconds (292 years).
    #[error("time: invalid duration {0}")]
    Invalid(String),
    #[error("time: missing unit in duration {0}")]
    MissingUnit(String),
    #[error("time: unknown unit {unit} in duration {text}")]
    UnknownUnit { unit: String, text: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SignedNanos(pub i64);

impl SignedNanos {
    /// Returns `None` when the duration is negative.
    pub fn to_duration(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }
}

/// Both the micro sign and the Greek letter are accepted.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration as Go does: an optional sign, then numbers (fractions allowed) each with a unit, or a bare `0`.
pub fn parse_go_duration(text: &str) -> Result<SignedNanos, DurationError> {
    let invalid = || DurationError::Invalid(quote(text));
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(SignedNanos(0));
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    // -2^63 has no positive counterpart, so the sum may reach 2^63, and the sign is applied at the end.
    let limit = 1_u64 << 63;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (integer, after) = split_digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if integer.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|character: char| character == '.' || character.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(quote(text)));
        }
        let nanos = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .map(|(_, nanos)| *nanos)
            .ok_or_else(|| DurationError::UnknownUnit { unit: quote(unit), text: quote(text) })?;
        total = whole_part(integer, nanos)
            .and_then(|whole| whole.checked_add(fraction_part(fraction, nanos)))
            .and_then(|part| total.checked_add(part))
            .filter(|total| *total <= limit)
            .ok_or_else(invalid)?;
        rest = after;
    }
    if negative {
        // 2^63 wraps to -2^63.
        return Ok(SignedNanos(0_i64.wrapping_sub_unsigned(total)));
    }
    i64::try_from(total).map(SignedNanos).map_err(|_| invalid())
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn whole_part(digits: &str, nanos: u64) -> Option<u64> {
    let value = if digits.is_empty() { 0 } else { digits.parse::<u64>().ok()? };
    value.checked_mul(nanos)
}

/// Truncates to a nanosecond. Digits beyond the 18th are less than a nanosecond even of an hour.
fn fraction_part(digits: &str, nanos: u64) -> u64 {
    let mut value: u128 = 0;
    let mut scale: u128 = 1;
    for byte in digits.bytes().take(18) {
        value = value * 10 + u128::from(byte - b'0');
        scale *= 10;
    }
    u64::try_from(value * u128::from(nanos) / scale).unwrap_or(u64::MAX)
}

/// Quotes as Go does in these messages: bytes that are not printable ASCII are escaped.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

/// Prints a duration as Go does: `1h30m0s`, `1.5s`, `500ms`, `0s`.
pub fn format_go_duration(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    let seconds = duration.as_secs();
    if seconds == 0 {
        return match nanos {
            0 => "0s".to_owned(),
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => format!("{}\u{b5}s", with_fraction(u64::from(nanos / 1_000), nanos % 1_000, 3)),
            _ => format!("{}ms", with_fraction(u64::from(nanos / 1_000_000), nanos % 1_000_000, 6)),
        };
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let mut text = String::new();
    if hours > 0 {
        let _ = write!(text, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(text, "{minutes}m");
    }
    text + &with_fraction(seconds % 60, nanos, 9) + "s"
}

fn with_fraction(whole: u64, fraction: u32, places: usize) -> String {
    let digits = format!("{fraction:0places$}");
    let digits = digits.trim_end_matches('0');
    if digits.is_empty() { whole.to_string() } else { format!("{whole}.{digits}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_texts() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("-0s", 0),
            ("30s", 30_000_000_000),
            ("+5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1m1h", 3_660_000_000_000),
            ("100ms", 100_000_000),
            ("1us", 1_000),
            ("1\u{b5}s", 1_000),
            ("1\u{3bc}s", 1_000),
            ("1.5ns", 1),
            ("0.9999999999999999999999s", 999_999_999),
            ("2562047h47m16.854775807s", i64::MAX),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("00001s", 1_000_000_000),
        ] {
            assert_eq!(parse_go_duration(text), Ok(SignedNanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refused_texts_in_gos_words() {
        for (text, message) in [
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            ("s", r#"time: invalid duration "s""#),
            (".s", r#"time: invalid duration ".s""#),
            ("30", r#"time: missing unit in duration "30""#),
            ("1h30", r#"time: missing unit in duration "1h30""#),
            ("00", r#"time: missing unit in duration "00""#),
            ("1.5", r#"time: missing unit in duration "1.5""#),
            ("3d", r#"time: unknown unit "d" in duration "3d""#),
            ("1 s", r#"time: unknown unit " s" in duration "1 s""#),
            ("5s ", r#"time: unknown unit "s " in duration "5s ""#),
            (" 5s", r#"time: invalid duration " 5s""#),
            ("1S", r#"time: unknown unit "S" in duration "1S""#),
            ("1é", r#"time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#),
            ("--1s", r#"time: invalid duration "--1s""#),
            ("2562047h47m16.854775808s", r#"time: invalid duration "2562047h47m16.854775808s""#),
            ("99999999999999999999s", r#"time: invalid duration "99999999999999999999s""#),
        ] {
            assert_eq!(parse_go_duration(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn printed_as_go_prints() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5\u{b5}s"),
            (100_000_000, "100ms"),
            (1_000_000_000, "1s"),
            (1_500_000_000, "1.5s"),
            (90_000_000_000, "1m30s"),
            (300_000_000_000, "5m0s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(format_go_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
