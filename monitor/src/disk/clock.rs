//! The time this thread has had a CPU.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_THREAD_CPUTIME_ID`: system calls included, which is nearly all a walk does.
pub fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}
