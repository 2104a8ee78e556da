//! Limits the CPU time of a thread by delays, and lowers the thread's priority.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::units::Monotonic;

/// Shorter delays are accumulated, because each wake-up costs CPU time as well.
const SHORTEST_REST: Duration = Duration::from_millis(20);
/// Idle time earns at most this much credit.
const LONGEST_CREDIT: Duration = Duration::from_millis(100);

/// The smallest share; a smaller one would stop the work.
const SMALLEST_SHARE: f64 = 0.0001;
const NICE: i32 = 19;

/// Keeps a thread within a share of one CPU.
#[derive(Debug, Clone, Copy)]
pub struct Throttle {
    share: f64,
    /// The values of both clocks at the beginning of the accounting.
    cpu: Duration,
    wall: Monotonic,
}

impl Throttle {
    /// Starts the accounting now. A share of 1 is a whole CPU.
    pub fn new(share: f64, cpu: Duration, now: Monotonic) -> Self {
        Self { share: share.clamp(SMALLEST_SHARE, 1.0), cpu, wall: now }
    }

    pub fn set_share(&mut self, share: f64, cpu: Duration, now: Monotonic) {
        let other = Self::new(share, cpu, now);
        if other.share.to_bits() != self.share.to_bits() {
            *self = other;
        }
    }

    /// Returns the delay that is due; `None` while it is too short to be worth a wake-up.
    pub fn delay(&mut self, cpu: Duration, now: Monotonic) -> Option<Duration> {
        let due = cpu.saturating_sub(self.cpu).div_f64(self.share);
        let passed = now.since(self.wall);
        if passed > due.saturating_add(LONGEST_CREDIT) {
            (self.cpu, self.wall) = (cpu, now);
            return None;
        }
        let rest = due.saturating_sub(passed);
        (rest >= SHORTEST_REST).then_some(rest)
    }
}

/// Returns the CPU time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`), system calls included.
pub fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Gives this thread the lowest CPU and I/O priority. Returns the degradations.
pub fn lower_priority() -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    if let Err(errno) = rustix::process::setpriority_process(None, NICE) {
        missing.insert(format!(
            "disk usage: cannot set nice {NICE}: {errno}; measuring takes CPU time from other processes, within its budget"
        ));
    }
    // `IOPRIO_WHO_PROCESS`, this thread, `IOPRIO_CLASS_IDLE` of <linux/ioprio.h>.
    let (who, this, idle) = (1, 0, 3 << 13);
    // SAFETY: the call takes three numbers.
    if unsafe { libc::syscall(libc::SYS_ioprio_set, who, this, idle) } != 0 {
        let error = std::io::Error::last_os_error();
        missing.insert(format!(
            "disk usage: cannot use the idle I/O class: {error}; measuring may slow down the disk for other processes"
        ));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    /// Works in steps of `bit`, with the requested delays, until `cpu` is used up. Returns the time at the end.
    fn run(throttle: &mut Throttle, bit: Duration, cpu: Duration, mut now: Monotonic) -> Monotonic {
        let mut used = Duration::ZERO;
        while used < cpu {
            used += bit;
            now = now.after(bit);
            if let Some(rest) = throttle.delay(used, now) {
                now = now.after(rest);
            }
        }
        now
    }

    #[test]
    fn the_share_is_kept_whatever_the_size_of_the_steps() {
        for (share, bit) in [(0.02, 50), (0.02, 3000), (0.001, 500), (0.25, 700)] {
            let mut throttle = Throttle::new(share, Duration::ZERO, Monotonic(0));
            let cpu = Duration::from_secs(1);
            let took = run(&mut throttle, Duration::from_micros(bit), cpu, Monotonic(0)).since(Monotonic(0));
            let kept = cpu.as_secs_f64() / took.as_secs_f64();
            assert!(kept <= share * 1.03 && kept > share * 0.9, "{share} {bit}: {kept}");
        }
    }

    #[test]
    fn delays_have_a_minimum_and_idle_time_no_credit() {
        let mut throttle = Throttle::new(0.5, Duration::ZERO, Monotonic(0));
        assert_eq!(throttle.delay(Duration::from_millis(5), Monotonic(5 * MILLI)), None);
        // A minute of waiting for a disk earns no minute of work without a delay.
        let later = Monotonic(60_000 * MILLI);
        assert_eq!(throttle.delay(Duration::from_millis(5), later), None);
        let rest = throttle.delay(Duration::from_millis(55), later.after(Duration::from_millis(50)));
        assert_eq!(rest, Some(Duration::from_millis(50)));
    }

    #[test]
    fn a_new_share_counts_from_then_on() {
        let mut throttle = Throttle::new(0.01, Duration::ZERO, Monotonic(0));
        throttle.set_share(0.5, Duration::from_millis(100), Monotonic(100 * MILLI));
        let rest = throttle.delay(Duration::from_millis(200), Monotonic(200 * MILLI));
        assert_eq!(rest, Some(Duration::from_millis(100)));
    }
}
