//! One eviction under way, and what is said of it.

use std::time::Duration;

use crate::eviction::evicted::Cause;
use crate::units::Monotonic;
use crate::workloads::PodUid;

use crate::actions::Target;
use crate::actions::stop::{Asked, NotDone};

/// How long the removal of a pod's disk is waited for. A large writable layer takes long to remove, and is removed all the same.
const REMOVAL_LIMIT: Duration = Duration::from_secs(30);

/// One eviction under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) target: Target,
    pub(super) cause: Cause,
    pub(super) stage: Stage,
    pub(super) started: Monotonic,
    /// When its grace period was over and SIGKILL followed.
    pub(super) killed: Option<Monotonic>,
    /// When it was last killed once more.
    pub(super) again: Option<Monotonic>,
    /// A pod whose disk is wanted back, and that is ended by the runtime.
    pub(super) pod: Option<StoppedPod>,
    /// What did not go as it should have.
    pub(super) note: Option<String>,
}

/// A pod that the runtime is to end.
#[derive(Debug)]
pub(super) struct StoppedPod {
    pub(super) uid: PodUid,
    /// For a hard threshold or a limit: no other may go for its disk meanwhile.
    pub(super) urgent: bool,
}

#[derive(Debug)]
pub(super) enum Stage {
    /// The API server was asked to have it stopped: by the kubelet, which gives it a grace period.
    Asking { asked: Asked, until: Monotonic, grace: Duration, insists: bool },
    /// The kubelet stops it, with a grace period until the time given.
    Leaving { until: Monotonic },
    /// The runtime was asked to stop it, with a grace period until the time given.
    Stopping { asked: Asked, until: Monotonic },
    /// SIGTERM was sent; SIGKILL follows at the time given.
    Terminating { until: Monotonic },
    /// SIGKILL was sent at the time given.
    Dying { since: Monotonic },
    /// No process is left; the runtime was asked to remove the rest at the time given.
    Removing { asked: Asked, since: Monotonic },
}

/// What is to be said once the removal is over; nothing while it is not.
pub(super) fn removal(answer: Option<Result<(), NotDone>>, waited: Duration) -> Option<Option<String>> {
    match answer {
        Some(Ok(())) => Some(None),
        Some(Err(NotDone::Critical)) => Some(Some(not_removed("the runtime says that it is a static pod"))),
        Some(Err(NotDone::Failed(reason) | NotDone::Refused(reason))) => Some(Some(not_removed(&reason))),
        None if waited >= REMOVAL_LIMIT => {
            Some(Some(not_removed(&format!("the runtime is at it for {} s", waited.as_secs()))))
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
