//! State of one eviction under way, and its notes.

use std::time::Duration;

use crate::eviction::evicted::Cause;
use crate::runtime::TearDown;
use crate::units::Monotonic;
use crate::workloads::PodUid;

use super::moving::Moving;
use crate::actions::Target;
use crate::actions::stop::{Asked, NotDone};

/// Time limit of the wait for a pod's removal. Removing a large writable layer takes longer, and completes all the
/// same.
const REMOVAL_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Running {
    pub(super) target: Target,
    pub(super) cause: Cause,
    pub(super) stage: Stage,
    pub(super) started: Monotonic,
    /// When SIGKILL followed the grace period.
    pub(super) killed: Option<Monotonic>,
    /// When SIGKILL was last repeated.
    pub(super) again: Option<Monotonic>,
    /// The pod, if the eviction is for a disk.
    pub(super) pod: Option<StoppedPod>,
    /// A problem during the eviction.
    pub(super) note: Option<String>,
}

/// A pod that is ended for a disk.
#[derive(Debug)]
pub struct StoppedPod {
    pub uid: PodUid,
    pub by: TearDown,
    /// The cause is a hard threshold or a limit: no other pod may be evicted for the disk meanwhile.
    pub urgent: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The API server was told of the eviction. SIGTERM follows its answer, or comes at the time given.
    Telling { asked: Asked, until: Monotonic, grace: Duration },
    /// The API server was asked to evict the pod; the kubelet then stops the pod with a grace period.
    Asking { asked: Asked, until: Monotonic, grace: Duration, insists: bool },
    /// Another controller moves the pod away. The agent sends no signal.
    Moving(Moving),
    /// The kubelet stops the pod, with a grace period until the time given.
    Leaving { until: Monotonic },
    /// The runtime was asked to stop the pod, with a grace period until the time given.
    Stopping { asked: Asked, until: Monotonic },
    /// SIGTERM was sent; SIGKILL follows at the time given.
    Terminating { until: Monotonic },
    /// SIGKILL was sent, and is sent again to processes that were forked meanwhile, unless the kernel killed all at once.
    Dying { since: Monotonic, progress: Progress, is_repeated: bool },
    /// No process is left. The runtime was asked to remove the pod at the time given.
    Removing { asked: Asked, since: Monotonic },
}

/// How the processes of a killed workload exit. A busy CPU takes seconds for a thousand of them: as long as they become
/// fewer, the eviction has not failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    left: usize,
    checked: Monotonic,
}

impl Progress {
    /// Begins with the processes that were killed.
    pub(super) const fn begin(left: usize, now: Monotonic) -> Self {
        Self { left, checked: now }
    }

    /// Returns whether the processes have stopped to exit: of those left at the last check, at least `limit` ago, three
    /// quarters are `left` still.
    pub(super) fn is_stuck(&mut self, limit: Duration, now: Monotonic, left: impl FnOnce() -> usize) -> bool {
        if now.since(self.checked) < limit {
            return false;
        }
        let left = left();
        if left.saturating_mul(4) > self.left.saturating_mul(3) {
            return true;
        }
        *self = Self { left, checked: now };
        false
    }
}

/// Returns the note of a removal once the removal is over: `Some(None)` if it succeeded.
pub(super) fn removal(answer: Option<Result<(), NotDone>>, waited: Duration, by: TearDown) -> Option<Option<String>> {
    match answer {
        Some(Ok(())) => Some(None),
        Some(Err(NotDone::Critical)) => Some(Some(not_removed("the runtime says that it is a static pod"))),
        Some(Err(NotDone::Failed(reason) | NotDone::Refused(reason) | NotDone::Begun { reason, .. })) => {
            Some(Some(not_removed(&reason)))
        }
        None if waited >= REMOVAL_LIMIT.saturating_add(by.patience()) => {
            Some(Some(not_removed(&format!("not within {} s", waited.as_secs()))))
        }
        None => None,
    }
}

pub(super) fn not_by_the_runtime(reason: &str) -> String {
    format!("the runtime did not stop it: {reason}; its processes were signalled instead")
}

pub(super) fn not_removed(reason: &str) -> String {
    format!("what it left on the disk is not removed: {reason}")
}

pub(super) fn no_answer(waited: Duration) -> String {
    format!("the API server did not answer within {} s", waited.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_become_fewer_are_not_stuck() {
        let (limit, at) = (Duration::from_secs(3), |seconds: u64| Monotonic(seconds * 1_000_000_000));
        let mut progress = Progress::begin(1_600, at(0));
        for (now, left, expected) in
            [(2, 1_600, false), (3, 1_200, false), (5, 1_200, false), (6, 900, false), (9, 676, true)]
        {
            assert_eq!(progress.is_stuck(limit, at(now), || left), expected, "{now} s, {left}");
        }
        assert!(Progress::begin(1, at(0)).is_stuck(limit, at(3), || 1));
        assert!(!Progress::begin(1, at(0)).is_stuck(limit, at(3), || 0));
    }
}
