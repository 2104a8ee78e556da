//! `/incidents` and `/incidents/{id}`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::turns::Turns;
use super::{JSON, failed, parameter};
use crate::incidents::{Incident, IncidentIndex, text};

/// Default of `?limit=`.
const LISTED: usize = 100;

const UNREAD: &str = "the incident cannot be read";
const TEXT: &str = "text/plain; charset=utf-8";

pub(super) fn router(index: Arc<IncidentIndex>) -> Router {
    let state = IncidentState { index, lists: Turns::default(), records: Turns::default() };
    Router::new().route("/incidents", get(list)).route("/incidents/{id}", get(one)).with_state(state)
}

/// State of the handlers. A record has up to half a megabyte and takes milliseconds to render, and its disk may hang.
/// Records are therefore read on a separate thread, one at a time. Lists have their own turns, so that they do not wait for the disk.
#[derive(Debug, Clone)]
struct IncidentState {
    index: Arc<IncidentIndex>,
    lists: Turns,
    records: Turns,
}

/// Runs `act` on a separate thread after the earlier requests.
async fn in_turn(
    turns: &Turns,
    index: &Arc<IncidentIndex>,
    act: impl FnOnce(&IncidentIndex) -> Response + Send + 'static,
) -> Response {
    let turn = match turns.next().await {
        Ok(turn) => turn,
        Err(error) => return failed(UNREAD, &error),
    };
    let index = Arc::clone(index);
    turn.spend(move || act(&index)).await.unwrap_or_else(|error| failed(UNREAD, &error))
}

/// Returns the newest incidents, the oldest of them first. `?limit=` is their maximum number.
async fn list(State(state): State<IncidentState>, RawQuery(query): RawQuery) -> Response {
    let limit = match parameter(query.as_deref(), "limit").map(str::parse) {
        None => LISTED,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => return (StatusCode::BAD_REQUEST, "limit: write a whole number\n").into_response(),
    };
    let listed = move |index: &IncidentIndex| match serde_json::to_vec(&index.heads(limit)) {
        Ok(json) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Err(error) => failed(UNREAD, &error),
    };
    in_turn(&state.lists, &state.index, listed).await
}

/// Returns one incident by id, or the latest for `last`. `?output=text` renders it for people.
async fn one(State(state): State<IncidentState>, Path(id): Path<String>, RawQuery(query): RawQuery) -> Response {
    let as_text = match parameter(query.as_deref(), "output") {
        None | Some("json") => false,
        Some("text") => true,
        Some(_) => return (StatusCode::BAD_REQUEST, "output: write json or text\n").into_response(),
    };
    in_turn(&state.records, &state.index, move |index| record(index, &id, as_text)).await
}

/// Returns the response with the incident's record. May wait for the disk.
fn record(index: &IncidentIndex, id: &str, as_text: bool) -> Response {
    let Some(body) = index.find(id) else { return not_there() };
    match index.read(&body) {
        Ok(Some(json)) if as_text => match serde_json::from_slice::<Incident>(&json) {
            Ok(incident) => ([(header::CONTENT_TYPE, TEXT)], text::render(&incident)).into_response(),
            Err(error) => failed(UNREAD, &error),
        },
        Ok(Some(json)) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Ok(None) => not_there(),
        Err(error) => failed(UNREAD, &error),
    }
}

fn not_there() -> Response {
    (StatusCode::NOT_FOUND, "there is no such incident; /incidents lists them\n").into_response()
}
