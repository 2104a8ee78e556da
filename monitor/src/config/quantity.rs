//! Kubernetes quantities: `100Mi`, `1.5Gi`, `500m`, `1e9`.
//!
//! Parsed as `resource.ParseQuantity` does (k8s.io/apimachinery), exactly, in integers. Three deviations, all on purpose:
//! an exponent there wraps at 32 bits and may then take minutes and gigabytes to apply, while here one that no machine
//! needs is refused before anything is computed; more than 38 significant digits are refused; and an amount beyond 64 bits
//! saturates where `Value()` there returns garbage. One more: some texts are printed there as they were written
//! (`1E3`, `1.500`); `Display` always prints the canonical form.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

use super::units::{Amount, Bytes};

/// Powers of ten outside this range are refused. The range is far beyond what 64 bits of bytes can hold.
const MAX_EXPONENT: i64 = 64;
/// What fits in a `u128` whatever the digits are.
const MAX_DIGITS: u32 = 38;
/// Nothing is smaller than a nano unit; what is gets rounded up to one.
const SMALLEST_EXPONENT: i32 = -9;
/// Binary quantities stop here.
const BINARY_MAX: u128 = i64::MAX as u128;

/// Why a text is not a quantity. The first three are worded as Kubernetes words them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// A character where none of its kind may be.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The letters after the number are not a unit.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// The number cannot be read.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The power of ten is outside what is computed.
    #[error("quantity's exponent is out of range: at most 64 either way")]
    Exponent,
    /// Too many digits.
    #[error("quantity has more than 38 significant digits")]
    Digits,
}

/// The family of suffixes a quantity was written with, and is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `k`, `M`, `G`: powers of 1000.
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`: powers of 1024.
    BinarySi,
    /// `e3`, `E6`.
    DecimalExponent,
}

/// An exact amount: `±unscaled × 10^exponent`.
#[derive(Debug, Clone)]
pub struct Quantity {
    negative: bool,
    /// Without trailing zeros, at most 38 digits; zero is `0 × 10^0`, never negative.
    unscaled: u128,
    exponent: i32,
    format: Format,
}

impl Default for Quantity {
    fn default() -> Self {
        Self::binary(Bytes::ZERO)
    }
}

impl Quantity {
    /// Parses a quantity as Kubernetes does.
    ///
    /// # Errors
    /// When Kubernetes would refuse it, or when the amount is beyond all sense (see the module).
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let (scale, format) = parse_suffix(parts.suffix)?;
        let exact = match scale {
            Scale::Ten(exponent) => decimal(parts.integer, parts.fraction, exponent)?,
            Scale::Two(shift) => binary(parts.integer, parts.fraction, shift)?,
        };
        Ok(Self::normalized(parts.negative, exact, format))
    }

    fn normalized(negative: bool, exact: (u128, i32), format: Format) -> Self {
        let (mut unscaled, mut exponent) = exact;
        // Rounds up, so that asking for something never means nothing.
        while unscaled != 0 && exponent < SMALLEST_EXPONENT {
            unscaled = unscaled.div_ceil(10);
            exponent += 1;
        }
        while unscaled != 0 && unscaled.is_multiple_of(10) {
            unscaled /= 10;
            exponent += 1;
        }
        let zero = unscaled == 0;
        Self { negative: negative && !zero, unscaled, exponent: if zero { 0 } else { exponent }, format }
    }

    /// Writes a number of bytes with binary suffixes.
    #[must_use]
    pub fn binary(bytes: Bytes) -> Self {
        Self::normalized(false, (u128::from(bytes.0), 0), Format::BinarySi)
    }

    /// Returns the amount, exactly, for comparing and computing.
    #[must_use]
    pub fn amount(&self) -> Amount {
        let scale = u32::try_from(self.exponent - SMALLEST_EXPONENT).unwrap_or(0);
        let magnitude = power_of_ten(scale).and_then(|power| self.unscaled.checked_mul(power));
        let magnitude = magnitude.and_then(|value| i128::try_from(value).ok()).unwrap_or(i128::MAX);
        Amount::from_billionths(if self.negative { -magnitude } else { magnitude })
    }

    /// Prints the canonical form: no fraction, the largest suffix of its family that loses nothing.
    #[must_use]
    pub fn canonical(&self) -> String {
        self.to_string()
    }

    /// Returns the amount in whole units, rounded away from zero, and stopping at the ends of 64 bits.
    #[must_use]
    pub fn value_bytes(&self) -> i64 {
        let magnitude = if self.exponent >= 0 {
            power_of_ten(self.exponent.unsigned_abs()).and_then(|power| self.unscaled.checked_mul(power))
        } else {
            power_of_ten(self.exponent.unsigned_abs()).map(|power| self.unscaled.div_ceil(power))
        };
        let magnitude = magnitude.and_then(|value| i64::try_from(value).ok());
        match (magnitude, self.negative) {
            (Some(value), false) => value,
            (Some(value), true) => -value,
            (None, false) => i64::MAX,
            (None, true) => i64::MIN,
        }
    }

    /// Tells whether the amount is nothing.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.unscaled == 0
    }

    /// Tells whether the amount is less than nothing.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// Digits before the decimal point when written out; compares magnitudes without computing them.
    fn magnitude(&self) -> i64 {
        i64::from(digits(self.unscaled)) + i64::from(self.exponent)
    }

    fn cmp_absolute(&self, other: &Self) -> Ordering {
        match (self.unscaled, other.unscaled) {
            (0, 0) => return Ordering::Equal,
            (0, _) => return Ordering::Less,
            (_, 0) => return Ordering::Greater,
            _ => {}
        }
        self.magnitude().cmp(&other.magnitude()).then_with(|| {
            // Of equal magnitude, so that the scaled one has as many digits as the other: at most 38, which fits.
            let scaled = |unscaled: u128, from: i32, to: i32| {
                power_of_ten(from.saturating_sub(to).max(0).unsigned_abs())
                    .and_then(|power| unscaled.checked_mul(power))
                    .unwrap_or(u128::MAX)
            };
            scaled(self.unscaled, self.exponent, other.exponent).cmp(&scaled(
                other.unscaled,
                other.exponent,
                self.exponent,
            ))
        })
    }
}

/// Compares amounts exactly, fractions of a unit included; the suffix makes no difference.
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.cmp_absolute(other),
            (true, true) => other.cmp_absolute(self),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As the API reads it: a string, or a number as it stands.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as \"100Mi\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text.trim()).map_err(|error| E::custom(format!("{text:?}: {error}")))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

/// Prints the canonical form: no fraction, the largest suffix of its family that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.pad("0");
        }
        let sign = if self.negative { "-" } else { "" };
        if self.format == Format::BinarySi
            && let Some(text) = self.binary_text()
        {
            return f.pad(&format!("{sign}{text}"));
        }
        // The exponent must be a multiple of three; what is over becomes zeros.
        let over = self.exponent.rem_euclid(3);
        let zeros = &"00"[..usize::try_from(over).unwrap_or(0)];
        let exponent = self.exponent - over;
        let suffix = match (self.format, exponent) {
            (_, 0) => String::new(),
            (Format::DecimalExponent, _) => format!("e{exponent}"),
            _ => DECIMAL_SUFFIXES
                .iter()
                .find(|(_, power)| *power == exponent)
                .map_or_else(|| format!("e{exponent}"), |(name, _)| (*name).to_owned()),
        };
        f.pad(&format!("{sign}{}{zeros}{suffix}", self.unscaled))
    }
}

impl Quantity {
    /// Returns nothing for fractions and for amounts below 1024, which print as decimal ones.
    fn binary_text(&self) -> Option<String> {
        if self.exponent < 0 {
            return None;
        }
        let mut value = power_of_ten(self.exponent.unsigned_abs())?.checked_mul(self.unscaled)?;
        if value < 1024 {
            return None;
        }
        let mut suffix = "";
        for (name, _) in BINARY_SUFFIXES {
            if !value.is_multiple_of(1024) {
                break;
            }
            value /= 1024;
            suffix = name;
        }
        Some(format!("{value}{suffix}"))
    }
}

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

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
    // Too many digits for 64 bits is just as much out of range.
    match exponent.parse::<i64>() {
        Ok(value) if value.abs() <= MAX_EXPONENT => i32::try_from(value)
            .map(|value| (Scale::Ten(value), Format::DecimalExponent))
            .map_err(|_| QuantityError::Exponent),
        _ => Err(QuantityError::Exponent),
    }
}

/// A quantity's text, taken apart.
#[derive(Debug)]
struct Parts<'a> {
    negative: bool,
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits as loosely as Kubernetes does: `.`, `+` and `Ki` are all zero.
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
            fraction: fraction.trim_end_matches('0'),
            suffix,
        })
    }
}

fn split_while(text: &str, accept: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(|byte| !accept(byte)).unwrap_or(text.len());
    text.split_at(end)
}

fn decimal(integer: &str, fraction: &str, exponent: i32) -> Result<(u128, i32), QuantityError> {
    let places = i32::try_from(fraction.len()).map_err(|_| QuantityError::Digits)?;
    Ok((unscaled(integer, fraction)?, exponent - places))
}

fn binary(integer: &str, fraction: &str, shift: u32) -> Result<(u128, i32), QuantityError> {
    let whole = unscaled(integer, "");
    // Before anything else, since a number this large stops there whatever its fraction is.
    match whole {
        Ok(whole) if whole <= BINARY_MAX >> shift => {}
        _ => return Ok((BINARY_MAX, 0)),
    }
    let places = i32::try_from(fraction.len()).map_err(|_| QuantityError::Digits)?;
    let scaled = unscaled(integer, fraction)?.checked_mul(1 << shift).ok_or(QuantityError::Digits)?;
    Ok((scaled, -places))
}

fn unscaled(integer: &str, fraction: &str) -> Result<u128, QuantityError> {
    let mut value: u128 = 0;
    let mut significant = 0;
    for byte in integer.bytes().chain(fraction.bytes()) {
        if value != 0 || byte != b'0' {
            significant += 1;
        }
        if significant > MAX_DIGITS {
            return Err(QuantityError::Digits);
        }
        value = value
            .checked_mul(10)
            .and_then(|value| value.checked_add(u128::from(byte - b'0')))
            .ok_or(QuantityError::Numeric)?;
    }
    Ok(value)
}

fn power_of_ten(exponent: u32) -> Option<u128> {
    10_u128.checked_pow(exponent)
}

fn digits(value: u128) -> u32 {
    value.checked_ilog10().map_or(1, |log| log + 1)
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
