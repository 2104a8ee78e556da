//! The clock that decisions use, and the boot that it belongs to.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use jiff::Timestamp;

use super::amount::Moment;

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of the eBPF events too (`bpf_ktime_get_ns`). Setting the wall clock does not change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Monotonic(pub u64);

impl Monotonic {
    pub fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Self(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// Returns the time since `earlier`, or zero when `earlier` lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns this time plus `duration`, at most the last instant that fits.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Returns the wall-clock time of this instant. Reads both clocks.
    pub fn wall(self) -> Timestamp {
        let now = Timestamp::now();
        now.checked_sub(Self::now().since(self)).unwrap_or(now)
    }
}

impl From<Monotonic> for Moment {
    fn from(time: Monotonic) -> Self {
        Self(time.0.into())
    }
}

impl fmt::Display for Monotonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000_000, self.0 % 1_000_000_000 / 1_000)
    }
}

/// Returns the id of this boot, or an empty text when it cannot be read. Stored values of [`Monotonic`], [`CgroupId`](super::CgroupId)
/// and [`Pid`](super::Pid) are valid during their own boot only.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Monotonic(5).since(Monotonic(9)), Duration::ZERO);
        assert_eq!(Monotonic(9).since(Monotonic(5)), Duration::from_nanos(4));
        assert_eq!(Monotonic(u64::MAX).after(Duration::MAX), Monotonic(u64::MAX));
    }
}
