//! Kubernetes quantities: `100Mi`, `1.5Gi`, `500m`, `1e9`.
//!
//! Parsed and printed exactly as by `resource.Quantity` of k8s.io/apimachinery, in integers, with three intended deviations:
//! - An exponent beyond ±64 is refused. Kubernetes wraps it at 32 bits, and may then take minutes and gigabytes to apply it.
//! - A decimal amount with more than 38 significant digits is refused.
//! - An amount beyond 64 bits saturates, where Kubernetes' `Value()` returns a wrong number.

mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use super::amount::{Amount, Bytes};

/// The largest power of ten, either way. 64 bits of bytes hold far less.
const MAX_EXPONENT: i64 = 64;
/// Any number of so many digits fits in a `u128`.
const MAX_DIGITS: u32 = 38;
/// The least number with more than [`MAX_DIGITS`] digits.
const TOO_MANY_DIGITS: u128 = 10_u128.pow(MAX_DIGITS);
/// Smaller fractions than a billionth are rounded up, as in Kubernetes.
const SMALLEST_EXPONENT: i32 = -9;
/// Binary quantities saturate here, as in Kubernetes.
const BINARY_MAX: u128 = i64::MAX as u128;

/// Why a text is not a quantity. The first three texts are Kubernetes' own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    #[error("quantity's exponent is out of range: at most 64 either way")]
    Exponent,
    #[error("quantity has more than 38 significant digits")]
    Digits,
}

/// The family of suffixes with which a quantity was written, and is printed.
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
    /// Without trailing zeros, at most 38 digits. Zero is `0 × 10^0` and not negative.
    unscaled: u128,
    exponent: i32,
    format: Format,
    /// The text as written, where Kubernetes prints that instead of the canonical form.
    text: Option<Box<str>>,
}

/// Returns zero. [`Quantity::sum`] replaces its suffix family by the other summand's.
impl Default for Quantity {
    fn default() -> Self {
        Self::normalized(false, (0, 0), Format::DecimalExponent)
    }
}

impl Quantity {
    fn normalized(negative: bool, exact: (u128, i32), format: Format) -> Self {
        let (mut unscaled, mut exponent) = exact;
        // Rounds up, so that a positive request never becomes zero.
        while unscaled != 0 && exponent < SMALLEST_EXPONENT {
            unscaled = unscaled.div_ceil(10);
            exponent += 1;
        }
        while unscaled != 0 && unscaled.is_multiple_of(10) {
            unscaled /= 10;
            exponent += 1;
        }
        let zero = unscaled == 0;
        let exponent = if zero { 0 } else { exponent };
        Self { negative: negative && !zero, unscaled, exponent, format, text: None }
    }

    /// Returns a number of bytes, printed with binary suffixes.
    pub fn binary(bytes: Bytes) -> Self {
        Self::normalized(false, (u128::from(bytes.0), 0), Format::BinarySi)
    }

    /// Returns a number of units, printed with binary or decimal suffixes.
    pub fn from_units(units: i64, binary: bool) -> Self {
        Self::from_amount(Amount::from_units(units), binary)
    }

    /// Returns an amount, printed with binary or decimal suffixes.
    pub fn from_amount(amount: Amount, binary: bool) -> Self {
        let format = if binary { Format::BinarySi } else { Format::DecimalSi };
        Self::normalized(amount.is_negative(), (amount.billionths().unsigned_abs(), SMALLEST_EXPONENT), format)
    }

    /// Adds. The result is printed in canonical form, with the suffixes of `self`, or of `other` where `self` is zero.
    pub fn sum(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let (mut high, mut low) = (high.signed(), low.signed());
        loop {
            let aligned = power_of_ten(high.1.abs_diff(low.1)).and_then(|power| i128::try_from(power).ok());
            let sum = aligned.and_then(|power| high.0.checked_mul(power)).and_then(|value| value.checked_add(low.0));
            if let Some(sum) = sum.filter(|sum| sum.unsigned_abs() < TOO_MANY_DIGITS) {
                return Self::normalized(sum < 0, (sum.unsigned_abs(), low.1), format);
            }
            // More digits than fit: drop the last one, rounding away from zero.
            if low.1 == high.1 {
                high = without_last_digit(high);
            }
            low = without_last_digit(low);
        }
    }

    /// Subtracts. The result is printed as that of [`Quantity::sum`].
    pub fn difference(&self, other: &Self) -> Self {
        let negative = !other.negative && !other.is_zero();
        self.sum(&Self { negative, ..other.clone() })
    }

    fn signed(&self) -> (i128, i32) {
        // At most 38 digits always fit.
        let magnitude = i128::try_from(self.unscaled).unwrap_or(i128::MAX);
        (if self.negative { -magnitude } else { magnitude }, self.exponent)
    }

    pub fn amount(&self) -> Amount {
        let scale = u32::try_from(self.exponent - SMALLEST_EXPONENT).unwrap_or(0);
        let magnitude = power_of_ten(scale).and_then(|power| self.unscaled.checked_mul(power));
        let magnitude = magnitude.and_then(|value| i128::try_from(value).ok()).unwrap_or(i128::MAX);
        Amount::from_billionths(if self.negative { -magnitude } else { magnitude })
    }

    /// Prints the canonical form: no fraction, and the largest suffix of its family that is exact.
    pub fn canonical(&self) -> String {
        self.printed(|exponent| format!("e{exponent}"))
    }

    /// Returns the amount in whole units, rounded away from zero, saturating.
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

    pub fn is_zero(&self) -> bool {
        self.unscaled == 0
    }

    /// Returns whether the quantity is written with a binary suffix, such as `Mi`.
    pub fn is_binary(&self) -> bool {
        self.format == Format::BinarySi
    }

    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// Returns the number of digits before the decimal point, zero or negative for a fraction.
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
            // The magnitudes are equal, so the scaled number has as many digits as the other: at most 38, which fits.
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

/// Compares amounts exactly, fractions of a unit included, whatever their suffixes.
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

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Accepts a string or a number, as the API server does.
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

/// The sum of one quantity is printed as that quantity was written. The sum of none is zero.
impl<'a> Sum<&'a Self> for Quantity {
    fn sum<I: Iterator<Item = &'a Self>>(mut iter: I) -> Self {
        let first = iter.next().cloned().unwrap_or_default();
        iter.fold(first, |sum, next| sum.sum(next))
    }
}

/// Prints what Kubernetes prints: some texts as they were written (`1E3`, `007`, `1025Ki`), all others in canonical form. Beyond the
/// largest decimal suffix, Kubernetes prints no suffix (`1000E` as `1`), where [`Quantity::canonical`] prints `1e21`.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.pad(text),
            None => f.pad(&self.printed(|_| String::new())),
        }
    }
}

impl Quantity {
    /// `beyond` returns the suffix for a power of ten that has no letter.
    fn printed(&self, beyond: impl Fn(i32) -> String) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        let sign = if self.negative { "-" } else { "" };
        if self.format == Format::BinarySi
            && let Some(text) = self.binary_text()
        {
            return format!("{sign}{text}");
        }
        // Suffixes stand for multiples of three powers of ten; the remainder is printed as zeros.
        let over = self.exponent.rem_euclid(3);
        let zeros = &"00"[..usize::try_from(over).unwrap_or(0)];
        let exponent = self.exponent - over;
        let suffix = match (self.format, exponent) {
            (_, 0) => String::new(),
            (Format::DecimalExponent, _) => format!("e{exponent}"),
            _ => DECIMAL_SUFFIXES
                .iter()
                .find(|(_, power)| *power == exponent)
                .map_or_else(|| beyond(exponent), |(name, _)| (*name).to_owned()),
        };
        format!("{sign}{}{zeros}{suffix}", self.unscaled)
    }

    /// Returns `None` for fractions and for amounts below 1024, which Kubernetes prints with decimal suffixes.
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

fn without_last_digit((value, exponent): (i128, i32)) -> (i128, i32) {
    ((value + value.signum() * 9) / 10, exponent + 1)
}

/// A table, because the decider converts amounts by the ten thousand.
const POWERS_OF_TEN: [u128; 39] = {
    let mut powers = [1; 39];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

fn power_of_ten(exponent: u32) -> Option<u128> {
    POWERS_OF_TEN.get(usize::try_from(exponent).ok()?).copied()
}

fn digits(value: u128) -> u32 {
    value.checked_ilog10().map_or(1, |log| log + 1)
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
