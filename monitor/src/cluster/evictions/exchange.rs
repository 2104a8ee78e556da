//! The values that pass between an eviction's plan, its requests and the loop.

use std::time::Duration;

use crate::config::kubernetes_options::EvictionMethod;

/// The form of the request that ends a pod at the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removal {
    pub method: EvictionMethod,
    /// The patch to the status Failed also changes an annotation, and the kubelet reads the status at once.
    pub wakes_kubelet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Sets the pod's condition.
    Mark,
    /// Ends the pod at the API server.
    Remove,
    Get,
    SendEvent,
}

/// The meaning of an HTTP answer for the eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    Found {
        /// It has the intent's UID.
        is_same: bool,
        is_terminating: bool,
        life: Life,
    },
    /// The API server itself says that the object does not exist.
    NotFound,
    /// The UID differs, or another client changed the object at the same time.
    Conflict,
    AlreadyExists,
    /// A disruption budget refuses the eviction.
    Budget(String),
    /// A webhook denies with 429 or a server error, which forbids nothing for good: another controller has begun to move the pod away, which ends it later.
    Begun(Begun),
    /// The API server is overloaded; the request was not carried out.
    Busy {
        /// `Retry-After`.
        after: Option<Duration>,
        reason: String,
    },
    /// The agent's role does not have the verb that the removal needs.
    NotPermitted(String),
    /// An admission policy or a webhook refuses the removal, or the pod would have too many annotations.
    Denied(String),
    /// Forbidden or invalid.
    Refused(String),
    /// The request failed or has no whole answer: it may have been carried out.
    Unknown(String),
}

/// An eviction that another controller has taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    pub reason: String,
    /// The answer says that the pod is being moved. Otherwise it says only that the pod cannot go now.
    pub is_explicit: bool,
}

/// The state of a pod's containers since the decision, by its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// A container runs since before the decision, as far as the kubelet has reported.
    AsBefore,
    /// A container was started after the decision and runs, or an init container has run since.
    Restarted,
    /// No container runs, and the pod has not ended: the kubelet may restart it.
    Stopped,
    /// The phase is Succeeded: its containers had exited before they were killed.
    Succeeded,
    /// The phase is Failed, and the reason is not `Evicted`.
    Ended,
    /// The phase is Failed, and the reason is `Evicted`.
    Evicted {
        /// No container runs any more, and the kubelet has written that the pod has failed: from then on it starts none.
        is_over: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The pod is terminating or has failed; the kubelet stops it.
    Accepted,
    /// The pod does not exist, or another pod has its name.
    Gone,
    /// The API server or a disruption budget refuses.
    Refused(String),
    /// The pod stays until another controller has moved it away.
    Begun(Begun),
    NoAnswer(String),
    /// A request failed for this reason and is retried. Reported once.
    Delayed(String),
    /// All requests are done; the text names what could not be marked or reported.
    Done(Option<String>),
    /// The eviction failed for this reason and is not retried.
    GivenUp(String),
    /// The kubelet has restarted the pod before it learned of the eviction. The pod runs, and stays.
    Restarted,
}

/// A verdict on the pod with this UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionUpdate {
    pub uid: String,
    pub verdict: Verdict,
    /// The eviction was for a disk, an earlier agent began it, and the kubelet has ended the pod. The kubelet keeps the pod's containers.
    pub leaves_rest: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    None,
    Backoff,
    /// As long as the API server asks for.
    For(Duration),
    /// Exactly so long. The answer was as expected.
    Pause(Duration),
    /// So long, or until the pods' watch shows that the status Failed was written over.
    WhileFailed(Duration),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub wait: Wait,
    /// To report to the loop.
    pub verdict: Option<Verdict>,
}
