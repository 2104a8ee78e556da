//! The log of requests.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http::header::USER_AGENT;
use http::request::Parts;
use serde_json::Value;
use tokio::sync::watch;

use crate::answer::Reply;

use super::{What, body};

/// The number of requests that the log keeps.
const KEPT: usize = 20_000;

#[derive(Debug, Clone)]
pub struct Record {
    /// The request's number, counted from the start.
    pub number: u64,
    /// Time of arrival.
    pub at: Instant,
    /// The HTTP method.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query; empty without one.
    pub query: String,
    /// The body, if it is JSON.
    pub body: Value,
    /// The header `User-Agent`.
    pub user_agent: String,
    /// The fault that affected the request.
    pub fault: Option<What>,
    /// The backend's status; `None` if a fault kept the request from the backend.
    pub carried_out: Option<u16>,
    /// The status that the client got; `None` without an answer, or if the connection was cut.
    pub status: Option<u16>,
}

impl Record {
    /// Returns whether the method and the end of the path match.
    #[must_use]
    pub fn is(&self, method: &str, ending: &str) -> bool {
        self.method == method && self.path.ends_with(ending)
    }

    /// Returns whether the request opens a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        is_watch(&self.query)
    }
}

/// Returns whether a request with this query opens a watch.
pub(super) fn is_watch(query: &str) -> bool {
    query.contains("watch=true") || query.contains("watch=1")
}

/// The traffic of the listener since its start. Bytes are those of bodies, without headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of requests, also of those that the log has dropped.
    pub requests: u64,
    pub bytes_received: u64,
    /// Includes the events of watches.
    pub bytes_sent: u64,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    bytes_received: u64,
    records: VecDeque<Record>,
}

/// All requests, in order of arrival.
#[derive(Debug, Clone, Default)]
pub struct Log {
    state: Arc<Mutex<State>>,
    bytes_sent: Arc<AtomicU64>,
    news: watch::Sender<u64>,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, head: &Parts, body: &Bytes) -> u64 {
        let user_agent = head.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.bytes_received += body.len() as u64;
        if state.records.len() >= KEPT {
            state.records.pop_front();
        }
        let record = Record {
            number,
            at: Instant::now(),
            method: head.method.to_string(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(body).unwrap_or_default(),
            user_agent: user_agent.to_owned(),
            fault: None,
            carried_out: None,
            status: None,
        };
        state.records.push_back(record);
        number
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.state().records.iter_mut().rfind(|record| record.number == number) {
            change(record);
        }
        self.news.send_modify(|changes| *changes += 1);
    }

    pub(super) fn hit(&self, number: u64, what: &What) {
        self.change(number, |record| record.fault = Some(what.clone()));
    }

    pub(super) fn carried_out(&self, number: u64, status: StatusCode) {
        self.change(number, |record| record.carried_out = Some(status.as_u16()));
    }

    pub(super) fn end(&self, number: u64, status: Option<StatusCode>) {
        self.change(number, |record| record.status = status.map(|status| status.as_u16()));
    }

    /// Counts the bytes of an answer as they are sent.
    pub(super) fn counted(&self, answer: Reply) -> Reply {
        answer.map(|body| body::counted(body, Arc::clone(&self.bytes_sent)))
    }

    /// Returns the traffic so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let state = self.state();
        let bytes_sent = self.bytes_sent.load(Ordering::Relaxed);
        Traffic { requests: state.next, bytes_received: state.bytes_received, bytes_sent }
    }

    #[must_use]
    pub fn all(&self) -> Vec<Record> {
        self.state().records.iter().cloned().collect()
    }

    /// Returns the requests with this method and end of the path.
    #[must_use]
    pub fn of(&self, method: &str, ending: &str) -> Vec<Record> {
        self.state().records.iter().filter(|record| record.is(method, ending)).cloned().collect()
    }

    /// Forgets all requests.
    pub fn clear(&self) {
        self.state().records.clear();
    }

    /// Waits until a request matches; returns `None` after the time limit.
    pub async fn wait_for(&self, within: Duration, wanted: impl Fn(&Record) -> bool) -> Option<Record> {
        let mut news = self.news.subscribe();
        let found = async {
            loop {
                if let Some(record) = self.state().records.iter().find(|record| wanted(record)) {
                    return Some(record.clone());
                }
                news.changed().await.ok()?;
            }
        };
        tokio::time::timeout(within, found).await.ok().flatten()
    }
}
