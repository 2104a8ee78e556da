//! Whether the thread still gets on: a filesystem that does not answer keeps it for ever, and nobody else would notice.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::units::Monotonic;

/// No disk takes so long for a few hundred names.
const HANGS: Duration = Duration::from_secs(60);

/// What the thread is at, as others can see it.
#[derive(Debug, Default)]
pub struct Heart(Mutex<Beat>);

#[derive(Debug, Default)]
struct Beat {
    /// Nothing while it rests.
    at: Option<Monotonic>,
    place: String,
}

impl Heart {
    fn lock(&self) -> MutexGuard<'_, Beat> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Work goes on here.
    pub fn enter(&self, place: impl Display, now: Monotonic) {
        *self.lock() = Beat { at: Some(now), place: place.to_string() };
    }

    /// Work goes on where it was.
    pub fn beat(&self, now: Monotonic) {
        self.lock().at = Some(now);
    }

    /// There is no work, or it has to wait.
    pub fn rest(&self) {
        self.lock().at = None;
    }

    /// Why nothing new is learnt, when the thread has not moved for long.
    pub fn hangs(&self, now: Monotonic) -> Option<String> {
        let beat = self.lock();
        let waited = now.since(beat.at?);
        (waited >= HANGS).then(|| {
            format!(
                "disk usage: the thread hangs in {}: what workloads keep on disks is not measured any more",
                beat.place
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_moved_while_there_was_work_hangs() {
        let heart = Heart::default();
        let second = |second: u64| Monotonic(second * 1_000_000_000);
        assert_eq!(heart.hangs(second(1000)), None);
        heart.enter("/a", second(1));
        heart.beat(second(10));
        assert_eq!(heart.hangs(second(69)), None);
        assert!(heart.hangs(second(70)).unwrap().starts_with("disk usage: the thread hangs in /a"));
        heart.rest();
        assert_eq!(heart.hangs(second(1000)), None);
    }
}
