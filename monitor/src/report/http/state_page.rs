//! `/api/v1/state` and `/api/v1/watch`: the state of the node, once or as a stream of server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::Mutex;
use tokio::sync::watch::Receiver;
use tokio::time::sleep_until;

use super::connections::Peer;
use super::watch_places::{WatchPlace, WatchPlaces};
use super::{JSON, Shared, busy, failed};
use crate::report::publications::Needs;
use crate::report::state_document::{self, Documents};

/// The document is made anew at most once in this time, however many ask.
const RENEWED: Duration = Duration::from_secs(1);
/// A stream shows a calm node this often, because each document costs the agent milliseconds. Trouble shows at once.
const CALM: Duration = Duration::from_secs(5);
/// A stream ends after this time, so that a reader that does not read holds its place no longer. Clients connect again.
pub(super) const WATCH_TIME: Duration = Duration::from_secs(600);
const EVENTS: &str = "text/event-stream";

/// The client of a connection, as an extension of its request.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) peer: Peer,
    is_watch: Arc<AtomicBool>,
}

impl Client {
    pub(super) fn new(peer: Peer) -> Self {
        Self { peer, is_watch: Arc::default() }
    }

    /// Whether the request is a stream, to which the connection's time limit does not apply.
    pub(super) fn watches(&self) -> bool {
        self.is_watch.load(Ordering::Acquire)
    }
}

#[derive(Debug, Clone)]
pub(super) struct StateServer {
    shared: Shared,
    latest: Arc<Mutex<(Documents, Option<state_document::Shared>)>>,
    places: WatchPlaces,
}

impl StateServer {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, latest: Arc::default(), places: WatchPlaces::default() }
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
pub(super) async fn watch(State(server): State<StateServer>, Extension(client): Extension<Client>) -> Response {
    let place = match server.places.take(client.peer) {
        Ok(place) => place,
        Err(refusal) => return (refusal.status(), [(header::RETRY_AFTER, "10")], refusal.to_string()).into_response(),
    };
    client.is_watch.store(true, Ordering::Release);
    let now = Instant::now();
    let trouble = server.shared.publications.trouble();
    let events = stream::unfold(Watcher { server, _place: place, trouble, earliest: now, latest: now }, next_event);
    let headers = [(header::CONTENT_TYPE, EVENTS), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}

struct Watcher {
    server: StateServer,
    _place: WatchPlace,
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
