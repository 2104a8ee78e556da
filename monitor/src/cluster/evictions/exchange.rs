//! The values that pass between an eviction's plan, its requests and the loop.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Sets the pod's condition.
    Mark,
    /// Deletes or evicts the pod.
    Remove,
    Get,
    SendEvent,
}

/// What an HTTP answer means for the eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    Found {
        /// It has the intent's UID.
        is_same: bool,
        is_terminating: bool,
    },
    /// The API server itself says that the object does not exist.
    NotFound,
    /// The UID differs, or another client changed the object at the same time.
    Conflict,
    AlreadyExists,
    /// A disruption budget refuses the eviction.
    Budget(String),
    /// The API server is overloaded; the request was not carried out.
    Busy {
        /// `Retry-After`.
        after: Option<Duration>,
        reason: String,
    },
    /// Forbidden or invalid.
    Refused(String),
    /// The request failed or has no whole answer: it may have been carried out.
    Unknown(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The pod is terminating; the kubelet stops it.
    Accepted,
    /// The pod does not exist, or another pod has its name.
    Gone,
    /// The API server or a disruption budget refuses.
    Refused(String),
    NoAnswer(String),
    /// A request failed for this reason and is retried. Reported once.
    Delayed(String),
    /// All requests are done; the text names what could not be marked or reported.
    Done(Option<String>),
    /// The eviction failed for this reason and is not retried.
    GivenUp(String),
}

/// A verdict on the pod with this UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionUpdate {
    pub uid: String,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    None,
    Backoff,
    /// As long as the API server asks for.
    For(Duration),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub wait: Wait,
    /// To report to the loop.
    pub verdict: Option<Verdict>,
}
