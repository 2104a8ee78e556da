//! `/incidents` and `/incidents/{id}`.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;

use super::turns::Turns;
use super::{JSON, failed, parameter};
use crate::incidents::incident_filter::{IncidentFilter, parse_kind, parse_time};
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

/// Returns the newest incidents that the query asks for, the oldest of them first.
async fn list(State(state): State<IncidentState>, RawQuery(query): RawQuery) -> Response {
    let (limit, filter) = match asked(query.as_deref().unwrap_or_default(), Timestamp::now()) {
        Ok(asked) => asked,
        Err(reason) => return (StatusCode::BAD_REQUEST, reason + "\n").into_response(),
    };
    let heads = move |index: &IncidentIndex| index.select(limit, |head| filter.matches(head));
    let listed = move |index: &IncidentIndex| match serde_json::to_vec(&heads(index)) {
        Ok(json) => ([(header::CONTENT_TYPE, JSON)], json).into_response(),
        Err(error) => failed(UNREAD, &error),
    };
    in_turn(&state.lists, &state.index, listed).await
}

/// Reads the query of a list: the most incidents, and which.
fn asked(query: &str, now: Timestamp) -> Result<(usize, IncidentFilter), String> {
    let (mut limit, mut filter) = (LISTED, IncidentFilter::default());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let wrong = |reason: String| format!("{name}: {reason}");
        match &*name {
            "limit" => limit = value.parse().map_err(|_| wrong("write a whole number".to_owned()))?,
            "since" => filter.since = Some(parse_time(&value, now).map_err(wrong)?),
            "until" => filter.until = Some(parse_time(&value, now).map_err(wrong)?),
            "kind" => filter.kind = Some(parse_kind(&value).map_err(wrong)?),
            "namespace" => filter.namespace = Some(value.into_owned()),
            "pod" => filter.pod = Some(value.into_owned()),
            _ => return Err(format!("{name}: there are limit, since, until, kind, namespace and pod")),
        }
    }
    Ok((limit, filter))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_selects_incidents() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(asked("", now), Ok((LISTED, IncidentFilter::default())));
        let expected = IncidentFilter {
            since: Some("2026-01-02T02:04:05Z".parse().unwrap()),
            kind: Some(crate::incidents::Kind::OomKill),
            pod: Some("a/b".to_owned()),
            ..IncidentFilter::default()
        };
        assert_eq!(asked("since=1h&kind=oom-kill&pod=a%2Fb&limit=3", now), Ok((3, expected)));
        for (query, reason) in [
            ("limit=x", "limit: write a whole number"),
            ("kind=x", "kind: write oom-kill or eviction"),
            ("since=x", "since: write a time span such as 24h, or a time such as 2026-01-02T03:04:05Z"),
            ("sincce=1h", "sincce: there are limit, since, until, kind, namespace and pod"),
        ] {
            assert_eq!(asked(query, now), Err(reason.to_owned()), "{query}");
        }
    }
}
