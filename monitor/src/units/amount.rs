//! Types for numbers that must not be mixed up: bytes, exact amounts, instants, cgroup ids, process ids.

use std::fmt;
use std::iter::Sum;

use serde::{Deserialize, Serialize};

/// Displays in binary units (`100.0 MiB`). Metrics and log fields use the plain number in `.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const ZERO: Self = Self(0);
    /// Stands for "unlimited" where the kernel reports no limit.
    pub const MAX: Self = Self(u64::MAX);
    pub const KIB: u64 = 1 << 10;
    pub const MIB: u64 = 1 << 20;
    pub const GIB: u64 = 1 << 30;

    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(Self::KIB))
    }

    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(Self::MIB))
    }

    pub const fn from_gib(gib: u64) -> Self {
        Self(gib.saturating_mul(Self::GIB))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of bytes for a gauge. Exact below 2^53 bytes (8 PiB).
    pub const fn as_f64(self) -> f64 {
        float(self.0)
    }

    pub fn signed(self) -> i64 {
        signed(self.0)
    }

    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    #[must_use]
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < Self::KIB {
            return f.pad(&format!("{} B", self.0));
        }
        let mut unit: u128 = 1 << 10;
        let mut name = UNITS[0];
        for next in &UNITS[1..] {
            // Takes the larger unit where rounding to a tenth would print 1024.0 of the smaller one.
            if tenths(self.0, unit) < 10_240 {
                break;
            }
            unit <<= 10;
            name = next;
        }
        let tenths = tenths(self.0, unit);
        // `pad` applies the width of a format string, which tables use.
        f.pad(&format!("{}.{} {name}", tenths / 10, tenths % 10))
    }
}

fn tenths(bytes: u64, unit: u128) -> u128 {
    (u128::from(bytes) * 10 + unit / 2) / unit
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Self::saturating_add)
    }
}

impl From<Bytes> for u64 {
    fn from(bytes: Bytes) -> Self {
        bytes.0
    }
}

/// An exact amount of a signal's or resource's unit, in billionths: a request may be a fraction of a byte, and comparisons must not
/// round. Arithmetic saturates, far beyond 64 bits of whole units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Amount(i128);

impl Amount {
    pub const ZERO: Self = Self(0);
    const SCALE: i128 = 1_000_000_000;
    /// The saturation bound: the sum of two such amounts fits in an `i128`.
    const END: i128 = i128::MAX / 1024;

    pub const fn from_units(units: i64) -> Self {
        Self(units as i128 * Self::SCALE)
    }

    /// Converts billionths of a unit, saturating.
    pub const fn from_billionths(billionths: i128) -> Self {
        if billionths > Self::END {
            Self(Self::END)
        } else if billionths < -Self::END {
            Self(-Self::END)
        } else {
            Self(billionths)
        }
    }

    pub const fn billionths(self) -> i128 {
        self.0
    }

    /// Returns whole units, rounded away from zero, saturating.
    pub fn units(self) -> i64 {
        let away = self.0.signum() * ((self.0.abs() + Self::SCALE - 1) / Self::SCALE);
        i64::try_from(away).unwrap_or(if away < 0 { i64::MIN } else { i64::MAX })
    }

    pub fn as_f64(self) -> f64 {
        signed_float(self.units())
    }

    /// Returns whole bytes, rounded up, or zero when the amount is negative.
    pub fn bytes(self) -> Bytes {
        Bytes(u64::try_from(self.units()).unwrap_or(0))
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self::from_billionths(self.0 + other.0)
    }
}

impl std::ops::Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self::from_billionths(self.0 - other.0)
    }
}

impl From<Bytes> for Amount {
    fn from(bytes: Bytes) -> Self {
        Self(i128::from(bytes.0) * Self::SCALE)
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, |sum, amount| sum + amount)
    }
}

/// An instant on the decider's clock: nanoseconds since an origin on which no decision depends. Holds every date of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Moment(pub i128);

impl Moment {
    /// Returns the nanoseconds since `earlier`, negative when `earlier` lies in the future.
    pub const fn nanos_since(self, earlier: Self) -> i128 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The kernfs id of a cgroup: the inode number of its directory. The kernel does not reuse ids, so a cgroup created again under an old
/// path has another id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct CgroupId(pub u64);

impl fmt::Display for CgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process id in the initial pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pid(pub i32);

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the kernel's page size in bytes.
pub fn page_size() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// Converts a count to a signed number, saturating.
pub fn signed(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// Converts a signed number for gauges and rates. Exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and a rate needs no 53 bits")]
pub const fn signed_float(number: i64) -> f64 {
    number as f64
}

/// Converts a count for gauges and rates. Exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and a rate needs no 53 bits")]
pub const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_display_in_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (100 << 20, "100.0 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            ((1 << 30) - 1, "1.0 GiB"),
            (6 << 30, "6.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text, "{bytes}");
        }
        assert_eq!(format!("{:>10}|", Bytes(1024)), "   1.0 KiB|");
    }

    #[test]
    fn arithmetic_on_bytes_saturates() {
        assert_eq!(Bytes(1).saturating_sub(Bytes(2)), Bytes::ZERO);
        assert_eq!(Bytes::MAX.saturating_add(Bytes(1)), Bytes::MAX);
        assert_eq!(Bytes(1).checked_sub(Bytes(2)), None);
        assert_eq!(Bytes::MAX.checked_add(Bytes(1)), None);
        assert_eq!(Bytes::from_kib(u64::MAX), Bytes::MAX);
        assert_eq!([Bytes(1), Bytes(2)].into_iter().sum::<Bytes>(), Bytes(3));
    }

    #[test]
    fn amounts_are_exact_and_round_away_from_zero() {
        let half = Amount::from_billionths(500_000_000);
        assert_eq!((half.units(), (half + half).units(), (Amount::ZERO - half).units()), (1, 1, -1));
        assert_eq!(Amount::from(Bytes(u64::MAX)).units(), i64::MAX);
        assert_eq!((Amount::ZERO - Amount::from_units(5)).bytes(), Bytes::ZERO);
        let end = Amount::from_billionths(i128::MAX);
        assert_eq!(end + end, end);
    }
}
