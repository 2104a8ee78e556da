//! The clock that kernel events carry.

use rustix::time::{ClockId, clock_gettime};

/// Returns `CLOCK_MONOTONIC` in nanoseconds, as `bpf_ktime_get_ns()` does. Stands still while the machine is suspended.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative on this clock.
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        let before = monotonic_ns();
        assert!(before > 0);
        assert!(monotonic_ns() >= before);
    }
}
