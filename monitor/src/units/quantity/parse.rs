//! Parsing of quantities.

use super::{
    BINARY_MAX, BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, MAX_DIGITS, MAX_EXPONENT, Quantity, QuantityError,
    SMALLEST_EXPONENT, TOO_MANY_DIGITS, power_of_ten,
};

impl Quantity {
    /// Parses a quantity as Kubernetes does.
    ///
    /// # Errors
    /// When Kubernetes refuses the text, and for the deviations that the parent module lists.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let (scale, format) = parse_suffix(parts.suffix)?;
        let path = parts.path(scale);
        if path == Path::Decimal && !parts.has_digits() {
            return Err(QuantityError::Numeric);
        }
        let (unscaled, exponent) = match scale {
            Scale::Ten(exponent) => decimal(parts.integer, parts.fraction, exponent)?,
            Scale::Two(shift) => binary(parts.integer, parts.fraction, shift),
        };
        let mut quantity = Self::normalized(parts.negative, (unscaled, exponent), format);
        // Printed, the exponent would be one that this parser refuses.
        if i64::from(quantity.exponent) > MAX_EXPONENT + 1 {
            return Err(QuantityError::Exponent);
        }
        if format == Format::BinarySi && !quantity.is_zero() && quantity.magnitude() <= 0 {
            // Kubernetes prints amounts below one, and sums that begin with one, with decimal suffixes.
            quantity.format = Format::DecimalSi;
        }
        if path == Path::AsWritten && quantity.canonical() != text {
            quantity.text = Some(text.into());
        }
        Ok(quantity)
    }
}

/// How Kubernetes stores a number, which decides how it prints the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    /// In 64 bits, with its text.
    AsWritten,
    /// In 64 bits, printed in canonical form.
    Canonical,
    /// As an arbitrary decimal, printed in canonical form. Only this path refuses a text without digits.
    Decimal,
}

#[derive(Debug, Clone, Copy)]
enum Scale {
    Ten(i32),
    Two(u32),
}

fn parse_suffix(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Ok((Scale::Ten(*power), Format::DecimalSi));
    }
    if let Some((_, shift)) = BINARY_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Ok((Scale::Two(*shift), Format::BinarySi));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(QuantityError::Suffix);
    }
    // An exponent of more than 64 bits is out of range too.
    match exponent.parse::<i64>() {
        Ok(value) if (-MAX_EXPONENT..=MAX_EXPONENT).contains(&value) => i32::try_from(value)
            .map(|value| (Scale::Ten(value), Format::DecimalExponent))
            .map_err(|_| QuantityError::Exponent),
        _ => Err(QuantityError::Exponent),
    }
}

#[derive(Debug)]
struct Parts<'a> {
    negative: bool,
    /// Without leading zeros.
    integer: &'a str,
    leading_zeros: bool,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits as leniently as Kubernetes, for which `.`, `+` and `Ki` are zero.
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (integer, rest) = split_while(unsigned, |byte| byte.is_ascii_digit());
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(rest) => split_while(rest, |byte| byte.is_ascii_digit()),
            None => ("", rest),
        };
        let suffix = rest;
        let (_, rest) = split_while(rest, |byte| b"eEinumkKMGTP".contains(&byte));
        let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        let (_, rest) = split_while(rest, |byte| byte.is_ascii_digit());
        if !rest.is_empty() {
            return Err(QuantityError::Format);
        }
        Ok(Self {
            negative: text.starts_with('-'),
            integer: integer.trim_start_matches('0'),
            leading_zeros: integer.starts_with('0'),
            fraction,
            suffix,
        })
    }

    fn has_digits(&self) -> bool {
        self.leading_zeros || !self.integer.is_empty() || !self.fraction.is_empty()
    }

    /// Chooses the path by counting digits as Kubernetes does: an absent integer counts as one digit, and each digit of the fraction counts.
    fn path(&self, scale: Scale) -> Path {
        let integer = self.integer.len().max(1);
        let keeps = match scale {
            Scale::Ten(exponent) => {
                let places = self.fraction.len();
                if integer + places > 18 {
                    return Path::Decimal;
                }
                let places = i32::try_from(places).unwrap_or(i32::MAX);
                let power = exponent - places;
                if power < SMALLEST_EXPONENT {
                    return Path::Decimal;
                }
                let last = self.integer.bytes().chain(self.fraction.bytes()).rev().take(3);
                let thousands = last.filter(|digit| *digit == b'0').count() == 3;
                power % 3 == 0 && !thousands && !self.integer.is_empty()
            }
            Scale::Two(shift) => {
                // Kubernetes counts three decimal digits for each factor of 1024.
                let room = 14_usize.saturating_sub(usize::try_from(shift / 10 * 3).unwrap_or(usize::MAX));
                if !self.fraction.is_empty() || integer > room {
                    return Path::Decimal;
                }
                self.integer.parse::<u64>().is_ok_and(|number| number % 8 != 0)
            }
        };
        if keeps { Path::AsWritten } else { Path::Canonical }
    }
}

fn split_while(text: &str, accept: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !accept(byte)).unwrap_or(text.len());
    text.split_at(end)
}

/// Returns the unscaled number and its exponent. Digits of the fraction below a billionth add one billionth together.
fn decimal(integer: &str, fraction: &str, exponent: i32) -> Result<(u128, i32), QuantityError> {
    let places = usize::try_from(exponent - SMALLEST_EXPONENT).unwrap_or(0).min(fraction.len());
    let (fraction, rest) = fraction.split_at(places);
    let more = rest.bytes().any(|digit| digit != b'0');
    let fraction = if more { fraction } else { fraction.trim_end_matches('0') };
    let mut value: u128 = 0;
    // Trailing zeros are not significant digits: the canonical form may add two.
    let mut zeros = 0;
    for digit in integer.bytes().chain(fraction.bytes()) {
        zeros += 1;
        if digit == b'0' {
            continue;
        }
        while zeros > 0 {
            if value >= TOO_MANY_DIGITS / 10 {
                return Err(QuantityError::Digits);
            }
            value *= 10;
            zeros -= 1;
        }
        value += u128::from(digit - b'0');
    }
    let places = i64::try_from(fraction.len()).map_err(|_| QuantityError::Digits)?;
    if value == 0 {
        return Ok((more.into(), SMALLEST_EXPONENT));
    }
    let exponent = i32::try_from(i64::from(exponent) - places + zeros).map_err(|_| QuantityError::Exponent)?;
    if more {
        // Adds one billionth, or one of the last digit where the last digit is smaller than a billionth: the later rounding is the same.
        let zeros = u32::try_from(exponent - SMALLEST_EXPONENT).unwrap_or(0);
        let value = power_of_ten(zeros).and_then(|power| value.checked_mul(power));
        let value = value.filter(|value| *value < TOO_MANY_DIGITS).ok_or(QuantityError::Digits)?;
        return Ok((value + 1, exponent.min(SMALLEST_EXPONENT)));
    }
    let printed = exponent - exponent.rem_euclid(3);
    if i64::from(printed) > MAX_EXPONENT { Err(QuantityError::Exponent) } else { Ok((value, exponent)) }
}

/// Returns billionths, rounded up and saturating.
fn binary(integer: &str, fraction: &str, shift: u32) -> (u128, i32) {
    const BILLION: u128 = 1_000_000_000;
    let stop = (BINARY_MAX, 0);
    if integer.len() > usize::try_from(MAX_DIGITS).unwrap_or(0) {
        return stop;
    }
    let whole = integer.bytes().fold(0, |value: u128, digit| value * 10 + u128::from(digit - b'0'));
    // A number this large saturates whatever its fraction is.
    if whole > BINARY_MAX >> shift {
        return stop;
    }
    // Long multiplication from the last digit of the fraction on, so that no digit is lost.
    let (mut carry, mut billionths, mut more) = (0_u128, 0_u128, false);
    for (place, digit) in fraction.bytes().enumerate().rev() {
        let product = (u128::from(digit - b'0') << shift) + carry;
        carry = product / 10;
        match u32::try_from(place).ok().and_then(|place| 8_u32.checked_sub(place)).and_then(power_of_ten) {
            Some(power) => billionths += product % 10 * power,
            None => more |= !product.is_multiple_of(10),
        }
    }
    let value = ((whole << shift) + carry) * BILLION + billionths + u128::from(more);
    if value > BINARY_MAX * BILLION { stop } else { (value, SMALLEST_EXPONENT) }
}
