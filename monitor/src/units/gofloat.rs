//! 32-bit floats as Go's `strconv.ParseFloat(text, 32)` reads them.

use std::borrow::Cow;

/// Why a text is not a number, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FloatError {
    #[error("strconv.ParseFloat: parsing {0:?}: invalid syntax")]
    Syntax(String),
    #[error("strconv.ParseFloat: parsing {0:?}: value out of range")]
    Range(String),
}

/// Parses a decimal (`1e1`), hexadecimal (`0x1p3`) or special (`inf`, `NaN`) number.
pub fn parse_float32(text: &str) -> Result<f32, FloatError> {
    let syntax = || FloatError::Syntax(text.to_owned());
    let number = without_underscores(text).ok_or_else(syntax)?;
    let unsigned = number.strip_prefix(['+', '-']).unwrap_or(&number);
    let special = unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity");
    let value = if number.eq_ignore_ascii_case("nan") {
        Some(f32::NAN)
    } else if special {
        number.parse().ok()
    } else if let Some(digits) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let sign = if number.starts_with('-') { -1.0 } else { 1.0 };
        hexadecimal(digits).map(|value| value * sign)
    } else if unsigned.bytes().all(|byte| b"0123456789.eE+-".contains(&byte)) {
        // Restricted to these characters, Rust's syntax equals Go's.
        number.parse().ok()
    } else {
        None
    };
    match value {
        None => Err(syntax()),
        Some(value) if value.is_infinite() && !special => Err(FloatError::Range(text.to_owned())),
        Some(value) => Ok(value),
    }
}

/// Removes underscores. Go allows one between two digits, and one between a base prefix and the first digit.
fn without_underscores(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('_') {
        return Some(Cow::Borrowed(text));
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (hexadecimal, body) = match unsigned.get(..2) {
        Some("0x" | "0X") => (true, &unsigned[2..]),
        _ => (false, unsigned),
    };
    let is_digit = |byte: u8| byte.is_ascii_digit() || hexadecimal && byte.is_ascii_hexdigit();
    let (mut after_digit, mut after_underscore) = (hexadecimal, false);
    for byte in body.bytes() {
        let underscore = byte == b'_';
        if underscore && !after_digit || after_underscore && !is_digit(byte) {
            return None;
        }
        after_digit = is_digit(byte);
        after_underscore = underscore;
    }
    (!after_underscore).then(|| Cow::Owned(text.replace('_', "")))
}

/// Parses what follows `0x`: digits with at most one point, `p`, and a power of two. Rounds to nearest, ties to even.
#[expect(clippy::cast_precision_loss, reason = "at most 53 bits, which an f64 holds exactly")]
#[expect(clippy::cast_possible_truncation, reason = "this is the one rounding to f32, and it overflows to infinity")]
fn hexadecimal(text: &str) -> Option<f32> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let exponent_digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if exponent_digits.is_empty() || !exponent_digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Beyond these bounds every result is zero or infinity.
    let mut power = exponent
        .parse::<i64>()
        .unwrap_or(if exponent.starts_with('-') { -1_000_000 } else { 1_000_000 })
        .clamp(-1_000_000, 1_000_000);
    let (mut value, mut lost, mut seen, mut point) = (0_u64, false, false, false);
    for byte in mantissa.bytes() {
        match char::from(byte).to_digit(16) {
            Some(digit) if value < 1 << 48 => {
                value = value << 4 | u64::from(digit);
                power -= if point { 4 } else { 0 };
                seen = true;
            }
            Some(digit) => {
                lost |= digit != 0;
                power += if point { 0 } else { 4 };
            }
            None if byte == b'.' && !point => point = true,
            None => return None,
        }
    }
    if !seen {
        return None;
    }
    // At most 53 bits, which an f64 holds exactly. The lowest is sticky: it is set when any digit beyond the kept ones was not zero.
    let exact = (value << 1 | u64::from(lost)) as f64;
    // A product with a power of two is exact, so the cast rounds once.
    let power = i32::try_from(power - 1).unwrap_or(0);
    Some(if value == 0 { 0.0 } else { (exact * 2_f64.powi(power)) as f32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_texts() {
        for (text, value) in [
            ("10", 10.0),
            ("1e1", 10.0),
            ("1E+1", 10.0),
            ("+5", 5.0),
            ("-0", 0.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("0x1p3", 8.0),
            ("0X1.8P1", 3.0),
            ("-0x.8p1", -1.0),
            ("0x_1p3", 8.0),
            ("0x1_0p0", 16.0),
            ("0x_1_2.3_4_5p+1_2", 74565.0),
            ("1_23.50_0_0e+1_2", 1.235e14),
            ("1_0", 10.0),
            ("0x1p-1000", 0.0),
            ("0x0p9999999999999999999999", 0.0),
            // Just above the middle between two floats, because of a digit far to the right.
            ("0x1.00000100000000000000000001p0", f32::from_bits(0x3f80_0001)),
            ("0x1.000001p0", 1.0),
            ("1e-400", 0.0),
            ("inf", f32::INFINITY),
            ("-Infinity", f32::NEG_INFINITY),
        ] {
            assert_eq!(parse_float32(text), Ok(value), "{text}");
        }
        assert!(parse_float32("NaN").unwrap().is_nan());
    }

    #[test]
    fn refused_texts() {
        for text in [
            "",
            " 5",
            "5 ",
            "+nan",
            "_1",
            "1_",
            "1__0",
            "1_e5",
            "1e_5",
            "+_1",
            "0x__1p0",
            "n_an",
            "0x1",
            "0x",
            "0xp1",
            "0x1p",
            "0x1__0p0",
            "0x1_p0",
            "e5",
            ".",
            "1e",
            "--1",
            "1,5",
            "abc",
            "0x1.2.3p0",
        ] {
            assert_eq!(parse_float32(text), Err(FloatError::Syntax(text.to_owned())), "{text}");
        }
        for text in ["1e39", "-1e39", "0x1p128", "3.5e38"] {
            assert_eq!(parse_float32(text), Err(FloatError::Range(text.to_owned())), "{text}");
        }
        assert_eq!(parse_float32(" 5").unwrap_err().to_string(), r#"strconv.ParseFloat: parsing " 5": invalid syntax"#);
    }
}
