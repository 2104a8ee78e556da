//! Faults and the requests that they affect.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;

use super::body::End;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The server refuses; the request is not carried out.
    Answer { code: u16, reason: &'static str, message: &'static str, retry_after: Option<u32> },
    /// A proxy answers with an error page.
    Page { code: u16 },
    /// The answer is delayed.
    Delay(Duration),
    /// The connection breaks before the request is carried out.
    CutBefore,
    /// The request is carried out; then the connection breaks without an answer.
    CutAfter,
    /// The request is not carried out, and never answered.
    NeverAnswer,
    /// The request is carried out, and never answered.
    NeverAnswerAfter,
    /// The body of an answer or watch ends wrongly.
    Body {
        /// The number of bytes that are passed first.
        after: usize,
        /// The way in which the body ends.
        end: End,
    },
}

/// A fault and the requests that it affects.
#[derive(Debug, Clone)]
pub struct Fault {
    pub what: What,
    /// Only requests of this method.
    pub method: Option<String>,
    /// Only paths, with their query, that contain all of these.
    pub containing: Vec<String>,
    /// Only paths with this end, without the query.
    pub ending: Option<String>,
    /// Matching requests that are passed first.
    pub skip: u32,
    /// Requests that are affected; none: all.
    pub times: Option<u32>,
}

impl Fault {
    /// A fault that affects every request.
    #[must_use]
    pub const fn new(what: What) -> Self {
        Self { what, method: None, containing: Vec::new(), ending: None, skip: 0, times: None }
    }

    /// A refusal with this status and the server's own message.
    #[must_use]
    pub const fn answer(code: u16) -> Self {
        let (reason, message, retry_after) = match code {
            401 => ("Unauthorized", "Unauthorized", None),
            403 => ("Forbidden", "forbidden: the test says so", None),
            404 => ("NotFound", "the server could not find the requested resource", None),
            409 => ("Conflict", "Operation cannot be fulfilled: the object has been modified", None),
            410 => ("Expired", "too old resource version: 1 (1000)", None),
            429 => ("TooManyRequests", "the server has received too many requests", Some(1)),
            500 => ("InternalError", "Internal error occurred: the test says so", None),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request", None),
            504 => ("Timeout", "Timeout: request did not complete within requested timeout", None),
            _ => ("", "the test says so", None),
        };
        Self::new(What::Answer { code, reason, message, retry_after })
    }

    /// Delays the answer.
    #[must_use]
    pub const fn delay(by: Duration) -> Self {
        Self::new(What::Delay(by))
    }

    /// Breaks the connection before the request is carried out.
    #[must_use]
    pub const fn cut_before() -> Self {
        Self::new(What::CutBefore)
    }

    /// Breaks the connection after the request was carried out and before the answer.
    #[must_use]
    pub const fn cut_after() -> Self {
        Self::new(What::CutAfter)
    }

    /// Breaks the connection in the middle of the body, or of a watch.
    #[must_use]
    pub const fn cut_in_body(after: usize) -> Self {
        Self::new(What::Body { after, end: End::Cut })
    }

    /// Stops the body, or a watch, in the middle, and keeps the connection open.
    #[must_use]
    pub const fn stall_in_body(after: usize) -> Self {
        Self::new(What::Body { after, end: End::Stall })
    }

    /// Restricts the fault to requests of this method.
    #[must_use]
    pub fn of(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Restricts the fault to paths, with their query, that contain this.
    #[must_use]
    pub fn at(mut self, part: impl Into<String>) -> Self {
        self.containing.push(part.into());
        self
    }

    /// Restricts the fault to paths with this end.
    #[must_use]
    pub fn ending(mut self, end: impl Into<String>) -> Self {
        self.ending = Some(end.into());
        self
    }

    /// Passes this many matching requests first.
    #[must_use]
    pub const fn after(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    /// Affects this many requests.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    #[must_use]
    pub const fn once(self) -> Self {
        self.times(1)
    }

    fn matches(&self, head: &Parts) -> bool {
        let whole = head.uri.path_and_query().map_or("", |path| path.as_str());
        self.method.as_ref().is_none_or(|method| method == head.method.as_str())
            && self.containing.iter().all(|part| whole.contains(part.as_str()))
            && self.ending.as_ref().is_none_or(|end| head.uri.path().ends_with(end.as_str()))
    }
}

/// The identity of an armed fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Armed {
    id: FaultId,
    fault: Fault,
    seen: u32,
    struck: u32,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    armed: Vec<Armed>,
    unknown_fields: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Arms a fault. If several faults match a request, the first applies.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut state = self.state();
        state.last += 1;
        let id = FaultId(state.last);
        state.armed.push(Armed { id, fault, seen: 0, struck: 0 });
        id
    }

    pub fn remove(&self, id: FaultId) {
        self.state().armed.retain(|armed| armed.id != id);
    }

    /// Removes all faults, and unknown fields.
    pub fn clear(&self) {
        let mut state = self.state();
        state.armed.clear();
        state.unknown_fields = false;
    }

    /// Returns how many requests a fault has affected.
    #[must_use]
    pub fn struck(&self, id: FaultId) -> u32 {
        self.state().armed.iter().find(|armed| armed.id == id).map_or(0, |armed| armed.struck)
    }

    /// Adds unknown fields to every answer.
    pub fn set_unknown_fields(&self, on: bool) {
        self.state().unknown_fields = on;
    }

    pub(super) fn unknown_fields(&self) -> bool {
        self.state().unknown_fields
    }

    /// Returns the fault of this request.
    pub(super) fn strike(&self, head: &Parts) -> Option<What> {
        let mut state = self.state();
        for armed in &mut state.armed {
            if !armed.fault.matches(head) {
                continue;
            }
            armed.seen += 1;
            if armed.seen > armed.fault.skip && armed.fault.times.is_none_or(|times| armed.struck < times) {
                armed.struck += 1;
                return Some(armed.fault.what.clone());
            }
        }
        None
    }
}
