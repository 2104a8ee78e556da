//! What was asked, for tests to look at.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::StatusCode;
use http::header::USER_AGENT;
use http::request::Parts;
use serde_json::Value;
use tokio::sync::watch;

use super::What;

/// Requests that are kept.
const KEPT: usize = 20_000;

/// One request.
#[derive(Debug, Clone)]
pub struct Record {
    /// The how manieth.
    pub number: u64,
    /// When it came.
    pub at: Instant,
    /// GET, POST and so on.
    pub method: String,
    /// The path without the query.
    pub path: String,
    /// The query; empty where there is none.
    pub query: String,
    /// The body, where it is JSON.
    pub body: Value,
    /// What the client says it is.
    pub user_agent: String,
    /// The fault that struck it.
    pub fault: Option<What>,
    /// What the server behind the faults made of it; nothing when it never got there.
    pub carried_out: Option<u16>,
    /// What the client was answered; nothing when the connection was cut, or there is no answer yet.
    pub status: Option<u16>,
}

impl Record {
    /// Whether it is of this method and its path ends so.
    #[must_use]
    pub fn is(&self, method: &str, ending: &str) -> bool {
        self.method == method && self.path.ends_with(ending)
    }

    /// Whether it opens a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        is_watch(&self.query)
    }
}

/// Whether a request with that query opens a watch.
pub(super) fn is_watch(query: &str) -> bool {
    query.contains("watch=true") || query.contains("watch=1")
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    records: VecDeque<Record>,
}

/// All requests, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub struct Log {
    state: Arc<Mutex<State>>,
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

    /// All requests so far.
    #[must_use]
    pub fn all(&self) -> Vec<Record> {
        self.state().records.iter().cloned().collect()
    }

    /// The requests of a method whose path ends so.
    #[must_use]
    pub fn of(&self, method: &str, ending: &str) -> Vec<Record> {
        self.state().records.iter().filter(|record| record.is(method, ending)).cloned().collect()
    }

    /// Forgets what was asked so far.
    pub fn clear(&self) {
        self.state().records.clear();
    }

    /// Waits until a request is found; nothing when the time is over.
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
