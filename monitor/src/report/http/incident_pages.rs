//! `/incidents` and `/incidents/{id}`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::parameter;
use super::turns::Turns;
use crate::incidents::{Incident, IncidentIndex, text};

/// Incidents that are listed when nobody says how many.
const LISTED: usize = 100;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers about the incidents on this shelf.
pub(super) fn router(shelf: Arc<IncidentIndex>) -> Router {
    let state = IncidentState { shelf, lists: Turns::default(), records: Turns::default() };
    Router::new().route("/incidents", get(list)).route("/incidents/{id}", get(one)).with_state(state)
}

/// Where it is asked for incidents. A record has half a megabyte, takes milliseconds to be told, and the disk that it is on may hang:
/// none of this is done on the loop's thread, nor for more than one at a time. Lists do not wait for the disk.
#[derive(Debug, Clone)]
struct IncidentState {
    shelf: Arc<IncidentIndex>,
    lists: Turns,
    records: Turns,
}

/// Does something with the shelf in its turn.
async fn in_turn(
    turns: &Turns,
    shelf: &Arc<IncidentIndex>,
    act: impl FnOnce(&IncidentIndex) -> Response + Send + 'static,
) -> Response {
    let turn = match turns.next().await {
        Ok(turn) => turn,
        Err(error) => return failed(&error),
    };
    let shelf = Arc::clone(shelf);
    turn.spend(move || act(&shelf)).await.unwrap_or_else(|error| failed(&error))
}

/// The newest incidents, oldest of them first; `?limit=` says how many.
async fn list(State(state): State<IncidentState>, RawQuery(query): RawQuery) -> Response {
    let limit = match parameter(query.as_deref(), "limit").map(str::parse) {
        None => LISTED,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => return (StatusCode::BAD_REQUEST, "limit: write a whole number\n").into_response(),
    };
    let listed = move |shelf: &IncidentIndex| match serde_json::to_vec(&shelf.heads(limit)) {
        Ok(json) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Err(error) => failed(&error),
    };
    in_turn(&state.lists, &state.shelf, listed).await
}

/// One incident, or `last`; `?output=text` tells it to people.
async fn one(State(state): State<IncidentState>, Path(id): Path<String>, RawQuery(query): RawQuery) -> Response {
    let as_text = match parameter(query.as_deref(), "output") {
        None | Some("json") => false,
        Some("text") => true,
        Some(_) => return (StatusCode::BAD_REQUEST, "output: write json or text\n").into_response(),
    };
    in_turn(&state.records, &state.shelf, move |shelf| told(shelf, &id, as_text)).await
}

/// May wait for the disk.
fn told(shelf: &IncidentIndex, id: &str, as_text: bool) -> Response {
    let Some(body) = shelf.find(id) else { return not_there() };
    match shelf.read(&body) {
        Ok(Some(json)) if as_text => match serde_json::from_slice::<Incident>(&json) {
            Ok(incident) => ([(header::CONTENT_TYPE, TEXT)], text::render(&incident)).into_response(),
            Err(error) => failed(&error),
        },
        Ok(Some(json)) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Ok(None) => not_there(),
        Err(error) => failed(&error),
    }
}

fn not_there() -> Response {
    (StatusCode::NOT_FOUND, "there is no such incident; /incidents lists them\n").into_response()
}

fn failed(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("the incident cannot be read: {error}\n")).into_response()
}
