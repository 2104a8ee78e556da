//! Eviction thresholds.

use std::fmt;
use std::time::Duration;

use super::signal::Signal;
use super::units::Bytes;

/// An amount to compare a signal with: absolute, or relative to the signal's capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ThresholdValue {
    /// Bytes; inodes or process ids for the signals that count those.
    Quantity(Bytes),
    /// A fraction of the capacity. 32-bit as in the kubelet: 10 % of 100 GiB is 10737418400 there, not …240.
    Percentage(f32),
}

impl ThresholdValue {
    /// Returns the absolute amount for a signal of this capacity.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the kubelet truncates toward zero; negative and huge products saturate"
    )]
    pub fn resolve(self, capacity: Bytes) -> Bytes {
        match self {
            Self::Quantity(bytes) => bytes,
            Self::Percentage(fraction) => Bytes((capacity.as_f64() * f64::from(fraction)) as u64),
        }
    }
}

impl fmt::Display for ThresholdValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quantity(bytes) => write!(f, "{}", bytes.0),
            Self::Percentage(fraction) => write!(f, "{}%", fraction * 100.0),
        }
    }
}

/// A signal, the value it must not fall below, and what to do about it.
#[derive(Debug, Clone, PartialEq)]
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
