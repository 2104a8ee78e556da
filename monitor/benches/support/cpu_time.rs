//! Measures the CPU time of a pure function, which other work on the machine changes little.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use rustix::time::{ClockId, clock_gettime};

/// The CPU time of this thread.
#[derive(Debug)]
pub struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        // Neither part of the value is negative.
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    }

    fn end(&self, start: Duration) -> Duration {
        self.start().saturating_sub(start)
    }

    fn add(&self, first: &Duration, second: &Duration) -> Duration {
        *first + *second
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    #[expect(clippy::cast_precision_loss, reason = "exact below 104 days")]
    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}
