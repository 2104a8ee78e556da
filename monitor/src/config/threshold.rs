//! Eviction thresholds, and how the kubelet parses them.
//!
//! Nothing here knows about files: each function takes one value as text, so that every form in which thresholds are
//! written (YAML maps, command-line lists) can use them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::quirks::{Quirk, Quirks};
use crate::units::Signal;
use crate::units::duration::{DurationError, parse_go_duration};
use crate::units::gofloat::{FloatError, parse_float32};
use crate::units::{Amount, Bytes};
use crate::units::{Quantity, QuantityError};

/// An amount to compare a signal with: absolute, or relative to the signal's capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ThresholdValue {
    /// Bytes; inodes or process ids for the signals that count those.
    Quantity(Quantity),
    /// A share of the capacity.
    Percentage(Percentage),
}

/// A percentage as the kubelet keeps it, and as it was meant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentage {
    /// 32 bits, one is the whole capacity.
    pub fraction: f32,
    /// 64 bits, a hundred is the whole capacity.
    pub percent: f64,
}

impl Percentage {
    /// So many hundredths.
    #[must_use]
    pub fn whole(percent: u8) -> Self {
        Self { fraction: f32::from(percent) / 100.0, percent: f64::from(percent) }
    }

    /// Takes the share of a capacity, truncated toward zero as in the kubelet, where 10% of 100Gi is 10737418400, not …240.
    #[must_use]
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
    /// Bytes, as a binary quantity.
    #[must_use]
    pub fn bytes(bytes: Bytes) -> Self {
        Self::Quantity(Quantity::binary(bytes))
    }

    /// Returns the absolute amount for a signal of this capacity.
    #[must_use]
    pub fn resolve(&self, capacity: i64, quirks: Quirks) -> Amount {
        match self {
            Self::Quantity(quantity) => quantity.amount(),
            Self::Percentage(percentage) => Amount::from_units(percentage.of(capacity, quirks)),
        }
    }

    /// Returns the amount for a signal of this capacity as Kubernetes prints it in messages, shares of inodes as if they were bytes.
    #[must_use]
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

/// Finds the shortest percentage that reads back as the same 32-bit fraction: `15%`, not `15.000001%`.
#[expect(clippy::float_cmp, reason = "the same bits are wanted")]
#[expect(clippy::cast_possible_truncation, reason = "reads back as 32 bits, as the parser does")]
fn percentage_text(fraction: f32) -> String {
    let percentage = f64::from(fraction) * 100.0;
    (0..9)
        .map(|places| format!("{percentage:.places$}"))
        .find(|text| text.parse::<f64>().is_ok_and(|value| value as f32 / 100.0 == fraction))
        .unwrap_or_else(|| percentage.to_string())
        + "%"
}

/// A signal, the value it must not fall below, and what to do about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// What is compared.
    pub signal: Signal,
    /// The threshold is met when the signal is below this.
    pub value: ThresholdValue,
    /// How long it must be met before an eviction. Zero makes it a hard threshold.
    pub grace_period: Duration,
    /// Once acted on, the threshold stays met until the signal is above `value` by this much.
    pub min_reclaim: Option<ThresholdValue>,
}

impl Threshold {
    /// Tells whether it is acted on at once.
    #[must_use]
    pub fn is_hard(&self) -> bool {
        self.grace_period.is_zero()
    }

    /// Returns `hard` or `soft`, for metrics and logs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.is_hard() { "hard" } else { "soft" }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}<{}", self.signal, self.value)
    }
}

/// Why a threshold is refused. Worded as the kubelet words it, where it refuses the same.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ThresholdError {
    /// Not a quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Not a number before the percent sign.
    #[error(transparent)]
    Float(#[from] FloatError),
    /// Not a duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// Below 0%.
    #[error("eviction percentage threshold {signal} must be >= 0%: {text}")]
    PercentageNegative {
        /// The signal.
        signal: Signal,
        /// The value as written.
        text: String,
    },
    /// Above 100%.
    #[error("eviction percentage threshold {signal} must be <= 100%: {text}")]
    PercentageTooLarge {
        /// The signal.
        signal: Signal,
        /// The value as written.
        text: String,
    },
    /// `NaN`, or an infinite minimum reclaim. The kubelet takes these, and then never evicts or never stops.
    #[error("eviction percentage of {signal} must be a finite number: {text}")]
    PercentageNotFinite {
        /// The signal.
        signal: Signal,
        /// The value as written.
        text: String,
    },
    /// All of the capacity, without [`Quirk::AlwaysMetPercentage`]. The kubelet takes it, and then never stops evicting.
    #[error("eviction percentage threshold {signal} is always met: {text}")]
    PercentageAlwaysMet {
        /// The signal.
        signal: Signal,
        /// The value as written.
        text: String,
    },
    /// Zero or less.
    #[error("eviction threshold {signal} must be positive: {quantity}")]
    NotPositive {
        /// The signal.
        signal: Signal,
        /// The value as Kubernetes prints it.
        quantity: String,
    },
    /// Less than nothing.
    #[error("invalid eviction grace period specified: {0}, must be a positive value")]
    GraceNegative(String),
    /// A soft threshold needs one.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    GraceMissing(Signal),
    /// 0% or less.
    #[error("eviction percentage minimum reclaim {signal} must be positive: {text}")]
    ReclaimNotPositive {
        /// The signal.
        signal: Signal,
        /// The value as written.
        text: String,
    },
    /// Less than nothing.
    #[error("negative eviction minimum reclaim specified for {0}")]
    ReclaimNegative(Signal),
}

/// Parses the value of a hard or soft threshold.
///
/// Returns nothing for exactly `0%` and `100%`: that is how a default threshold is switched off. `100.0%` is a threshold
/// that is always met, and `0.0%` one that never is, as in the kubelet.
///
/// # Errors
/// When the kubelet would refuse the value, for `NaN%`, which it takes, and without [`Quirk::AlwaysMetPercentage`] for `100.0%`.
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
        let text = text.to_owned();
        return if fraction.is_nan() {
            Err(ThresholdError::PercentageNotFinite { signal, text })
        } else if fraction < 0.0 {
            Err(ThresholdError::PercentageNegative { signal, text })
        } else if fraction > 1.0 {
            Err(ThresholdError::PercentageTooLarge { signal, text })
        } else if fraction >= 1.0 && !quirks.has(Quirk::AlwaysMetPercentage) {
            Err(ThresholdError::PercentageAlwaysMet { signal, text })
        } else {
            Ok(Some(ThresholdValue::Percentage(percentage)))
        };
    }
    let quantity = Quantity::parse(text)?;
    if quantity.is_negative() || quantity.is_zero() {
        return Err(ThresholdError::NotPositive { signal, quantity: quantity.to_string() });
    }
    Ok(Some(ThresholdValue::Quantity(quantity)))
}

/// Parses the grace period of a soft threshold. Zero is allowed, and makes the threshold a hard one.
///
/// # Errors
/// When it is not a Go duration, or negative.
pub fn parse_grace_period(text: &str) -> Result<Duration, ThresholdError> {
    parse_go_duration(text)?.to_duration().ok_or_else(|| ThresholdError::GraceNegative(text.to_owned()))
}

/// Parses a minimum reclaim. Zero is allowed, and more than 100% too.
///
/// # Errors
/// When the kubelet would refuse the value, and for `NaN%` and `inf%`, which it takes.
pub fn parse_min_reclaim(signal: Signal, text: &str) -> Result<ThresholdValue, ThresholdError> {
    if text.ends_with('%') {
        let percentage = parse_percentage(text)?;
        let fraction = percentage.fraction;
        let text = text.to_owned();
        return if fraction.is_nan() || fraction == f32::INFINITY {
            Err(ThresholdError::PercentageNotFinite { signal, text })
        } else if fraction <= 0.0 {
            Err(ThresholdError::ReclaimNotPositive { signal, text })
        } else {
            Ok(ThresholdValue::Percentage(percentage))
        };
    }
    let quantity = Quantity::parse(text)?;
    if quantity.is_negative() {
        return Err(ThresholdError::ReclaimNegative(signal));
    }
    Ok(ThresholdValue::Quantity(quantity))
}

fn parse_percentage(text: &str) -> Result<Percentage, ThresholdError> {
    // All of them: the kubelet reads `5%%` as 5%.
    let number = text.trim_end_matches('%');
    let percent = parse_float32(number)?;
    // What is not written the way Rust writes numbers (hexadecimal, say) has the precision of 32 bits.
    let exact = number.parse().unwrap_or(f64::from(percent));
    Ok(Percentage { fraction: percent / 100.0, percent: exact })
}

/// The four lists that thresholds are written in, parsed but not yet put together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ThresholdLists {
    /// Hard thresholds by the name of the signal.
    pub hard: Vec<(Signal, ThresholdValue)>,
    /// Soft thresholds by the name of the signal.
    pub soft: Vec<(Signal, ThresholdValue)>,
    /// How long a soft threshold must be met. Those of signals without a soft threshold mean nothing.
    pub grace_periods: BTreeMap<Signal, Duration>,
    /// How much more to reclaim, for the hard and the soft threshold of a signal alike.
    pub min_reclaims: BTreeMap<Signal, ThresholdValue>,
    /// Whether the pods' own cgroup is limited (`enforceNodeAllocatable: [pods]`) and so has its own signal to watch.
    pub pods_enforced: bool,
}

impl ThresholdLists {
    /// Puts the thresholds together: the hard ones, then the soft ones, then copies of the hard ones on memory for the pods' cgroup.
    ///
    /// # Errors
    /// One for each soft threshold without a grace period.
    pub fn assemble(&self) -> Result<Vec<Threshold>, Vec<ThresholdError>> {
        let mut thresholds = Vec::with_capacity(self.hard.len() + self.soft.len());
        let mut errors = Vec::new();
        let min_reclaim = |signal| self.min_reclaims.get(&signal).cloned();
        for (signal, value) in &self.hard {
            let signal = *signal;
            thresholds.push(Threshold {
                signal,
                value: value.clone(),
                grace_period: Duration::ZERO,
                min_reclaim: min_reclaim(signal),
            });
        }
        for (signal, value) in &self.soft {
            let (signal, value) = (*signal, value.clone());
            match self.grace_periods.get(&signal) {
                Some(&grace_period) => {
                    thresholds.push(Threshold { signal, value, grace_period, min_reclaim: min_reclaim(signal) });
                }
                None => errors.push(ThresholdError::GraceMissing(signal)),
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
}

#[cfg(test)]
#[path = "threshold_tests.rs"]
mod tests;
