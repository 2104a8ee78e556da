//! `/api/v1/state` and `/api/v1/watch`: the state of the node, once or as a stream of server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::watch::Receiver;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep_until;

use super::{JSON, Shared, busy, failed};
use crate::report::publications::Needs;
use crate::report::state_document::{self, Documents};

/// Streams at the same time. Each holds a connection and one document.
pub(super) const WATCHERS: usize = 8;
/// The document is made anew at most once in this time, however many ask.
const RENEWED: Duration = Duration::from_secs(1);
/// A stream shows a calm node this often, because each document costs the agent milliseconds. Trouble shows at once.
const CALM: Duration = Duration::from_secs(5);
/// A stream ends after this time, so that a reader that does not read holds its place no longer. Clients connect again.
pub(super) const WATCH_TIME: Duration = Duration::from_secs(600);
const EVENTS: &str = "text/event-stream";

/// Whether the request of a connection is a stream, to which the connection's time limit does not apply.
#[derive(Debug, Clone, Default)]
pub(super) struct IsWatch(Arc<AtomicBool>);

impl IsWatch {
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[derive(Debug, Clone)]
pub(super) struct StateServer {
    shared: Shared,
    latest: Arc<Mutex<(Documents, Option<state_document::Shared>)>>,
    places: Arc<Semaphore>,
}

impl StateServer {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, latest: Arc::default(), places: Arc::new(Semaphore::new(WATCHERS)) }
    }

    /// Returns the latest document, made anew if it is old. `None` if the loop has published nothing for it in time.
    async fn document(&self) -> Option<state_document::Shared> {
        let mut latest = self.latest.lock().await;
        if let Some(document) = latest.1.as_ref().filter(|document| document.0.elapsed() < RENEWED) {
            return Some(Arc::clone(document));
        }
        let publication = self.shared.publications.take(Needs::Live).await?;
        let state = latest.0.build(&publication, &self.shared.health, &self.shared.incidents)?;
        let document = Arc::new((publication.at, state));
        latest.1 = Some(Arc::clone(&document));
        Some(document)
    }
}

/// Returns the document as JSON with its age as of now.
fn json(document: &state_document::Shared) -> serde_json::Result<Vec<u8>> {
    let (at, state) = &**document;
    serde_json::to_vec(&node_pressure_state::State { age_seconds: at.elapsed().as_secs_f64(), ..state.clone() })
}

pub(super) async fn state(State(server): State<StateServer>) -> Response {
    let Some(document) = server.document().await else { return busy() };
    match json(&document) {
        Ok(json) => ([(header::CONTENT_TYPE, JSON), (header::CACHE_CONTROL, "no-store")], json).into_response(),
        Err(error) => failed("the state cannot be written", &error),
    }
}

/// Streams a document a second, and of a calm node one in [`CALM`].
pub(super) async fn watch(State(server): State<StateServer>, Extension(is_watch): Extension<IsWatch>) -> Response {
    let Ok(place) = Arc::clone(&server.places).try_acquire_owned() else {
        let reason = format!("{WATCHERS} clients watch already; try again later, or read /api/v1/state\n");
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")], reason).into_response();
    };
    is_watch.0.store(true, Ordering::Release);
    let now = Instant::now();
    let trouble = server.shared.publications.trouble();
    let events = stream::unfold(Watcher { server, _place: place, trouble, earliest: now, latest: now }, next_event);
    let headers = [(header::CONTENT_TYPE, EVENTS), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}

struct Watcher {
    server: StateServer,
    _place: OwnedSemaphorePermit,
    trouble: Receiver<u64>,
    /// The next document is sent in trouble at the earliest, and otherwise at the latest.
    earliest: Instant,
    latest: Instant,
}

/// Waits until the next document is due. While the loop is busy a comment keeps the connection.
async fn next_event(mut watcher: Watcher) -> Option<(Result<Bytes, Infallible>, Watcher)> {
    let Watcher { server, trouble, earliest, latest, .. } = &mut watcher;
    sleep_until((*earliest).into()).await;
    tokio::select! {
        biased;
        () = sleep_until((*latest).into()) => {}
        _ = trouble.changed() => {}
    }
    trouble.mark_unchanged();
    let document = server.document().await;
    let is_calm = document.as_ref().is_some_and(|document| document.1.is_calm());
    let event = match document.and_then(|document| json(&document).ok()) {
        // JSON of serde_json has no line breaks, which end an event.
        Some(json) => [b"event: state\ndata: ", json.as_slice(), b"\n\n"].concat(),
        None => b": busy\n\n".to_vec(),
    };
    let earliest = Instant::now() + RENEWED;
    let latest = if is_calm { Instant::now() + CALM } else { earliest };
    Some((Ok(event.into()), Watcher { earliest, latest, ..watcher }))
}
