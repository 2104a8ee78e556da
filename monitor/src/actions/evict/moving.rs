//! Pods that another controller moves away after the agent asked the Eviction API, such as virtual machines that KubeVirt migrates. The pod runs
//! until it has moved, and no further eviction for a soft threshold begins meanwhile.

use std::time::Duration;

use crate::units::Monotonic;
use crate::workloads::EVICTION_IN_PROGRESS;

/// The wait for a pod of which the answer said that it is being moved. The descheduler, too, takes an eviction in the background for lost
/// after ten minutes without its annotation.
const EXPLICIT_LIMIT: Duration = Duration::from_secs(600);
/// The wait for a pod of which a webhook said only that it cannot go now.
const LIMIT: Duration = Duration::from_secs(60);
/// The wait while the pod carries the annotation: a migration that fails is tried again, possibly for ever.
const MARKED_LIMIT: Duration = Duration::from_secs(3600);

/// The annotation of the pod, as it was seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Absent,
    Present,
    Removed,
}

/// The wait for one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moving {
    reason: String,
    is_explicit: bool,
    since: Monotonic,
    mark: Mark,
}

impl Moving {
    pub(super) const fn begin(reason: String, is_explicit: bool, since: Monotonic) -> Self {
        Self { reason, is_explicit, since, mark: Mark::Absent }
    }

    /// Takes in whether the pod carries the annotation.
    pub(super) fn note(&mut self, is_marked: bool) {
        self.mark = match (self.mark, is_marked) {
            (_, true) => Mark::Present,
            (Mark::Absent, false) => Mark::Absent,
            (Mark::Present | Mark::Removed, false) => Mark::Removed,
        };
    }

    /// Returns why the wait is over although the pod is there.
    pub(super) fn failure(&self, now: Monotonic) -> Option<String> {
        let Self { reason, is_explicit, since, mark } = self;
        let limit = match mark {
            Mark::Removed => {
                return Some(format!("{reason}; the annotation {EVICTION_IN_PROGRESS} was removed, and the pod stays"));
            }
            Mark::Present => MARKED_LIMIT,
            Mark::Absent if *is_explicit => EXPLICIT_LIMIT,
            Mark::Absent => LIMIT,
        };
        (now.since(*since) >= limit).then(|| format!("{reason}; the pod has not left within {} s", limit.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn the_wait_is_as_long_as_what_speaks_for_it() {
        for (is_explicit, is_marked, limit) in [(false, false, 60), (true, false, 600), (false, true, 3600)] {
            let mut moving = Moving::begin("migrates".to_owned(), is_explicit, at(5));
            moving.note(is_marked);
            assert_eq!(moving.failure(at(5 + limit - 1)), None, "{is_explicit} {is_marked}");
            let failure = moving.failure(at(5 + limit)).unwrap_or_default();
            assert!(failure.contains(&format!("has not left within {limit} s")), "{failure}");
        }
    }

    #[test]
    fn an_annotation_that_is_removed_ends_the_wait() {
        let mut moving = Moving::begin("migrates".to_owned(), true, at(0));
        moving.note(false);
        assert_eq!(moving.failure(at(1)), None, "the annotation comes later than the answer");
        moving.note(true);
        moving.note(false);
        assert!(moving.failure(at(2)).is_some_and(|failure| failure.contains("was removed")));
    }
}
