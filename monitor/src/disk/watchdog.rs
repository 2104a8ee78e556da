//! Detects a stalled measuring thread. A filesystem that does not answer blocks the thread for ever.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::units::{Monotonic, lock};

/// No working disk takes this long.
const STALL_AFTER: Duration = Duration::from_secs(60);

/// The thread's activity, visible to other threads.
#[derive(Debug, Default)]
pub struct Watchdog(Mutex<Activity>);

#[derive(Debug, Default)]
struct Activity {
    /// When the thread last made progress; `None` while it is idle.
    at: Option<Monotonic>,
    place: String,
}

impl Watchdog {
    fn lock(&self) -> MutexGuard<'_, Activity> {
        lock(&self.0)
    }

    pub fn enter(&self, place: impl Display, now: Monotonic) {
        *self.lock() = Activity { at: Some(now), place: place.to_string() };
    }

    pub fn touch(&self, now: Monotonic) {
        self.lock().at = Some(now);
    }

    pub fn idle(&self) {
        self.lock().at = None;
    }

    /// Returns a degradation if the thread has made no progress for [`STALL_AFTER`].
    pub fn stall_reason(&self, now: Monotonic) -> Option<String> {
        let beat = self.lock();
        let waited = now.since(beat.at?);
        (waited >= STALL_AFTER).then(|| {
            format!(
                "disk usage: the measuring thread is blocked in {}: disk usage of workloads is not updated",
                beat.place
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_progress_is_a_stall() {
        let watchdog = Watchdog::default();
        let second = |second: u64| Monotonic(second * 1_000_000_000);
        assert_eq!(watchdog.stall_reason(second(1000)), None);
        watchdog.enter("/a", second(1));
        watchdog.touch(second(10));
        assert_eq!(watchdog.stall_reason(second(69)), None);
        assert!(
            watchdog.stall_reason(second(70)).unwrap().starts_with("disk usage: the measuring thread is blocked in /a")
        );
        watchdog.idle();
        assert_eq!(watchdog.stall_reason(second(1000)), None);
    }
}
