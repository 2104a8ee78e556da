//! `/incidents` and `/incidents/{id}`.

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Shared;
use crate::incidents::{Incident, text};

/// Incidents that are listed when nobody says how many.
const LISTED: usize = 100;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// The newest incidents, oldest of them first; `?limit=` says how many.
pub(super) async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Response {
    let limit = match parameter(query.as_deref(), "limit").map(str::parse) {
        None => LISTED,
        Some(Ok(limit)) => limit,
        Some(Err(_)) => return (StatusCode::BAD_REQUEST, "limit: write a whole number\n").into_response(),
    };
    match serde_json::to_vec(&shared.incidents.heads(limit)) {
        Ok(json) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Err(error) => failed(&error),
    }
}

/// One incident, or `last`; `?output=text` tells it to people.
pub(super) async fn one(State(shared): State<Shared>, Path(id): Path<String>, RawQuery(query): RawQuery) -> Response {
    let as_text = match parameter(query.as_deref(), "output") {
        None | Some("json") => false,
        Some("text") => true,
        Some(_) => return (StatusCode::BAD_REQUEST, "output: write json or text\n").into_response(),
    };
    let Some(body) = shared.incidents.find(&id) else { return not_there() };
    // The disk may take its time: the loop's thread does not wait for it.
    let read = tokio::task::spawn_blocking(move || shared.incidents.read(&body)).await;
    match read {
        Ok(Ok(Some(json))) if as_text => match serde_json::from_slice::<Incident>(&json) {
            Ok(incident) => ([(header::CONTENT_TYPE, TEXT)], text::render(&incident)).into_response(),
            Err(error) => failed(&error),
        },
        Ok(Ok(Some(json))) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Ok(Ok(None)) => not_there(),
        Ok(Err(error)) => failed(&error),
        Err(error) => failed(&error),
    }
}

fn not_there() -> Response {
    (StatusCode::NOT_FOUND, "there is no such incident; /incidents lists them\n").into_response()
}

fn failed(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("the incident cannot be read: {error}\n")).into_response()
}

/// The value of a query's parameter, which needs no decoding here.
fn parameter<'q>(query: Option<&'q str>, name: &str) -> Option<&'q str> {
    let mut pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}
