//! What passes between a plan and who carries it out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What is asked of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The condition.
    Mark,
    /// The pod's end.
    Remove,
    /// How the pod is.
    Look,
    /// The event.
    Tell,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Done,
    /// The pod as it is.
    Found {
        /// The same UID.
        is_same: bool,
        /// It is being deleted.
        is_leaving: bool,
    },
    /// There is no such thing.
    Gone,
    /// Another UID, or somebody else was at it at the same time.
    Conflict,
    /// There is such a thing already.
    Exists,
    /// A disruption budget does not allow it.
    Budget(String),
    /// Too much to do; it was not carried out.
    Busy {
        /// When to come again.
        after: Option<Duration>,
        /// In its words.
        reason: String,
    },
    /// Not allowed, or not understood.
    Refused(String),
    /// It failed, or no whole answer came: it may have been carried out.
    Unknown(String),
}

/// What has been done, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The removal was asked for; whether it was carried out is not known.
    pub asked: bool,
    /// The pod carries the condition.
    pub marked: bool,
    /// The pod is leaving, or gone.
    pub removed: bool,
}

/// What the loop is to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The pod is on its way out; the kubelet stops it.
    Accepted,
    /// It is gone, or another has its name: nothing was to be done.
    Gone,
    /// The API server, or a disruption budget, does not allow it.
    Refused(String),
    /// It did not answer in time.
    NoAnswer(String),
    /// It does not work yet, for that reason, and is tried again. Said once.
    Delayed(String),
    /// All is done; what could not be told or marked, if anything.
    Done(Option<String>),
    /// It does not work, and is not tried any more.
    GivenUp(String),
}

/// When the next request is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Now.
    None,
    /// In a moment: longer each time.
    Backoff,
    /// As the API server said.
    For(Duration),
}

/// What follows from an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When to go on, if there is something left.
    pub wait: Wait,
    /// What the loop is to hear.
    pub news: Option<Verdict>,
}
