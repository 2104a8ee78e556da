//! Eviction thresholds, parsed as the kubelet parses them. Each function takes one value as text, whichever kind of file it is from.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::quirks::{Quirk, Quirks};
use crate::units::duration::{DurationError, parse_go_duration};
use crate::units::gofloat::{FloatError, parse_float32};
use crate::units::{Amount, Bytes, Quantity, QuantityError, Signal};

/// The amount that a signal is compared with: absolute, or relative to the signal's capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ThresholdValue {
    /// In the unit of the signal.
    Quantity(Quantity),
    Percentage(Percentage),
}

/// A percentage as the kubelet rounds it, and as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentage {
    /// The kubelet's 32-bit share of the capacity, 0 to 1.
    pub fraction: f32,
    /// The percentage in 64 bits, 0 to 100.
    pub percent: f64,
}

impl Percentage {
    pub fn whole(percent: u8) -> Self {
        Self { fraction: f32::from(percent) / 100.0, percent: f64::from(percent) }
    }

    /// Returns the share of a capacity, truncated toward zero. With the kubelet's quirk, 10% of 100Gi is 10737418400, not …240.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the kubelet computes in floats and truncates toward zero; huge products saturate"
    )]
    pub fn of(self, capacity: i64, quirks: Quirks) -> i64 {
        if quirks.has(Quirk::Float32Percentages) {
            (capacity as f64 * f64::from(self.fraction)) as i64
        } else {
            (capacity as f64 * self.percent / 100.0) as i64
        }
    }
}

impl ThresholdValue {
    pub fn bytes(bytes: Bytes) -> Self {
        Self::Quantity(Quantity::binary(bytes))
    }

    /// Returns the absolute amount for a signal with this capacity.
    pub fn resolve(&self, capacity: i64, quirks: Quirks) -> Amount {
        match self {
            Self::Quantity(quantity) => quantity.amount(),
            Self::Percentage(percentage) => Amount::from_units(percentage.of(capacity, quirks)),
        }
    }

    /// Returns the absolute amount as Kubernetes prints it in messages, where shares of inodes are printed like bytes.
    pub fn quantity_text(&self, capacity: i64, quirks: Quirks) -> String {
        match self {
            Self::Quantity(quantity) => quantity.to_string(),
            Self::Percentage(percentage) => Quantity::from_units(percentage.of(capacity, quirks), true).to_string(),
        }
    }
}

impl fmt::Display for ThresholdValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(quantity) => f.pad(&quantity.canonical()),
            Self::Percentage(percentage) => f.pad(&percentage_text(percentage.fraction)),
        }
    }
}

/// Returns the shortest percentage that parses back to the same 32-bit fraction: `15%`, not `15.000001%`.
#[expect(clippy::float_cmp, reason = "the fraction must parse back to the same bits")]
#[expect(clippy::cast_possible_truncation, reason = "the parser rounds to 32 bits too")]
fn percentage_text(fraction: f32) -> String {
    let percentage = f64::from(fraction) * 100.0;
    (0..9)
        .map(|places| format!("{percentage:.places$}"))
        .find(|text| text.parse::<f64>().is_ok_and(|value| value as f32 / 100.0 == fraction))
        .unwrap_or_else(|| percentage.to_string())
        + "%"
}

/// A signal and the value that it must not fall below.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    pub signal: Signal,
    /// The threshold is met while the signal is below this value.
    pub value: ThresholdValue,
    /// How long the threshold must be met before an eviction; zero for a hard threshold.
    pub grace_period: Duration,
    /// After an eviction the threshold stays met until the signal exceeds `value` by this amount.
    pub min_reclaim: Option<ThresholdValue>,
}

impl Threshold {
    pub fn is_hard(&self) -> bool {
        self.grace_period.is_zero()
    }

    /// Returns `hard` or `soft`, for metrics and logs.
    pub fn kind(&self) -> &'static str {
        if self.is_hard() { "hard" } else { "soft" }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{}", self.signal, self.value)
    }
}

/// Why a threshold is refused, in the kubelet's words where the kubelet refuses it too.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ThresholdError {
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// The text before the percent sign is not a number.
    #[error(transparent)]
    Float(#[from] FloatError),
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// The whole capacity, without [`Quirk::AlwaysMetPercentage`]. The kubelet accepts it, and then never stops evicting.
    #[error("eviction percentage threshold {0} is always met: {1}")]
    AlwaysMet(Signal, String),
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    GraceMissing(Signal),
    #[error("{0}")]
    OutOfRange(String),
}

/// Parses the value of a hard or soft threshold.
///
/// Returns `None` for exactly `0%` and `100%`, which switch a default threshold off. As in the kubelet, `100.0%` is always met, and `0.0%`
/// never. Fails when the kubelet refuses the value, for `NaN%`, and for `100.0%` without [`Quirk::AlwaysMetPercentage`].
pub fn parse_threshold_value(
    signal: Signal,
    text: &str,
    quirks: Quirks,
) -> Result<Option<ThresholdValue>, ThresholdError> {
    if text == "0%" || text == "100%" {
        return Ok(None);
    }
    if text.ends_with('%') {
        let percentage = parse_percentage(text)?;
        let fraction = percentage.fraction;
        return if fraction.is_nan() {
            not_finite(signal, text)
        } else if fraction < 0.0 {
            out_of_range(format!("eviction percentage threshold {signal} must be >= 0%: {text}"))
        } else if fraction > 1.0 {
            out_of_range(format!("eviction percentage threshold {signal} must be <= 100%: {text}"))
        } else if fraction >= 1.0 && !quirks.has(Quirk::AlwaysMetPercentage) {
            Err(ThresholdError::AlwaysMet(signal, text.to_owned()))
        } else {
            Ok(Some(ThresholdValue::Percentage(percentage)))
        };
    }
    let quantity = Quantity::parse(text)?;
    if quantity.is_negative() || quantity.is_zero() {
        return out_of_range(format!("eviction threshold {signal} must be positive: {quantity}"));
    }
    Ok(Some(ThresholdValue::Quantity(quantity)))
}

/// Parses the grace period of a soft threshold. Zero makes the threshold a hard one.
/// Fails when the text is no Go duration, or a negative one.
pub fn parse_grace_period(text: &str) -> Result<Duration, ThresholdError> {
    let negative = || format!("invalid eviction grace period specified: {text}, must be a positive value");
    parse_go_duration(text)?.to_duration().ok_or_else(|| ThresholdError::OutOfRange(negative()))
}

/// Parses a minimum reclaim, which may be zero or more than 100%. Fails when the kubelet refuses the value, and for `NaN%` and `inf%`.
pub fn parse_min_reclaim(signal: Signal, text: &str) -> Result<ThresholdValue, ThresholdError> {
    if text.ends_with('%') {
        let percentage = parse_percentage(text)?;
        let fraction = percentage.fraction;
        return if fraction.is_nan() || fraction == f32::INFINITY {
            not_finite(signal, text)
        } else if fraction <= 0.0 {
            out_of_range(format!("eviction percentage minimum reclaim {signal} must be positive: {text}"))
        } else {
            Ok(ThresholdValue::Percentage(percentage))
        };
    }
    let quantity = Quantity::parse(text)?;
    if quantity.is_negative() {
        return out_of_range(format!("negative eviction minimum reclaim specified for {signal}"));
    }
    Ok(ThresholdValue::Quantity(quantity))
}

/// `NaN`, or an infinite minimum reclaim. The kubelet accepts these, and then never evicts or never stops.
fn not_finite<T>(signal: Signal, text: &str) -> Result<T, ThresholdError> {
    out_of_range(format!("eviction percentage of {signal} must be a finite number: {text}"))
}

fn out_of_range<T>(reason: String) -> Result<T, ThresholdError> {
    Err(ThresholdError::OutOfRange(reason))
}

fn parse_percentage(text: &str) -> Result<Percentage, ThresholdError> {
    // The kubelet reads `5%%` as 5%.
    let number = text.trim_end_matches('%');
    let percent = parse_float32(number)?;
    // Numbers in forms that Rust does not parse, such as hexadecimal ones, keep the precision of 32 bits.
    let exact = number.parse().unwrap_or(f64::from(percent));
    Ok(Percentage { fraction: percent / 100.0, percent: exact })
}

/// The parsed fields of which thresholds consist.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ThresholdLists {
    /// Sorted by the name of the signal.
    pub hard: Vec<(Signal, ThresholdValue)>,
    /// Sorted by the name of the signal.
    pub soft: Vec<(Signal, ThresholdValue)>,
    pub grace_periods: BTreeMap<Signal, Duration>,
    /// Each applies to the hard and the soft threshold of its signal.
    pub min_reclaims: BTreeMap<Signal, ThresholdValue>,
    /// Whether the cgroup of all pods is limited (`enforceNodeAllocatable: [pods]`), so that its memory is a signal.
    pub pods_enforced: bool,
}

impl ThresholdLists {
    /// Returns the hard thresholds, then the soft ones, then copies of the hard memory thresholds for the pods' cgroup.
    /// Returns an error for each soft threshold without a grace period.
    pub fn assemble(&self) -> Result<Vec<Threshold>, Vec<ThresholdError>> {
        let mut thresholds = Vec::with_capacity(self.hard.len() + self.soft.len());
        let mut errors = Vec::new();
        for (signal, value) in &self.hard {
            thresholds.push(self.threshold(*signal, value, Duration::ZERO));
        }
        for (signal, value) in &self.soft {
            match self.grace_periods.get(signal) {
                Some(grace_period) => thresholds.push(self.threshold(*signal, value, *grace_period)),
                None => errors.push(ThresholdError::GraceMissing(*signal)),
            }
        }
        if self.pods_enforced {
            let hard = thresholds.iter().filter(|it| it.signal == Signal::MemoryAvailable && it.is_hard());
            let signal = Signal::AllocatableMemoryAvailable;
            let copies: Vec<_> = hard.map(|it| Threshold { signal, ..it.clone() }).collect();
            thresholds.extend(copies);
        }
        if errors.is_empty() { Ok(thresholds) } else { Err(errors) }
    }

    fn threshold(&self, signal: Signal, value: &ThresholdValue, grace_period: Duration) -> Threshold {
        Threshold { signal, value: value.clone(), grace_period, min_reclaim: self.min_reclaims.get(&signal).cloned() }
    }
}

#[cfg(test)]
#[path = "threshold_tests.rs"]
mod tests;
