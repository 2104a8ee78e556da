//! Sizes and times as the scenarios write them.

use std::time::Duration;

/// One mebibyte in bytes.
pub const MIB: u64 = 1 << 20;

/// Returns `CLOCK_MONOTONIC` in nanoseconds: the clock of the agent's log, of the sampler and of the trace.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// Returns a duration in nanoseconds. It saturates after centuries.
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the signed distance between two instants in milliseconds.
pub fn milliseconds_between(from_ns: u64, to_ns: u64) -> f64 {
    if to_ns >= from_ns {
        Duration::from_nanos(to_ns - from_ns).as_secs_f64() * 1e3
    } else {
        -Duration::from_nanos(from_ns - to_ns).as_secs_f64() * 1e3
    }
}

/// Returns bytes as MiB, for output.
pub fn mib(bytes: u64) -> f64 {
    // Whole KiB below 2^32 convert exactly; the guest has far less memory.
    f64::from(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)) / 1024.0
}

/// Returns the median (the upper of two middle values), or `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_signed() {
        assert!((milliseconds_between(2_000_000, 5_500_000) - 3.5).abs() < 1e-9);
        assert!((milliseconds_between(5_500_000, 2_000_000) + 3.5).abs() < 1e-9);
    }

    #[test]
    fn median_of_nothing_is_none() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    }
}
